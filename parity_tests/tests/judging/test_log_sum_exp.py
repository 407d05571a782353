"""The log-sum-exp of an answer is held to its own bound, and not where nothing is known of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.arrays import log_sum_exp
from mha_parity.core.candidate import Answer
from mha_parity.core.case import Case
from mha_parity.core.check_result import CheckResult, Severity
from mha_parity.core.problem import Problem
from mha_parity.judging.log_sum_exp import judge_log_sum_exp
from mha_parity.oracle.reference import Reference, reference_answer

PLAIN = Case(seed=3, form="qkv", projection="none", inputs="cross", batch=2, heads_count=2,
             head_dim=5, queries=4, keys=9)  # fmt: skip


def judged(case: Case, reference: Reference, found: np.ndarray) -> list[CheckResult]:
    """Return the results on a log-sum-exp beside the right output."""
    problem = make_problem(case)
    output = reference.output.astype(problem.dtype)
    answer = Answer(output=output, log_sum_exp=found)
    return list(judge_log_sum_exp(problem, reference, answer))


def one_by_one(problem: Problem, reference: Reference) -> np.ndarray:
    """Return it from exponentials that are added key by key in the dtype of the problem."""
    dtype = problem.dtype
    scores = reference.logits.astype(dtype)
    largest = scores.max(axis=-1, keepdims=True)
    total = np.zeros_like(largest)
    for power in np.moveaxis(np.exp(scores - largest), -1, 0):
        total = (total + power[..., None]).astype(dtype)
    return np.asarray((largest + np.log(total))[..., 0])


@pytest.mark.parametrize(("dtype", "keys"), [("float32", 2003), ("float16", 601)])
def test_sums_key_by_key_are_within_the_bound(dtype: str, keys: int) -> None:
    """Kills a bound of the exponents alone, and float16 held to sums in float32.

    All keys but one have equal scores, so that every addition may be rounded to the same side.
    """
    problem = make_problem(PLAIN.replace(dtype=dtype, keys=keys))
    key = np.zeros_like(problem.key)
    key[:, 0] = 1
    problem = problem.replace(query=np.full_like(problem.query, 0.53), key=key)
    reference = reference_answer(problem)
    found = one_by_one(problem, reference)
    answer = Answer(output=reference.output.astype(problem.dtype), log_sum_exp=found)
    (result,) = judge_log_sum_exp(problem, reference, answer)
    assert Severity.MATCH is result.severity, result


def test_what_is_off_by_1e_12_is_wrong() -> None:
    """Kills a bound a thousand times as wide: that of this problem is below 1e-13."""
    reference = reference_answer(make_problem(PLAIN))
    right = log_sum_exp(reference.logits).astype(np.float64)
    (found,) = judged(PLAIN, reference, right)
    assert Severity.MATCH is found.severity, found
    right[1, 0, 2] += 1e-12
    (found,) = judged(PLAIN, reference, right)
    assert Severity.WRONG is found.severity, found
    assert "log-sum-exp is" in found.detail
    assert "sample 1, head 0, row 2, but" in found.detail


def test_what_nothing_is_known_of_is_not_judged() -> None:
    """Rows whose output is no number, and numbers past the range of the dtype."""
    problem = make_problem(PLAIN.replace(dtype="float16"))
    reference = reference_answer(problem)
    far = dataclasses.replace(reference, logits=reference.logits + 1e5)
    infinite = np.full(reference.logits.shape[:-1], np.inf, dtype=np.float16)
    assert [] == judged(problem.case, far, infinite)
    output = np.full(problem.output_shape, np.nan, dtype=problem.dtype)
    answer = Answer(output=output, log_sum_exp=infinite)
    assert [] == list(judge_log_sum_exp(problem, reference, answer))
    assert [] == list(judge_log_sum_exp(problem, reference, Answer(output=output)))
