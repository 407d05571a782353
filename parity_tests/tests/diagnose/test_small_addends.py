"""Rows that are off by a factor are traced to what is added to their sum of exponentials."""

from __future__ import annotations

import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.case import Case
from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome
from mha_parity.diagnose.evidence import Observation
from mha_parity.diagnose.small_errors import small_errors
from mha_parity.worker.open_target import bind_in_process
from subject_checks import checks_of, load_subject

judged = checks_of("small_addends.py", cases=60, diagnose=True, max_failures=24)
LEFT_OUT = checks_of("left_out_by_score.py", cases=60, diagnose=True, max_failures=24)
WRONG = {
    "in_each_row-float64": "1e-12 is added to the denominator, after the row maximum is subtracted",
    "less_the_largest_of_all-float32": "1e-09 is added to the denominator, and the largest score "
    "of all rows is subtracted, not that of each row",
    "in_the_root-float64": "the effective scale is 1/(sqrt(D) + 1e-12), expected 1/sqrt(D)",
    "in_the_square-float64": "1e-12 is added to D, by whose root",
    "at_least_after_all-float64": "the largest score of all rows is subtracted, not that of each "
    "row, and the denominator is at least 0.01",
    "at_least-float64": "the denominator is at least 40, and nothing is subtracted",
    "constant-float64": "the denominator is 1000, and nothing is subtracted",
    "by_rows-float64": "rows of weights sum to 1 + 1e-09 … 1 + ",
}
BY_SCORE = {
    "below_the_row": "keys whose score is more than 5 below the largest of the row get no weight",
    "below_the_running": "keys whose score is more than 5 below the largest so far, by tiles of 16 "
    "get no weight",
    "below_what_came": "keys whose score is more than 5 below the largest so far get no weight",
}


@pytest.mark.whole
@pytest.mark.parametrize(("target", "said"), WRONG.items(), ids=WRONG)
def test_what_is_added_is_measured(target: str, said: str) -> None:
    """Kills an approximated exp, and the one element where the error passed rounding first."""
    name, dtype = target.split("-")
    verdict = judged(name, dtypes=(dtype,))
    assert Outcome.FAIL == verdict.outcome, verdict
    titles = [each.title for each in verdict.diagnosis]
    assert any(said in title for title in titles), titles
    assert not any("exp(score)" in title or "column" in title for title in titles), titles


@pytest.mark.parametrize("name", ["at_most", "at_least_as_keys"])
def test_another_least_sum_is_not_said_to_be_a_constant(name: str) -> None:
    """Kills "at least" where rows of weights sum to more than 1, and the keys as a constant."""
    verdict = judged(name, dtypes=("float64",))
    assert Outcome.FAIL == verdict.outcome, verdict
    assert verdict.diagnosis
    assert not any("the denominator is" in each.title for each in verdict.diagnosis)


def test_errors_near_rounding_have_no_place() -> None:
    """Kills a head, row and column of the few elements that are off by a little more."""
    verdict = judged("near_rounding", dtypes=("float64",))
    assert Outcome.FAIL == verdict.outcome, verdict
    said = " ".join(f"{each.title} {each.evidence}" for each in verdict.diagnosis)
    assert "column" not in said, said
    assert "sqrt(D)" not in said, said
    assert "loops" not in " ".join(each.remedy for each in verdict.diagnosis)


@pytest.mark.parametrize(("name", "said"), BY_SCORE.items(), ids=BY_SCORE)
def test_keys_that_are_left_out_by_their_score_are_said(name: str, said: str) -> None:
    """By the largest of the row, or of the keys so far: positions decide neither."""
    verdict = LEFT_OUT(name, dtypes=("float64",))
    assert Outcome.FAIL == verdict.outcome, verdict
    (found,) = [each for each in verdict.diagnosis if said in each.title]
    assert "softmax over all keys" in found.remedy


# What is said of failing answers alone, by subject and dtype; "" where nothing is.
ALONE = {
    "small_addends.py:in_each_row-float64": "1e-12 is added to the denominator",
    "small_addends.py:in_the_square-float64": "1e-12 is added to D, by whose root",
    "small_addends.py:near_rounding-float64": "the errors are small",
    "small_addends.py:by_rows-float64": "",
    "left_out_by_score.py:doubled-float16": "",
    "log_sum_exps.py:natural-float64": "",
}


@pytest.mark.parametrize(("target", "said"), ALONE.items(), ids=ALONE)
def test_answers_alone_say_what_they_show(target: str, said: str) -> None:
    """Kills a law for errors that have none, and small errors where outputs are right or wrong.

    Those of `by_rows` are as large as the experiments need, and in 16 bits rounding is a gross
    error.
    """
    name, dtype = target.split("-")
    candidate = bind_in_process(load_subject(name), Options(cases=18))
    cases = [
        Case(seed=i, form="qkv", projection="none", inputs="cross", batch=2, queries=6, keys=7 + i,
             heads_count=2, head_dim=2 + i, dtype=dtype)
        for i in range(6)
    ]  # fmt: skip
    problems = [make_problem(each) for each in cases]
    seen = [Observation(each, candidate(each), failing=True) for each in problems]
    found = small_errors(seen)
    assert bool(said) == bool(found), found
    assert all(said in each.title for each in found), found
