"""The definition of a target as the page shows it, with the suspect lines and what raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mha_parity.core.verdict import Source

MOST = 60  # lines that are shown
BEFORE = 20  # of these before the line that raised


class Line(NamedTuple):
    """One line of a definition."""

    number: int
    text: str
    raised: bool
    suspect: bool


def source_lines(source: Source) -> list[Line]:
    """Return at most ``MOST`` lines of the definition, around the suspect or what raised.

    A suspect in a helper or a base class of the same file comes first.
    """
    suspects = {number for number, _ in source.suspects}
    numbered = [
        Line(number, text, number == source.raised_at, number in suspects)
        for number, text in enumerate(source.text.splitlines(), source.line)
    ]
    shown = {each.number for each in numbered}
    elsewhere = [Line(n, text, n == source.raised_at, True) for n, text in source.suspects
                 if n not in shown]  # fmt: skip
    first = max(min(source.marked - source.line - BEFORE, len(numbered) - MOST), 0)
    return elsewhere + numbered[first : first + MOST]
