"""Replays one case: what went in, what the target answered, torch's answer, the difference."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table
from rich.text import Text

from mha_parity.bound import bound
from mha_parity.case import parse
from mha_parity.opening import opened
from mha_parity.features import of_case
from mha_parity.run import settings_of
from mha_parity.trial import try_case

if TYPE_CHECKING:
    from rich.console import Console

    from mha_parity.case import Case
    from mha_parity.features import Offer
    from mha_parity.judgement import Judgement
    from mha_parity.options import Options
    from mha_parity.problem import Problem
    from mha_parity.trial import Trial
    from mha_parity.values import Array

SHADES = " ·-=+*%#"  # from no error to more than allowed
INPUTS = (
    "query", "key", "value", "w_q", "w_k", "w_v", "b_q", "b_k", "b_v", "bias_k", "bias_v",
    "w_out", "b_out", "key_padding_mask", "attn_mask",
)  # fmt: skip


def replay(text: str, target: str, options: Options, console: Console, *, pdb: bool) -> int:
    """Show the case that ``text`` names on ``target``; return 1 where it fails, else 0.

    With ``pdb`` the target runs in this process and the debugger stops at its first line.

    Raises
    ------
        ValueError: the id is no case, or the target does not offer what the case needs.

    """
    case = parse(text)
    if pdb:
        options = dataclasses.replace(options, in_process=True)
    with opened(target, options) as candidate:
        offered(case, candidate.offer, target)
        if pdb:
            stopping = _stopping(candidate)
        trial = try_case(stopping if pdb else candidate, case, settings_of(options))
    _show(trial, console)
    return int(trial.fails)


def offered(case: Case, offer: Offer, target: str) -> None:
    """Make sure that the target offers what the case needs.

    Raises
    ------
        ValueError: it does not.

    """
    for axis, value in of_case(case).items():
        if value not in offer[axis]:
            raise ValueError(
                f"the case needs {axis}={value}, but {target} offers {', '.join(offer[axis])}; "
                f"replay a case drawn for this target."
            )


class _stopping:  # noqa: N801  (reads as the verb it stands for)
    """A candidate under the debugger."""

    def __init__(self, candidate: object) -> None:
        self._candidate = candidate

    def __getattr__(self, name: str) -> object:
        return getattr(self._candidate, name)

    def __call__(self, problem: Problem) -> object:
        import pdb  # noqa: T100  (what --pdb asks for)

        return pdb.runcall(self._candidate, problem)  # type: ignore[arg-type]  # it is callable


def _show(trial: Trial, console: Console) -> None:
    console.print(Text(f"\n{trial.case.id}", style="bold"))
    if trial.problem is not None:
        console.print(_inputs(trial.problem))
    if trial.answer is not None and trial.gold is not None:
        gold = np.asarray(trial.gold.output, dtype=np.float64)
        output = np.asarray(trial.answer.output)
        _print(console, "the target's output", output)
        _print(console, "torch's output", gold)
        if output.shape == gold.shape and output.dtype.kind == "f":
            difference = output.astype(np.float64) - gold
            _print(console, "difference", difference)
            _shaded(console, trial, difference)
    for judgement in trial.judgements:
        console.print(_line(judgement))


def _inputs(problem: Problem) -> Table:
    """Return a line an input: its shape, and what it is where it is another one again."""
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
    return table


def _range(array: Array) -> str:
    if array.dtype == np.bool_:
        return f"{int(array.sum())} of {array.size} hidden"
    finite = array[np.isfinite(array)].astype(np.float64)
    return f"from {finite.min():.4g} to {finite.max():.4g}" if finite.size else "no finite value"


def _print(console: Console, title: str, array: Array) -> None:
    console.print(Text(f"\n{title} {array.dtype}{array.shape}", style="bold"))
    with np.printoptions(precision=5, suppress=True, threshold=200, edgeitems=3, linewidth=96):
        console.print(Text(str(array)))


def _shaded(console: Console, trial: Trial, difference: Array) -> None:
    """Print the error in units of the bound: a character an element, a block a sample."""
    if trial.problem is None or trial.gold is None or difference.size == 0:
        return
    bound = np.maximum(np.asarray(bound(trial.problem, trial.gold).output, dtype=np.float64), np.finfo(float).tiny)
    units = np.nan_to_num(np.abs(difference) / bound, nan=2.0, posinf=2.0)
    level = np.minimum(units * (len(SHADES) - 1), len(SHADES) - 1).astype(int)
    level = np.where(units > 1, len(SHADES) - 1, np.minimum(level, len(SHADES) - 2))
    width = trial.problem.v_head_dim
    console.print(Text("\nerror beside the rounding bound (# = above it); heads side by side"))
    for sample, rows in enumerate(level[:4]):
        for row in rows[:24]:
            line = "".join(SHADES[i] for i in row)
            heads = [line[i : i + width] for i in range(0, len(line), width)]
            console.print(Text(f"  sample {sample}  |" + "|".join(heads) + "|"))


def _line(judgement: Judgement) -> Text:
    colour = "red" if judgement.severity.fails else "green"
    where = f" at {judgement.where}" if judgement.where else ""
    numbers = f": {judgement.error:.3g} of {judgement.allowed:.3g} allowed{where}"
    line = Text.assemble(
        (f"{judgement.severity.value:>14} ", colour), judgement.check, (numbers, "dim")
    )
    return line.append(f"\n{' ' * 15}{judgement.detail}") if judgement.detail else line
