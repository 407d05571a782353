"""Rows that a float mask fills with the least finite number, and that a factor of it makes NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.rng import largest_number
from mha_parity.core.arrays import split_heads
from mha_parity.core.candidate import Answer, ask
from mha_parity.core.compare import as_float64
from mha_parity.core.verdict import Diagnosis
from mha_parity.diagnose.evidence import Observation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.core.candidate import Candidate
    from mha_parity.core.problem import Problem

ASKED = 3  # of the problems, again with half of the mask
TITLE = (
    "rows whose float mask is the least finite number at every key are NaN, and right at half of "
    "it: on its way to the softmax the mask is multiplied by more than 1, or added to, and "
    "overflows to -inf"
)
REMEDY = (
    "multiply the scores alone, before the mask is added, or fill a row that is -inf at all keys "
    "with one number before its softmax"
)


def least_numbers(candidate: Candidate, seen: Sequence[Observation]) -> tuple[Diagnosis, ...]:
    """Return that such rows alone are NaN, where half of their mask gives the right answer."""
    failing = [each for each in seen if each.failing]
    if not failing or not all(map(_is_lost_in_such_rows, failing)):
        return ()
    halved = [_halved(each.problem) for each in failing[:ASKED]]
    for problem, answer in zip(halved, ask(candidate, halved), strict=True):
        if not isinstance(answer, Answer):
            return ()
        if Observation(problem, answer, failing=False).error_in_tolerances > 1:
            return ()
    evidence = f"{len(failing)} failing answers, and {len(halved)} of these calls with half a mask"
    return (Diagnosis(bug=None, title=TITLE, remedy=REMEDY, explains=1.0, evidence=evidence),)


def _is_lost_in_such_rows(each: Observation) -> bool:
    """Return whether the output is NaN in rows of the least number.

    In 16 bits torch's product of a NaN may reach the row beside it too.
    """
    problem, answer = each.problem, each.answer
    if answer is None or answer.output.shape != problem.output_shape:
        return False
    heads = split_heads(as_float64(answer.output), problem.num_heads)
    lost = np.isnan(heads).any(axis=-1)
    least = (problem.additive() <= -largest_number(problem.case.dtype)).all(axis=-1)
    return bool((lost & least).any())


def _halved(problem: Problem) -> Problem:
    """Return the problem with half of each number of its float masks."""
    masks = {name: getattr(problem, name) for name in ("attn_mask", "key_padding_mask")}
    floats = {n: m for n, m in masks.items() if m is not None and m.dtype != np.bool_}
    return problem.replace(**{name: (mask / 2).astype(mask.dtype) for name, mask in floats.items()})
