"""Numbers of the target next to torch's, with as many digits as differ, the worst one marked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.report_arrays import Comparison

ROWS = 10  # shown of a matrix, around the worst number
GAP = 3
MOST_DIGITS = 17  # of a double


def matrix_lines(compared: Comparison, width: int) -> list[Text]:
    """Return the target's numbers, torch's and their difference, side by side where they fit."""
    shown = _digits(compared)
    parts = (
        ("the target", compared.actual, shown),
        ("torch", compared.expected, shown),
        ("target − torch", compared.difference, "{:.2g}".format),
    )
    texts = [[[write(float(v)) for v in row] for row in array] for _, array, write in parts]
    across = [max(len(text) for row in block for text in row) for block in texts]
    first, last = window(compared.worst[1], len(texts[0][0]), _columns(max(across), width))
    blocks = [
        _block(name, block, text_width, (first, last), compared)
        for (name, *_), block, text_width in zip(parts, texts, across, strict=True)
    ]
    head = Text(compared.title, style="bold")
    left_out = _left_out(compared.actual.shape, (first, last))
    if left_out:
        head.append(f"  {left_out}", "dim")
    return [head, *_arranged(blocks, width)]


def _digits(compared: Comparison) -> Callable[[float], str]:
    """Return how to write a number so that the worst difference shows three digits."""
    largest = _largest(compared.actual, compared.expected)
    largest_difference = _largest(compared.difference) or largest
    size = math.floor(math.log10(largest)) if largest else 0
    behind = 2 - (math.floor(math.log10(largest_difference)) if largest_difference else 0)
    if -3 <= size < 6:
        return f"{{:.{min(max(behind, 2), MOST_DIGITS - 1 - size)}f}}".format
    return f"{{:.{min(max(behind + size, 2), MOST_DIGITS - 1)}e}}".format


def _largest(*arrays: Array) -> float:
    finite = (np.abs(array[np.isfinite(array)]) for array in arrays)
    return max(float(array.max(initial=0)) for array in finite)


def _columns(cell: int, width: int) -> int:
    return max((width - len("  row 10  ")) // (cell + 2), 1)


def window(center: int, count: int, most: int) -> tuple[int, int]:
    """Return the first of ``most`` places that hold ``center``, and the end."""
    first = min(max(center - most // 2, 0), max(count - most, 0))
    return first, min(first + most, count)


def _left_out(shape: Sequence[int], columns: tuple[int, int]) -> str:
    rows, count = shape
    found = []
    if rows > ROWS:
        found.append(f"{ROWS} of {rows} rows")
    if columns[1] - columns[0] < count:
        found.append(f"columns {columns[0]} to {columns[1] - 1} of {count}")
    return ", ".join(found)


def _block(
    name: str,
    texts: list[list[str]],
    text_width: int,
    columns: tuple[int, int],
    compared: Comparison,
) -> list[Text]:
    """Return the lines of one matrix; the worst number stands in brackets."""
    text_width = max(text_width, len(str(columns[1] - 1)))
    head = "".join(f" {number:>{text_width}} " for number in range(*columns))
    block = [Text(name), Text(f"{'':8}{head}", style="dim")]
    for row in range(*window(compared.worst[0], len(texts), ROWS)):
        line = Text(f"  row {row:<2}", style="dim")
        for column in range(*columns):
            worst = (row, column) == compared.worst
            left, right = "[]" if worst else "  "
            style = "bold red" if worst and compared.fails else "bold" if worst else ""
            line.append(
                Text(f"{left}{texts[row][column]:>{text_width}}{right}", style=style or "none")
            )
        block.append(line)
    return block


def _arranged(blocks: list[list[Text]], width: int) -> list[Text]:
    """Return the blocks next to each other if they fit, else below each other."""
    across = [max(map(len, block)) for block in blocks]
    if sum(across) + GAP * (len(blocks) - 1) > width:
        return [_stripped(line) for block in blocks for line in block]
    rows = []
    for parts in zip(*blocks, strict=True):
        line = Text()
        for part, text_width in zip(parts, across, strict=True):
            line.append(part).append(" " * (text_width - len(part) + GAP))
        rows.append(_stripped(line))
    return rows


def _stripped(line: Text) -> Text:
    line.rstrip()
    return line
