"""One case from near: what went in, what came out, what torch answers, and where they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table
from rich.text import Text

from mha_parity.report import words

if TYPE_CHECKING:
    from rich.console import Console

    from mha_parity.judgement import Judgement
    from mha_parity.problem import Problem
    from mha_parity.trial import Trial
    from mha_parity.values import Array

INPUTS = (
    "query", "key", "value", "w_q", "w_k", "w_v", "b_q", "b_k", "b_v", "bias_k", "bias_v",
    "w_out", "b_out", "key_padding_mask", "attn_mask",
)  # fmt: skip
SAMPLES, ROWS = 3, 16  # drawn of a difference
LEGEND = (
    "error beside what is allowed: · within it, 1 up to 10 times, 2 up to 100 times, ..., "
    "! no number"
)
LINES = 24


def show(trial: Trial, units: Array | None, console: Console) -> None:
    """Print the trial; ``units`` are the output's errors over the allowed ones, (N, L, G, W)."""
    console.print(Text(f"\n{trial.case.id}", style="bold"), soft_wrap=True)
    if trial.problem is not None:
        console.print(_inputs(trial.problem))
    if trial.gold is not None:
        gold = np.asarray(trial.gold.output, dtype=np.float64)
        if trial.answer is not None:
            _print(console, "the target's output", np.asarray(trial.answer.output))
        _print(console, "torch's output", gold)
        if units is not None and trial.answer is not None:
            output = np.asarray(trial.answer.output).astype(np.float64)
            _print(console, "the target's − torch's", output - gold)
            _shade(console, units)
    console.print()
    for judgement in trial.judgements:
        console.print(_line(judgement))


def _inputs(problem: Problem) -> Table:
    """Return a line an input: its shape, and its range, or which array it is once more."""
    table = Table.grid(padding=(0, 2))
    seen: dict[int, str] = {}
    for name in INPUTS:
        array = getattr(problem, name)
        if array is None:
            continue
        same = seen.setdefault(id(array), name)
        what = f"the same array as {same}" if same != name else _range(array)
        table.add_row(name, f"{array.dtype}{array.shape}", Text(what, style="dim"))
    if problem.given_scale is not None:
        table.add_row("scale", f"{problem.given_scale:.6g}", "")
    if problem.is_causal:
        table.add_row("is_causal", "True", "")
    return table


def _range(array: Array) -> str:
    if array.dtype == np.bool_:
        return f"{int(array.sum())} of {array.size} hidden"
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    hidden = int((wide == -np.inf).sum())
    also = f", {hidden} of {array.size} hidden" if hidden else ""
    return (
        f"from {finite.min():.4g} to {finite.max():.4g}{also}"
        if finite.size
        else f"none finite{also}"
    )


def _print(console: Console, title: str, array: Array) -> None:
    console.print(Text(f"\n{title}  {array.dtype}{array.shape}", style="bold"))
    with np.printoptions(precision=5, suppress=True, threshold=120, edgeitems=3, linewidth=96):
        console.print(Text(str(array)), soft_wrap=True)


def _shade(console: Console, units: Array) -> None:
    """Print a character an element, a line a query, the heads side by side."""
    console.print(Text(f"\n{LEGEND}", style="dim"))
    groups = units.shape[2]
    for sample, rows in enumerate(units[:SAMPLES]):
        heads = "heads mixed" if groups == 1 else f"heads 0 to {groups - 1}"
        console.print(Text(f"sample {sample}, {heads}", style="dim"))
        for row, heads_of_row in enumerate(rows[:ROWS]):
            line = Text(f"  row {row:<3} ")
            for head in heads_of_row:
                line.append("|", "dim")
                for value in head:
                    line.append(*_mark(float(value)))
            console.print(line.append("|", "dim"), soft_wrap=True)
    left_out = max(len(units) - SAMPLES, 0), max(units.shape[1] - ROWS, 0)
    if any(left_out):
        console.print(Text(f"  ... {left_out[0]} samples and {left_out[1]} rows more", style="dim"))


def _mark(units: float) -> tuple[str, str]:
    if not np.isfinite(units):
        return "!", "bold red"
    if units <= 1:
        return "·", "dim"
    return str(min(int(np.ceil(np.log10(units))), 9) or 1), "red"


def _line(judgement: Judgement) -> Text:
    """Return a check's outcome; a failed one with its error, its place and its sentence."""
    status = "fail" if judgement.severity.fails else "pass"
    colour = {"fail": "red", "pass": "green"}[status]
    line = Text.assemble(
        (f"{words.SIGN[status]} ", colour),
        judgement.check,
        (f"  {judgement.severity.value}", colour),
    )
    if judgement.where is not None and judgement.allowed > 0:
        line.append(f"  {words.error(judgement)}, at {judgement.where}", "dim")
    if judgement.detail:
        line.append(f"\n  {words.told(judgement.detail, LINES)}")
    return line
