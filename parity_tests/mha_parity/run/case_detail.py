"""Picks out of a trial the two matrices that a reader wants to see beside each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.beyond import numeric
from mha_parity.gradients import CHECK, right
from mha_parity.judgement import Place
from mha_parity.quantity import NO_HEAD
from mha_parity.report.matrices import Comparison

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.candidate import Answer
    from mha_parity.gold import Gold
    from mha_parity.judgement import Judgement
    from mha_parity.problem import Problem
    from mha_parity.trial import Trial
    from mha_parity.values import Array


@dataclass(frozen=True, eq=False, kw_only=True)
class Placed(Comparison):
    """A comparison, and the place of its worst number in the whole arrays."""

    where: Place


def comparison(trial: Trial) -> Placed | None:
    """Return the comparison of the first failed check that has one, else that of the output."""
    if trial.problem is None or trial.gold is None or trial.answer is None:
        return None
    failed = [each for each in trial.judgements if each.severity.fails]
    output = [each for each in trial.judgements if each.check == "output"]
    for judgement in (*failed, *output):
        pair = _pair(trial.problem, trial.gold, trial.answer, judgement.check)
        if pair is not None and pair[0].shape == pair[1].shape and pair[0].size:
            return _placed(judgement, *pair, trial.problem.num_heads)
    return None


def _pair(problem: Problem, gold: Gold, answer: Answer, check: str) -> tuple[Array, Array] | None:
    """Return the target's array and torch's, whole, or None where the check has none."""
    got: Array | None = None
    due: Array | None = None
    if check == "output":
        got, due = answer.output, gold.output
    elif check == "weights":
        got = answer.weights
        averaged = isinstance(got, np.ndarray) and got.ndim == gold.averaged.ndim
        due = gold.averaged if averaged else gold.weights
    elif check.startswith(CHECK):
        name = check.removeprefix(CHECK)
        found = right(problem, gold, answer)
        got = (answer.gradients or {}).get(name)
        due = found[name].value if name in found else None
    if due is None or not numeric(got):
        return None
    return np.asarray(got).astype(np.float64), np.asarray(due, dtype=np.float64)


def _placed(judgement: Judgement, got: Array, due: Array, heads: int) -> Placed:
    """Return the matrices that hold the worst number."""
    where = judgement.where or Place(0, NO_HEAD, 0, 0)
    cut, worst = _cut(judgement.check, got.shape, where, heads)
    sample = f", sample {where.sample}" if where.sample >= 0 else ""
    head = f", head {where.head}" if where.head >= 0 else ""
    return Placed(
        title=f"{judgement.check}{sample}{head}",
        got=cut(got),
        due=cut(due),
        worst=worst,
        fails=judgement.severity.fails,
        where=where,
    )


def _cut(
    check: str, shape: tuple[int, ...], where: Place, heads: int
) -> tuple[Callable[[Array], Array], tuple[int, int]]:
    """Return how to cut the matrix with the worst number out of an array, and its place there."""
    place = (where.row, where.column)
    if check.startswith(CHECK):
        return _cut_gradient(check, shape, where, heads)
    if check == "weights" and len(shape) == 4:
        return lambda array: np.asarray(array[where.sample, where.head]), place
    if check == "output" and where.head >= 0:
        width = shape[2] // heads
        part = slice(where.head * width, (where.head + 1) * width)
        return lambda array: np.asarray(array[where.sample, :, part]), place
    return lambda array: np.asarray(array[where.sample]), place


def _cut_gradient(
    check: str, shape: tuple[int, ...], where: Place, heads: int
) -> tuple[Callable[[Array], Array], tuple[int, int]]:
    """Return the same for a gradient, whose rows and columns are those of its array."""
    place = (where.row, where.column)
    if check.endswith("key_padding_mask"):
        return np.asarray, (where.sample, where.column)
    if len(shape) == 1:
        return lambda array: np.asarray(array[None]), (0, where.row + where.column)
    if len(shape) == 2 or where.sample < 0:
        return lambda array: np.asarray(array.reshape(-1, shape[-1])), place
    index = where.sample * heads + where.head if check.endswith("attn_mask") else where.sample
    return lambda array: np.asarray(array[index]), place
