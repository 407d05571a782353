"""The definition of a target as the page shows it: numbered lines, the one that raised marked."""

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


def lines(source: Source) -> list[Line]:
    """Return at most ``MOST`` lines of the definition, around the one that raised."""
    numbered = [
        Line(number, text, number == source.raised_at)
        for number, text in enumerate(source.text.splitlines(), source.line)
    ]
    first = max(min(source.raised_at - source.line - BEFORE, len(numbered) - MOST), 0)
    return numbered[first : first + MOST]
