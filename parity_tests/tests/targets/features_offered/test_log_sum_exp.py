"""The log-sum-exp that a kernel returns beside its output is found, judged and diagnosed."""

from __future__ import annotations

import pytest

from mha_parity.core.check_result import LOG_SUM_EXP
from mha_parity.core.verdict import Outcome
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from subject_checks import SUBJECTS, check_subject, checks_of

FILE = "log_sum_exps.py"
judged = checks_of(FILE, cases=48)
WRONG = {
    "to_base_two": "to base 2, where the natural one is expected",
    "two_bases": "the maximum to base 2 and the natural logarithm of the sum",
    "maximum_lost": "the logarithm of the sum, without the maximum that was subtracted",
    "mask_lost": "that of the scores without the mask",
    "largest_tile": "the largest of those of its tiles of 16 keys",
    "maximum_unscaled": "the maximum before it is scaled and the logarithm of the sum",
    "negative": "its negative",
    "strange": "none of what was tried",
}


@pytest.mark.parametrize(
    ("name", "axes"),
    {
        "natural": "NHL", "heads_last": "NLH1", "in_float32": "NHL", "documented_base": "NHL",
        "one_head": "NHL", "by_a_switch": "NHL",
    }.items(),
)  # fmt: skip
def test_right_ones_pass_and_are_judged(name: str, axes: str) -> None:
    """By trial, whatever it is called; to base 2 where the documentation says so."""
    found = bind(load.load(f"{SUBJECTS}/{FILE}:{name}")).log_sum_exp
    assert found is not None
    assert (1, axes) == (found.place, found.axes)
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict
    assert LOG_SUM_EXP in {row.name for row in verdict.checks}, verdict.checks
    assert any("the log-sum-exp that is returned" in note for note in verdict.notes)


@pytest.mark.parametrize(("name", "said"), WRONG.items(), ids=WRONG)
def test_wrong_ones_fail_by_it_alone(name: str, said: str) -> None:
    """Their outputs are right, so that these passed; what is returned in its place is said."""
    verdict = judged(name, diagnose=True, max_failures=12)
    assert Outcome.FAIL == verdict.outcome, verdict
    assert {LOG_SUM_EXP} == {failure.check_result.check for failure in verdict.failures}
    (found,) = verdict.diagnosis
    assert f"the log-sum-exp that comes with the output is {said}" in found.title


def test_a_switch_that_returns_it_is_passed() -> None:
    """In half of the cases: the call is judged without it too, and the parameter was tried."""
    verdict = judged("by_a_switch")
    assert "not tried" not in verdict.sentence
    rows = {row.name: row.cases for row in verdict.checks}
    assert 0 < rows[LOG_SUM_EXP] < rows["output"]
    assert Outcome.FAIL == judged("by_a_switch_to_base_two").outcome


def test_one_number_a_row_of_another_name_is_not_judged() -> None:
    """Neither equal to it nor called so: the report says that it is not judged."""
    verdict = judged("not_of_rows")
    assert Outcome.PASS == verdict.outcome, verdict
    (row,) = [r for r in verdict.features if (r.axis, r.value) == ("weights", "per_head")]
    assert row.reason.endswith("as a log-sum-exp, and is not judged")


def test_what_was_found_is_known_in_a_process_of_its_own() -> None:
    """A process that is started anew makes no trials: where it stands is settled."""
    target = f"{FILE}:to_base_two"
    bound, other = (bind(load.load(f"{SUBJECTS / target}"), probe=each) for each in (True, False))
    assert other.log_sum_exp is None
    other.settle(bound.settled())
    assert bound.log_sum_exp == other.log_sum_exp is not None


def test_float16_is_held_to_sums_in_16_bits() -> None:
    """A kernel that sums in the dtype of its inputs is right."""
    verdict = check_subject(f"{FILE}:natural", cases=120, dtypes=("float16", "bfloat16"))
    assert 0 == verdict.failed, verdict
    assert verdict.passed > 100, verdict
