"""What one problem adds to the calibration: right answers in random orders, and planted bugs.

Right answers come from orders drawn at random from all that can be combined, none of them in the
yardstick. Bugs come from the catalogue: *structural* ones change the answer in exact arithmetic;
*precision* ones do what exact arithmetic would not notice much; *one head* is a right answer with
one head of a structurally wrong one.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity import wrong
from mha_parity.candidate import Answer, CandidateError
from mha_parity.drawing import HALF
from mha_parity.gold import golden
from mha_parity.judgement import Severity
from mha_parity.judging import ROUNDINGS, Settings, judge
from mha_parity.making import make, with_dtype
from mha_parity.orders import ORDERS, Order, Prepared, Sums, attend
from mha_parity.quantity import Quantity, quantity
from mha_parity.yardstick import Yardstick

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from mha_parity.case import Case
    from mha_parity.gold import Gold
    from mha_parity.problem import Problem
    from mha_parity.values import Array
    from mha_parity.wrong import Bug

PRECISION = (
    "softmax-add-eps", "exp-approximated", "low-precision-softmax", "low-precision-matmul",
    "f64-capped-at-f32", "inputs-truncated", "weights-truncated", "output-rounded",
)  # fmt: skip
FAMILIES = ("structural", "precision", "one head")
ORDERS_A_CASE = 20
EXACT = 2.0**-36  # of the scale: far above the rounding of float64, far below any bug
BUGS_A_CASE = 3
SUMS: tuple[Sums, ...] = ("blas", "sequential", "pairwise", "blocked")
Counts = Counter[tuple[str, ...]]


def needed(case: Case, chance: random.Random) -> list[tuple[str, float]]:
    """Return (dtype, k) for each right answer: the smallest k at which it would be a match."""
    problem = make(case)
    gold = golden(problem)
    yardstick = Yardstick.of(problem, gold)
    found = []
    for answer in right_answers(problem, chance):
        for judged, array in _quantities(problem, gold, answer):
            *_, yard = yardstick.errors(judged)
            excess = judged.error(array) - ROUNDINGS * judged.rounding
            ratio = np.where(excess > 0, excess / np.where(yard > 0, yard, np.nan), 0.0)
            found.append((case.dtype, float(np.nan_to_num(ratio, nan=np.inf).max(initial=0))))
    return found


def _quantities(problem: Problem, gold: Gold, answer: Answer) -> list[tuple[Quantity, Array]]:
    """Return what of the answer is judged, where all of it is numbers."""
    pairs = [(quantity("output", problem, gold), answer.output)]
    if answer.weights is not None:
        name = "weights" if problem.case.weights == "per_head" else "averaged"
        pairs.append((quantity(name, problem, gold), answer.weights))
    return [(q, a) for q, a in pairs if np.isfinite(q.difference(a)).all()]


def tried(problem: Problem, gold: Gold, chance: random.Random, settings: Settings) -> Counts:
    """Count the verdicts on right and on wrong answers to one problem.

    Keys are ("right", dtype, severity) for each judgement and (family, dtype, severity) for each
    wrong answer, with the worst severity it got.
    """
    case, counts = problem.case, Counts()
    for answer in right_answers(problem, chance):
        for judgement in judge(problem, gold, answer, settings):
            if judgement.check != "fully masked rows":
                counts["right", case.dtype, judgement.severity.value] += 1
    for family in FAMILIES:
        bugs = bugs_of(family, case.dtype)
        for bug in chance.sample(bugs, min(BUGS_A_CASE, len(bugs))):
            found = planted(family, bug, problem, gold, chance)
            if found is not None:
                worst = worst_of(j.severity for j in judge(problem, gold, found, settings))
                counts[family, case.dtype, worst.value] += 1
    return counts


def worst_of(severities: Iterable[Severity]) -> Severity:
    """Return the last of the severities in the order in which the enum lists them."""
    return max(severities, key=list(Severity).index)


def right_answers(problem: Problem, chance: random.Random) -> list[Answer]:
    """Return answers in random legitimate orders."""
    prepared = Prepared(problem)
    kinds = {"none": None, "averaged": "averaged", "per_head": "weights"}
    wanted = kinds[problem.case.weights]
    answers = []
    for _ in range(ORDERS_A_CASE):
        output, weights = attend(prepared, random_order(chance))
        kept = None if wanted is None else weights
        if wanted == "averaged":
            kept = weights.mean(axis=1)
        rounded = None if kept is None else kept.astype(problem.dtype)
        answers.append(Answer(output=output.astype(problem.dtype), weights=rounded))
    return answers


def random_order(chance: random.Random) -> Order:
    """Return one way through the computation that is not in the yardstick."""
    while True:
        order = Order(
            scale_at=chance.choice(("query", "key", "both", "late")),
            base2=chance.random() < HALF,
            sums=chance.choice(SUMS),
            projection=chance.choice(SUMS),
            per_head=chance.random() < HALF,
            normalise=chance.choice(("before", "after")),
            keys=chance.choice((0, 0, 3, 8, 32)),
            rounding=chance.choice(("steps", "stages", "ends")),
        )
        if order not in ORDERS:
            return order


def bugs_of(family: str, dtype: str) -> list[Bug]:
    """Return the bugs of the catalogue that a family plants in problems of this dtype."""
    everything = wrong.catalogue().values()
    if family == "precision":
        return [bug for bug in everything if bug.id in PRECISION and dtype in bug.dtypes]
    aside = {*PRECISION, "silent-upcast", "silent-downcast"}
    shown = (b for b in everything if b.plain and not b.policy and not b.equivalent)
    return [b for b in shown if b.id not in aside]


def planted(
    family: str, bug: Bug, problem: Problem, gold: Gold, chance: random.Random
) -> Answer | None:
    """Return a wrong answer, or None where the bug does not show in this problem."""
    judged = quantity("output", problem, gold)
    seen = problem if family == "precision" else widened(problem)
    try:
        exact, right = bug.attend(seen).output, wrong.attend(wrong.Attention, seen).output
        found = bug.attend(problem)
    except CandidateError:
        return None
    if not exact.shape == found.output.shape == gold.output.shape:
        return None
    if family == "one head":
        if judged.mixed or problem.num_heads == 1:
            return None
        columns = _columns(problem, chance)
        exact = _grafted(right, exact, columns)
        plain = wrong.attend(wrong.Attention, problem)
        found = replace(plain, output=_grafted(plain.output, found.output, columns))
    return found if shows(judged, exact, right, exact_arithmetic=family != "precision") else None


def _columns(problem: Problem, chance: random.Random) -> slice:
    """Return the columns of one head, drawn at random."""
    head = chance.randrange(problem.num_heads)
    return slice(head * problem.v_head_dim, (head + 1) * problem.v_head_dim)


def _grafted(right: Array, wrong_one: Array, columns: slice) -> Array:
    grafted = right.copy()
    grafted[..., columns] = wrong_one[..., columns]
    return grafted


def widened(problem: Problem) -> Problem:
    """Return the same numbers as a float64 problem, to see what a bug does in exact arithmetic."""
    names = [
        name
        for name in type(problem).__dataclass_fields__
        if isinstance(value := getattr(problem, name), np.ndarray) and value.dtype != np.bool_
    ]
    wide = {name: getattr(problem, name).astype(np.float64) for name in names}
    return problem.replace(case=with_dtype(problem.case, "float64"), **wide)


def shows(judged: Quantity, answer: Array, right: Array, *, exact_arithmetic: bool) -> bool:
    """Return whether two answers differ in some head by more than one rounding of the gold.

    Where both stand for exact arithmetic, by more than float64 itself can be off.
    """
    least = EXACT * judged.scale if exact_arithmetic else 0.0
    with np.errstate(all="ignore"):
        apart = judged.worst(np.where(judged.finite, answer.astype(right.dtype) - right, 0))
    return bool((~(apart <= np.maximum(judged.rounding, least))).any())


def upper_limit(events: int, trials: int, confidence: float = 0.99) -> float:
    """Return the exact (Clopper-Pearson) one-sided upper limit of a rate.

    The rate at which so few events, or fewer, have the probability 1 - ``confidence``.
    """
    if events >= trials:
        return 1.0
    low, high = events / trials, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (
            (low, middle) if _cdf(events, trials, middle) < 1 - confidence else (middle, high)
        )
    return high


def _cdf(events: int, trials: int, rate: float) -> float:
    """Return the probability of at most ``events`` in ``trials``."""
    logs = (
        math.lgamma(trials + 1) - math.lgamma(i + 1) - math.lgamma(trials - i + 1)
        + i * math.log(rate) + (trials - i) * math.log1p(-rate)
        for i in range(events + 1)
    ) if 0 < rate < 1 else iter([0.0 if rate <= 0 else -math.inf])  # fmt: skip
    return sum(math.exp(log) for log in logs)
