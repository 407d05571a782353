"""What one problem adds to the calibration of gradients: right ones in random orders, and wrong.

A wrong answer has right gradients but for one part that is half of what it should be: one head of a
weight, one sample of an input, one mask. Parts that are 0 in exact arithmetic are not counted.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.calibration import Counts, random_order, worst_of
from mha_parity.candidate import Answer
from mha_parity.gold_gradients import golden_gradients
from mha_parity.gradient_places import groups
from mha_parity.gradients import judge_gradients, vanishes
from mha_parity.making import cotangent
from mha_parity.orders import Prepared
from mha_parity.pullback import pull_back

if TYPE_CHECKING:
    import random

    from mha_parity.gold import Gold
    from mha_parity.judging import Settings
    from mha_parity.problem import Problem
    from mha_parity.values import Array

RIGHT = "right gradients"
WRONG = "wrong gradients"
KINDS = (RIGHT, WRONG)
ORDERS_A_CASE = 4
Gradients = dict[str, "Array"]


def tried_gradients(
    problem: Problem, gold: Gold, chance: random.Random, settings: Settings
) -> Counts:
    """Count the judgements of right gradients and the worst of each set with a wrong part."""
    counts: Counts = Counter()
    dtype = problem.case.dtype
    if not gold.output.size or not gold.weights.shape[-1]:
        return counts
    for found in right_gradients(problem, chance):
        for judgement in judge_gradients(problem, gold, _answer(gold, found), settings):
            counts[RIGHT, dtype, judgement.severity.value] += 1
        planted = halved(problem, gold, found, chance)
        if planted is not None:
            judged = judge_gradients(problem, gold, _answer(gold, planted), settings)
            counts[WRONG, dtype, worst_of(j.severity for j in judged).value] += 1
    return counts


def _answer(gold: Gold, found: Gradients) -> Answer:
    return Answer(output=gold.output, gradients=found)


def right_gradients(problem: Problem, chance: random.Random) -> list[Gradients]:
    """Return gradients in random legitimate orders."""
    prepared, given = Prepared(problem), cotangent(problem)
    found = [pull_back(prepared, random_order(chance), given) for _ in range(ORDERS_A_CASE)]
    with np.errstate(all="ignore"):
        return [{name: a.astype(problem.dtype) for name, a in each.items()} for each in found]


def halved(
    problem: Problem, gold: Gold, found: Gradients, chance: random.Random
) -> Gradients | None:
    """Return the gradients with half of one part, or None where that part is 0."""
    name = chance.choice(sorted(found))
    array = found[name]
    numbers = groups(problem, name, np.arange(array.size).reshape(array.shape))
    if not numbers.size:
        return None
    part = numbers[chance.randrange(len(numbers))]
    right = golden_gradients(problem, gold)[name]
    scale, limit = np.abs(right.value.reshape(-1)[part]).max(), right.limit.reshape(-1)[part].max()
    if vanishes(problem, scale, limit):
        return None
    flat = array.reshape(-1).copy()
    flat[part] = flat[part] * flat.dtype.type(0.5)
    return found | {name: flat.reshape(array.shape)}
