"""Calibrate on one problem: right answers in random orders, and planted bugs.

Right answers come from orders drawn at random from all that can be combined, none of them in the
order spread. Bugs come from the catalogue: *structural* ones change the answer in exact arithmetic;
*precision* ones do what exact arithmetic would not notice much; *one head* is a right answer with
one head of a structurally wrong one.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity import catalogue
from mha_parity.cases.covering import HALF
from mha_parity.cases.generate import make_problem, with_dtype
from mha_parity.core.candidate import Answer, CandidateError
from mha_parity.core.check_result import MASKED_ROWS, Severity
from mha_parity.judging.output import ROUNDINGS, JudgeSettings, judge_answer
from mha_parity.judging.output_groups import JudgedArray, judged_array
from mha_parity.judging.tolerance import OrderSpread
from mha_parity.oracle.eval_orders import EVAL_ORDERS, EvalOrder, Prepared, Sums, attend_in_order
from mha_parity.oracle.reference import reference_answer

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from mha_parity.catalogue import Bug
    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.oracle.reference import Reference

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


def needed_k(case: Case, rng: random.Random) -> list[tuple[str, float]]:
    """Return (dtype, k) for each right answer: the smallest k at which it would be a match."""
    problem = make_problem(case)
    reference = reference_answer(problem)
    order_spread = OrderSpread.of(problem, reference)
    found = []
    for answer in right_answers(problem, rng):
        for judged, array in _quantities(problem, reference, answer):
            *_, spread = order_spread.errors(judged)
            excess = judged.error(array) - ROUNDINGS * judged.rounding
            ratio = np.where(excess > 0, excess / np.where(spread > 0, spread, np.nan), 0.0)
            found.append((case.dtype, float(np.nan_to_num(ratio, nan=np.inf).max(initial=0))))
    return found


def _quantities(
    problem: Problem, reference: Reference, answer: Answer
) -> list[tuple[JudgedArray, Array]]:
    """Return what of the answer is judged, where all of it is numbers."""
    pairs = [(judged_array("output", problem, reference), answer.output)]
    if answer.weights is not None:
        name = "weights" if problem.case.weights == "per_head" else "averaged"
        pairs.append((judged_array(name, problem, reference), answer.weights))
    return [(q, a) for q, a in pairs if np.isfinite(q.difference(a)).all()]


def count_verdicts(
    problem: Problem, reference: Reference, rng: random.Random, settings: JudgeSettings
) -> Counts:
    """Count the verdicts on right and on wrong answers to one problem.

    Keys are ("right", dtype, severity) for each check result and (family, dtype, severity) for each
    wrong answer, with the worst severity it got.
    """
    case, counts = problem.case, Counts()
    for answer in right_answers(problem, rng):
        for check_result in judge_answer(problem, reference, answer, settings):
            if check_result.check != MASKED_ROWS:
                counts["right", case.dtype, check_result.severity.value] += 1
    for family in FAMILIES:
        bugs = bugs_of(family, case.dtype)
        for bug in rng.sample(bugs, min(BUGS_A_CASE, len(bugs))):
            found = plant_bug(family, bug, problem, reference, rng)
            if found is not None:
                worst = worst_severity(
                    j.severity for j in judge_answer(problem, reference, found, settings)
                )
                counts[family, case.dtype, worst.value] += 1
    return counts


def worst_severity(severities: Iterable[Severity]) -> Severity:
    """Return the last of the severities in the order in which the enum lists them."""
    return max(severities, key=list(Severity).index)


def right_answers(problem: Problem, rng: random.Random) -> list[Answer]:
    """Return answers in random legitimate orders."""
    prepared = Prepared(problem)
    kinds = {"none": None, "averaged": "averaged", "per_head": "weights"}
    wanted = kinds[problem.case.weights]
    answers = []
    for _ in range(ORDERS_A_CASE):
        output, weights = attend_in_order(prepared, random_order(rng))
        kept = None if wanted is None else weights
        if wanted == "averaged":
            kept = weights.mean(axis=1)
        rounded = None if kept is None else kept.astype(problem.dtype)
        answers.append(Answer(output=output.astype(problem.dtype), weights=rounded))
    return answers


def random_order(rng: random.Random) -> EvalOrder:
    """Return one way through the computation that is not in the order spread."""
    while True:
        order = EvalOrder(
            scale_at=rng.choice(("query", "key", "both", "late")),
            base2=rng.random() < HALF,
            sums=rng.choice(SUMS),
            projection=rng.choice(SUMS),
            per_head=rng.random() < HALF,
            normalise=rng.choice(("before", "after")),
            keys=rng.choice((0, 0, 3, 8, 32)),
            rounding=rng.choice(("steps", "stages", "ends")),
        )
        if order not in EVAL_ORDERS:
            return order


def bugs_of(family: str, dtype: str) -> list[Bug]:
    """Return the bugs of the catalogue that a family plants in problems of this dtype."""
    everything = catalogue.catalogue().values()
    if family == "precision":
        return [bug for bug in everything if bug.id in PRECISION and dtype in bug.dtypes]
    aside = {*PRECISION, "silent-upcast", "silent-downcast"}
    shown = (b for b in everything if b.plain and not b.policy and not b.equivalent)
    return [b for b in shown if b.id not in aside]


def plant_bug(
    family: str, bug: Bug, problem: Problem, reference: Reference, rng: random.Random
) -> Answer | None:
    """Return a wrong answer, or None where the bug does not show in this problem."""
    judged = judged_array("output", problem, reference)
    seen = problem if family == "precision" else in_float64(problem)
    try:
        exact, right = (
            bug.attend(seen).output,
            catalogue.answer_of(catalogue.Attention, seen).output,
        )
        found = bug.attend(problem)
    except CandidateError:
        return None
    if not exact.shape == found.output.shape == reference.output.shape:
        return None
    if family == "one head":
        if judged.mixed or problem.num_heads == 1:
            return None
        columns = _columns(problem, rng)
        exact = _grafted(right, exact, columns)
        plain = catalogue.answer_of(catalogue.Attention, problem)
        found = replace(plain, output=_grafted(plain.output, found.output, columns))
    return (
        found if bug_shows(judged, exact, right, exact_arithmetic=family != "precision") else None
    )


def _columns(problem: Problem, rng: random.Random) -> slice:
    """Return the columns of one head, drawn at random."""
    head = rng.randrange(problem.num_heads)
    return slice(head * problem.v_head_dim, (head + 1) * problem.v_head_dim)


def _grafted(right: Array, wrong_one: Array, columns: slice) -> Array:
    grafted = right.copy()
    grafted[..., columns] = wrong_one[..., columns]
    return grafted


def in_float64(problem: Problem) -> Problem:
    """Return the same numbers as a float64 problem, to see what a bug does in exact arithmetic."""
    names = [
        name
        for name in type(problem).__dataclass_fields__
        if isinstance(value := getattr(problem, name), np.ndarray) and value.dtype != np.bool_
    ]
    arrays = {name: getattr(problem, name).astype(np.float64) for name in names}
    return problem.replace(case=with_dtype(problem.case, "float64"), **arrays)


def bug_shows(judged: JudgedArray, answer: Array, right: Array, *, exact_arithmetic: bool) -> bool:
    """Return whether two answers differ in some head by more than one rounding of the reference.

    Where both stand for exact arithmetic, by more than float64 itself can be off.
    """
    least = EXACT * judged.scale if exact_arithmetic else 0.0
    with np.errstate(all="ignore"):
        difference = judged.worst(np.where(judged.finite, answer.astype(right.dtype) - right, 0))
    return bool((~(difference <= np.maximum(judged.rounding, least))).any())


def upper_limit(events: int, case_results: int) -> float:
    """Return the exact (Clopper-Pearson) one-sided upper limit of a rate.

    The rate at which so few events, or fewer, have the probability 1 %.
    """
    if events >= case_results:
        return 1.0
    low, high = events / case_results, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if _cdf(events, case_results, middle) < 0.01 else (middle, high)
    return high


def _cdf(events: int, case_results: int, rate: float) -> float:
    """Return the probability of at most ``events`` in ``trials``."""
    logs = (
        math.lgamma(case_results + 1) - math.lgamma(i + 1) - math.lgamma(case_results - i + 1)
        + i * math.log(rate) + (case_results - i) * math.log1p(-rate)
        for i in range(events + 1)
    ) if 0 < rate < 1 else iter([0.0 if rate <= 0 else -math.inf])  # fmt: skip
    return sum(math.exp(log) for log in logs)
