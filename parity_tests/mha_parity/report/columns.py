"""Lays a report out in lines that fit a width: names on the left, what each says to their right."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Pairs = list[tuple[str, Text]]
MARGIN = 1
NAMES = 14  # the column of names, as widths as the longest of them
GAP = 2
BETWEEN = " · "
MIN_WIDTH = 20  # columns: in a narrower window lines break anyway


class ReportText:
    """The lines of a report, none wider than the width but what is copied whole: ids, commands."""

    def __init__(self, width: int, names: int = NAMES) -> None:
        self.lines: list[Text] = []
        self._names = names
        self._whole = max(width, MIN_WIDTH)
        self._width = max(width - MARGIN - names - GAP, MIN_WIDTH)

    def block(self, pairs: Pairs) -> None:
        """Add names with their texts after an empty line; a longer name takes a line of its own."""
        if pairs:
            self.lines.append(Text())
        for name, text in pairs:
            own_line = len(name) > self._names
            if own_line:
                self.lines.append(Text.assemble((" " * MARGIN + name, "dim")))
            for number, line in enumerate(_wrapped(text, self._width)):
                begin = self._name("" if number or own_line else name)
                self.lines.append(Text.assemble(begin, line))

    def command(self, name: str, command: str) -> None:
        """Add a command as one line, however long."""
        self.lines.append(Text.assemble(self._name(name), (command, "cyan")))

    def flow(self, items: Iterable[Text]) -> Text:
        """Join items into lines; no item is broken unless it is longer than a line."""
        lines: list[Text] = []
        for item in items:
            if lines and len(lines[-1]) + len(BETWEEN) + len(item) <= self._width:
                lines[-1] = Text.assemble(lines[-1], (BETWEEN, "dim"), item)
            else:
                lines.append(item)
        return Text("\n").join(lines)

    def table(self, rows: Sequence[Mapping[str, str]]) -> Text:
        """Return rows under the names of their columns, all but the first aligned at the right."""
        lines = [dict(zip(rows[0], rows[0], strict=True)), *rows]
        widths = {name: max(len(line[name]) for line in lines) for name in rows[0]}
        first, *others = widths
        table = [
            "  ".join(
                [f"{line[first]:<{widths[first]}}", *(f"{line[o]:>{widths[o]}}" for o in others)]
            )
            for line in lines
        ]
        return Text("\n").join([Text(table[0], "dim"), *map(Text, table[1:])])

    def _name(self, name: str) -> tuple[str, str]:
        return " " * MARGIN + f"{name:<{self._names}}" + " " * GAP, "dim"

    def wrapped(self, text: Text) -> Iterator[Text]:
        """Return the text in lines of the whole width."""
        return _wrapped(text, self._whole)


def _wrapped(text: Text, width: int) -> Iterator[Text]:
    """Yield lines of words, none of them broken; an indented line goes on with its indent."""
    for line in text.split("\n", allow_blank=True):
        indent = len(line.plain) - len(line.plain.lstrip())
        for piece in line[indent:].divide(_breaks(line.plain[indent:], width - indent)):
            piece.rstrip()
            yield Text.assemble(" " * indent, piece)


def _breaks(text: str, width: int) -> list[int]:
    """Return where the lines after the first begin; a word longer than a line stays whole."""
    breaks = [0]
    for word in re.finditer(r"\S+", text):
        if word.end() - breaks[-1] > width and word.start() > breaks[-1]:
            breaks.append(word.start())
    return breaks[1:]
