"""Notes of a verdict: the factor by which answers are less accurate is said where it is one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mha_parity.core.case import Case
from mha_parity.core.check_result import CheckResult, Severity
from mha_parity.core.features import EXTREME_VALUES, make_offer
from mha_parity.oracle import reference
from mha_parity.run import summary, verdict_limits
from mha_parity.run.case_run import CaseResult
from subject_checks import check_subject

CASE = Case(seed=1, batch=1, queries=2, keys=2, heads_count=1, head_dim=2)


@pytest.mark.parametrize(
    ("times_torch", "said"),
    [(3.25, " by a factor of up to 3.2 in"), (1.04, " in"), (0.1, " in"), (None, " in")],
    ids=str,
)
def test_a_factor_that_is_none_is_not_said(times_torch: float | None, said: str) -> None:
    """Where torch's own error is as large in that case, a factor of 0.1 would say the opposite."""
    found = CheckResult(
        case=CASE, check="output", severity=Severity.LESS_ACCURATE, times_torch=times_torch
    )
    notes = summary.verdict_notes([CaseResult(case=CASE, check_results=(found,))])
    assert (f"less accurate than torch{said} 1 check, within the rounding bound",) == notes


def test_a_case_in_which_torchs_error_is_0_gives_no_factor() -> None:
    """The factor is that of the other cases. Kills "by a factor of up to inf"."""
    found = tuple(
        CheckResult(case=CASE, check="output", severity=Severity.LESS_ACCURATE, times_torch=times)
        for times in (2.0, float("inf"))
    )
    (note,) = summary.verdict_notes([CaseResult(case=CASE, check_results=found)])
    assert (
        "less accurate than torch by a factor of up to 2.0 in 2 checks, of which torch's error is "
        "0 in some, within the rounding bound"
    ) == note


def test_extreme_values_that_no_case_has_leave_nothing_open() -> None:
    """A run without such a case says so of both; with a value of any other axis it is open."""
    asked = make_offer(regime=("normal", *EXTREME_VALUES))
    rows = {(row.axis, row.value): row for row in summary.feature_rows([], asked, asked, {})}

    for value in EXTREME_VALUES:
        row = rows["regime", value]
        assert ("not drawn", summary.NOT_DRAWN) == (row.status, row.reason)
    assert "inconclusive" == rows["regime", "normal"].status


def test_a_machine_without_a_wider_dtype_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its float64 is held against torch's alone: a reader of the verdict has to know."""
    monkeypatch.setattr(reference, "EXTENDED", np.float64)
    for dtype, said in (("float64", True), ("float32", False)):
        notes = check_subject("context_widths.py:Own", cases=4, dtypes=(dtype,)).notes
        assert said == any("long double has the digits of float64" in note for note in notes)


def test_a_few_failures_of_one_dtype_are_no_fact_on_it() -> None:
    """One of three dtypes has all of two failures in a third of all runs."""
    failing = CheckResult(case=CASE, check="output", severity=Severity.WRONG)
    held = CheckResult(case=CASE, check="output", severity=Severity.MATCH)
    for count, said in ((2, False), (9, True)):
        results = [CaseResult(case=CASE, check_results=(failing,))] * count
        other = CASE.replace(dtype="float32")
        results += [CaseResult(case=other, check_results=(replace(held, case=other),))] * 20
        assert said == bool(verdict_limits.fails_in_one_dtype(results))


def test_the_caller_s_settings_of_numpy_are_not_the_harness_s() -> None:
    """Denormal numbers of the cases are no error where the caller has them raise."""
    with np.errstate(all="raise"):
        verdict = check_subject("projected.py:f", cases=40)
    assert not verdict.failures


@pytest.mark.parametrize(
    ("name", "said"),
    [("float32_inside.py:softmax_cast_back", True), ("further_arguments.py:OfMapUnscaled", False)],
)
def test_dtypes_that_hold_beside_one_that_fails_are_named(name: str, said: bool) -> None:
    """A softmax in float32 fails in float64 alone; a wrong scale fails in both."""
    dtypes = ("float64", "float32")
    notes = check_subject(name, cases=40, dtypes=dtypes).notes
    note = "fails in float64 alone; float32 holds, which --dtypes float32 judges alone."
    assert said == (note in notes), notes
