"""Pictures in characters: which keys a query sees, and where an output is off."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from mha_parity.report.matrices import window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.core.report_arrays import WeightsPicture

SAMPLES, ROWS = 3, 16
MASK_LEGEND = "· seen  # hidden  + favoured and - disfavoured by a float mask"
ERROR_LEGEND = "· allowed  digit n: up to 10^n times what is allowed, 9: or more  ! no number"
SHADES = " ░▒▓█"
LEFT = len("  row 10  ")


def mask_lines(problem: Problem, head: int, row: int, width: int) -> Iterator[Text]:
    """Yield one line per query near ``row``, one character per key, the samples side by side.

    Nothing where no mask hides or favours a key.
    """
    hidden, bias = problem.hidden(), problem.additive()
    if not (hidden.any() or bias.any()):
        return
    alike = (hidden == hidden[:, :1]).all() and (bias == bias[:, :1]).all()
    samples = min(len(hidden), SAMPLES, max((width - LEFT) // (hidden.shape[-1] + 2), 1))
    keys = min(hidden.shape[-1], width - LEFT - 2)
    of = "every head" if alike else f"head {head}"
    samples_note = f" of samples 0 to {samples - 1}, side by side" if samples > 1 else ""
    yield Text(f"which keys a query sees, {of}{samples_note}", "bold")
    yield Text(f"  {MASK_LEGEND}", "dim")
    for query in range(*window(row, hidden.shape[2], ROWS)):
        line = Text(f"  row {query:<3} ", "dim")
        for sample in range(samples):
            line.append("|", "dim")
            at = (sample, head, query, slice(keys))
            marks = zip(hidden[at], bias[at], strict=True)
            line.append("".join(_seen(bool(h), float(b)) for h, b in marks), "none")
        yield line.append("|", "dim")
    yield from _left_out(hidden, samples, keys)


def _seen(hidden: bool, bias: float) -> str:
    return "#" if hidden else "+" if bias > 0 else "-" if bias < 0 else "·"


def _left_out(hidden: Array, samples: int, keys: int) -> Iterator[Text]:
    counts = {"sample": (samples, len(hidden)), "key": (keys, hidden.shape[-1])}
    counts["query"] = (min(hidden.shape[2], ROWS), hidden.shape[2])
    found = [f"{shown} of {n} {name}s" for name, (shown, n) in counts.items() if shown < n]
    if found:
        yield Text(f"  shown: {', '.join(found).replace('querys', 'queries')}", "dim")


def weight_lines(picture: WeightsPicture, head: int, width: int) -> Iterator[str]:
    """Yield a line per query: a head's attention weights in shades of grey, torch's on the right.

    The darkest shade stands for the largest weight of both.
    """
    sides = {"torch": picture.reference_weights[head]}
    if picture.candidate_weights is not None:
        sides = {"the target": picture.candidate_weights[head], **sides}
    room = (width - LEFT) // len(sides) - 4
    most = max(float(np.nanmax(side, initial=1e-2)) for side in sides.values())
    shown = {name: _shaded(side[:ROWS, :room], most) for name, side in sides.items()}
    across = max(len(next(iter(shown.values()))[0]), len("the target"))
    yield " " * LEFT + "".join(f" {name:<{across}}   " for name in shown).rstrip()
    for query, row in enumerate(zip(*shown.values(), strict=True)):
        drawn = "  ".join(f"|{side}|".ljust(across + 2) for side in row)
        yield f"  row {query:<3} {drawn}".rstrip()
    missing = any(np.isnan(side).any() for side in sides.values())
    yield f"  {SHADES[1]} to {SHADES[-1]}: up to {most:.2g}{', ?: no number' if missing else ''}"


def _shaded(side: Array, most: float) -> list[str]:
    def shade(value: float) -> str:
        if np.isnan(value):
            return "?"
        return SHADES[int(np.clip(np.ceil(value / most * (len(SHADES) - 1)), 0, len(SHADES) - 1))]

    return ["".join(shade(float(value)) for value in row) for row in side]


def errors(units: Array, sample: int, row: int, width: int) -> Iterator[Text]:
    """Yield a character per element of one sample's errors over the allowed ones, around ``row``.

    The heads stand side by side; where that is too wide each head has one character, its worst.
    Rows far from ``row`` share a line above and a line below, each column with its worst.
    """
    one = units[sample]
    groups, across = one.shape[1:]
    if LEFT + groups * (across + 1) > width:
        one, across = one.max(axis=2, keepdims=True), 1
    heads = "all heads" if groups == 1 else f"heads 0 to {groups - 1} side by side"
    what = "the worst of each head and row" if across < units.shape[3] else "each element"
    yield Text(f"error of the output, sample {sample}, {heads}: {what}", "bold")
    yield Text(f"  {ERROR_LEGEND}", "dim")
    most = (width - LEFT) // (across + 1)
    first, last = window(row, len(one), ROWS)
    bounds = sorted({0, *range(first, last + 1), len(one)})
    for start, stop in pairwise(bounds):
        name = f"row {start}" if stop == start + 1 else f"{start}-{stop - 1}"
        line = Text(f"  {name:<7} ", "dim")
        for head in one[start:stop, :most].max(axis=0):
            line.append("|", "dim")
            for value in head:
                line.append(*_mark(float(value)))
        yield line.append("|", "dim")
    if len(bounds) <= len(one):
        yield Text("  a line of several rows: the worst of each column", "dim")


def _mark(units: float) -> tuple[str, str]:
    if not np.isfinite(units):
        return "!", "bold red"
    if units <= 1:
        return "·", "dim"
    return str(min(int(np.ceil(np.log10(units))), 9) or 1), "red"
