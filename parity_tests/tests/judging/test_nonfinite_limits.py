"""Where rows count as overflowing float16, and how far a number is from a policy, at the limits."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.case import parse
from mha_parity.judging.nonfinite import (
    hides_nonfinite,
    overflow_elements,
    overflow_rows,
    policies_of,
    reference_under,
    sum_overflow_rows,
)
from mha_parity.judging.output_groups import judged_array
from mha_parity.oracle.error_bound import roundoff, smallest_number
from mha_parity.oracle.reference import reference_answer

MASKED = "padding-boolmask-maskedrows-weights-float32-s3"


@pytest.mark.parametrize(("words", "mixed"), [("qkv", False), ("mha", False), ("mha", True)])
def test_a_row_overflows_float16_by_its_sum_of_magnitudes(words: str, mixed: bool) -> None:
    """One row of one head, over one key; of an output in all heads, of weights in its own alone.

    Kills `any(axis=1)` over the heads and the limits of other dtypes.
    """
    layer = "-outproj" if mixed else ""
    problem = make_problem(parse(f"{words}-N2-L3-S4-H2-D2-cross{layer}-weights-float16-s1"))
    reference = reference_answer(problem)
    q, k = np.full(reference.q.shape, 1.0), np.full(reference.k.shape, 1.0)
    q[1, 0, 2] = [100.0, -100.0]
    k[1, 0, 3] = [328.0, 328.0]  # 65600 is past 65504, and 100 * (328 - 328) is not
    object.__setattr__(reference, "q", q)
    object.__setattr__(reference, "k", k)
    rows = overflow_rows(problem, reference)
    assert [[1, 0, 2]] == np.argwhere(rows).tolist()
    weights = overflow_elements(rows, judged_array("weights", problem, reference))
    assert weights[1, 0, 2].all()
    assert 4 == weights.sum()
    output = overflow_elements(rows, judged_array("output", problem, reference))
    assert output[1, 2].all()
    assert 4 == output.sum()
    k[1, 0, 3] = [327.5, 327.5]  # 65500
    assert not overflow_rows(problem, reference).any()
    k[1, 0, 3] = [1e30, 1e30]
    wide = make_problem(parse(f"{words}-N2-L3-S4-H2-D2-cross{layer}-weights-float32-s1"))
    assert not overflow_rows(wide, reference).any()


def test_a_row_overflows_float16_by_its_sum_of_undivided_weights_times_values() -> None:
    """Weights of which the largest is 1 before the division: 3 V here, in one row of one head.

    Kills the weights themselves in place of these, and the limits of other dtypes.
    """
    problem = make_problem(parse("qkv-N2-L3-S3-H2-D2-cross-float16-s1"))
    reference = reference_answer(problem)
    weights, v = np.zeros(reference.weights.shape), np.zeros(reference.v.shape)
    weights[..., 0] = 1.0
    weights[1, 0, 2] = 1 / 3
    v[1, 0, :, 1] = 21840.0  # 65520 is past 65504, and the mean is not
    object.__setattr__(reference, "weights", weights)
    object.__setattr__(reference, "v", v)
    assert [[1, 0, 2]] == np.argwhere(sum_overflow_rows(problem, reference)).tolist()
    largest = problem.replace(case=problem.case.replace(regime="largest_value"))
    assert not sum_overflow_rows(largest, reference).any()
    v[1, 0, :, 1] = 21830.0
    assert not sum_overflow_rows(problem, reference).any()
    v[1, 0, :, 1] = 1e30
    wide = make_problem(parse("qkv-N2-L3-S3-H2-D2-cross-float32-s1"))
    assert not sum_overflow_rows(wide, reference).any()


@pytest.mark.parametrize("policy", ["uniform", "zero"])
def test_a_policy_is_met_within_a_rounding_of_each_term(policy: str) -> None:
    """Width, keys, heads and 16 roundings of weights of 1 at most; what is further off is other.

    Kills changes of the number of terms and of the largest term.
    """
    problem = make_problem(parse(f"qkv-N2-L3-S4-H2-D2-cross-{MASKED}"))
    reference = reference_answer(problem)
    judged = judged_array("weights", problem, reference)
    wanted = reference_under(problem, reference, policy).weights  # type: ignore[arg-type]  # one of
    rows = np.asarray(problem.masked_rows())
    assert rows.any()
    reach = (4 + 4 + 2 + 16) * (roundoff(problem.dtype) + smallest_number(problem.dtype))
    for times, name in ((0.97, policy), (1.03, "other")):
        found = wanted.astype(np.float64)
        found[tuple(np.argwhere(rows)[0])] += times * reach
        assert (name,) == policies_of(problem, reference, judged, found), times
    assert ("nan",) == policies_of(problem, reference, judged, np.full(wanted.shape, np.nan))


def test_a_policies_of_the_output_is_met_within_roundings_of_its_largest_terms() -> None:
    """The largest value, by the rows of |W_v| and |W_out| where these pass 1, and the bias.

    Kills a projection, the bias or a magnitude that is left out.
    """
    problem = make_problem(parse(f"mha-N2-L3-S3-H2-D2-bias-outproj-{MASKED}"))
    drawn = (problem.w_v, problem.w_out, problem.b_out)
    w_v, w_out, b_out = (np.asarray(each) for each in drawn)
    w_v, w_out, b_out = 3 * w_v, -5 * w_out, -9 - b_out
    problem = problem.replace(w_v=w_v, w_out=w_out, b_out=b_out)
    reference = reference_answer(problem)
    judged = judged_array("output", problem, reference)
    wanted = reference_under(problem, reference, "zero").output
    rows = np.argwhere(np.asarray(problem.masked_rows()).any(axis=1))
    largest = max(abs(each) for each in reference.v.ravel() if np.isfinite(each))
    for weight in (w_v, w_out):
        largest *= max(sum(abs(float(each)) for each in row) for row in weight)
    largest += max(abs(float(each)) for each in b_out)
    reach = (4 + 3 + 2 + 16) * (roundoff(problem.dtype) * largest + smallest_number(problem.dtype))
    for times, name in ((0.99, "zero"), (1.01, "other")):
        found = wanted.astype(np.float64)
        found[tuple(rows[0])][0] += times * reach
        assert (name,) == policies_of(problem, reference, judged, found), times


def test_a_key_that_is_no_number_has_to_be_hidden_from_some_query() -> None:
    """In key or value, by a mask or by the causal rule; NaN in the query is in no key.

    Kills "every masked problem hides one".
    """
    causal, masked = (
        make_problem(parse(f"qkv-N2-L3-S3-H1-D2-cross-{word}-float64-s5"))
        for word in ("causal", "padding")
    )
    assert not hides_nonfinite(masked)
    query = masked.query.copy()
    query[0, 0, 0] = np.nan
    assert not hides_nonfinite(masked.replace(query=query))
    for name, number in (("key", np.nan), ("value", np.inf)):
        for token in range(3):
            rows = getattr(causal, name).copy()
            rows[1, token, 0] = number
            assert hides_nonfinite(causal.replace(**{name: rows})) is (token > 0)
