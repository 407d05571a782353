"""Calibrate on the gradients of one problem: right ones in random orders, and wrong ones.

A wrong answer has right gradients but for one part that is half of what it should be: one head of a
weight, one sample of an input, one mask. Parts that are 0 in exact arithmetic are not counted.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import cotangent
from mha_parity.core.candidate import Answer
from mha_parity.judging.gradient_groups import group_rows
from mha_parity.judging.gradients import is_zero_gradient, judge_gradients
from mha_parity.oracle.eval_orders import Prepared
from mha_parity.oracle.eval_orders_vjp import pull_back
from mha_parity.oracle.reference_gradients import reference_gradients
from mha_parity.selftest.calibrate_case import Counts, random_order, worst_severity

if TYPE_CHECKING:
    import random

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.judging.output import JudgeSettings
    from mha_parity.oracle.reference import Reference

RIGHT = "right gradients"
WRONG = "wrong gradients"
KINDS = (RIGHT, WRONG)
ORDERS_A_CASE = 4
Gradients = dict[str, "Array"]


def count_gradient_verdicts(
    problem: Problem, reference: Reference, rng: random.Random, settings: JudgeSettings
) -> Counts:
    """Count the check results of right gradients and the worst of each set with a wrong part."""
    counts: Counts = Counter()
    dtype = problem.case.dtype
    if not reference.output.size or not reference.weights.shape[-1]:
        return counts
    for found in right_gradients(problem, rng):
        for check_result in judge_gradients(
            problem, reference, _answer(reference, found), settings
        ):
            counts[RIGHT, dtype, check_result.severity.value] += 1
        planted = plant_half_gradient(problem, reference, found, rng)
        if planted is not None:
            judged = judge_gradients(problem, reference, _answer(reference, planted), settings)
            counts[WRONG, dtype, worst_severity(j.severity for j in judged).value] += 1
    return counts


def _answer(reference: Reference, found: Gradients) -> Answer:
    return Answer(output=reference.output, gradients=found)


def right_gradients(problem: Problem, rng: random.Random) -> list[Gradients]:
    """Return gradients in random legitimate orders."""
    prepared, given = Prepared(problem), cotangent(problem)
    found = [pull_back(prepared, random_order(rng), given) for _ in range(ORDERS_A_CASE)]
    with np.errstate(all="ignore"):
        return [{name: a.astype(problem.dtype) for name, a in each.items()} for each in found]


def plant_half_gradient(
    problem: Problem, reference: Reference, found: Gradients, rng: random.Random
) -> Gradients | None:
    """Return the gradients with half of one part, or None where that part is 0."""
    name = rng.choice(sorted(found))
    array = found[name]
    numbers = group_rows(problem, name, np.arange(array.size).reshape(array.shape))
    if not numbers.size:
        return None
    part = numbers[rng.randrange(len(numbers))]
    right = reference_gradients(problem, reference)[name]
    scale, limit = np.abs(right.value.reshape(-1)[part]).max(), right.limit.reshape(-1)[part].max()
    if is_zero_gradient(problem, scale, limit):
        return None
    flat = array.reshape(-1).copy()
    flat[part] = flat[part] * flat.dtype.type(0.5)
    return found | {name: flat.reshape(array.shape)}
