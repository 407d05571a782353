"""One bug turns few tests red: those of what differs between failing and passing cases."""

from __future__ import annotations

import pytest

from mha_parity.core.case import parse
from mha_parity.core.check_result import SYSTEMATIC, CheckResult, Severity
from mha_parity.core.verdict import Failure, FeatureRow, Outcome, Verdict
from mha_parity.report.by_feature import ALL_CASES, feature_outcomes

CASE = parse("qkv-N1-L2-S2-H2-D1-unbatched-float64-s0")


def row(axis: str, value: str, cases: int, failed: int) -> FeatureRow:
    """Return a feature that passes unless some of its cases fail."""
    return FeatureRow(axis, value, "fail" if failed else "pass", cases, failed=failed)


def verdict(*rows: FeatureRow, failed: int, check: str = "output") -> Verdict:
    """Return a verdict on 100 cases, of which some fail one check."""
    result = CheckResult(case=CASE, check=check, severity=Severity.WRONG)
    return Verdict(
        target="x:f", convention="qkv", outcome=Outcome.FAIL, run=100, passed=100 - failed,
        failed=failed, inconclusive=0, features=rows, checks=(),
        failures=(Failure(check_result=result, case=CASE, replay="mha-parity replay"),),
    )  # fmt: skip


HEADS = (row("heads", "one", 50, 0), row("heads", "many", 50, 40))
DTYPES = (row("dtype", "float64", 50, 20), row("dtype", "float32", 50, 20))


def test_only_what_differs_fails() -> None:
    """Forty failures that all have several heads: dtypes with failing cases are skipped."""
    found = feature_outcomes(verdict(*HEADS, *DTYPES, failed=40), ())
    expected = {
        ALL_CASES: "fail",
        "heads=one": "pass",
        "heads=many": "fail",
        "dtype=float64": "skip",
        "dtype=float32": "skip",
    }
    assert expected == {name: outcome.status for name, outcome in found.items()}
    assert "20 of 50 cases fail" in found["dtype=float64"].reason


def test_without_a_difference_all_cases_fail_alone() -> None:
    """Where failing cases have nothing in common, one test is red."""
    found = feature_outcomes(verdict(*DTYPES, failed=40), ())
    assert [ALL_CASES] == [name for name, outcome in found.items() if outcome.status == "fail"]


@pytest.mark.parametrize(
    ("expected", "status"),
    [(("heads=many",), "skip"), (("dtype=float64",), "fail"), (("heads=many", ALL_CASES), "fail")],
    ids=["all explained", "half explained", "expected itself"],
)
def test_expected_features_explain_their_cases(expected: tuple[str, ...], status: str) -> None:
    """``all-cases`` is skipped where the failing values of one axis are all expected."""
    found = feature_outcomes(verdict(*HEADS, *DTYPES, failed=40), expected)
    assert status == found[ALL_CASES].status
    assert {"fail"} == {found[name].status for name in expected}


def test_an_error_over_the_run_is_explained_by_no_feature() -> None:
    """A systematic error has no cases of its own: ``all-cases`` stays red."""
    found = feature_outcomes(verdict(*HEADS, failed=40, check=SYSTEMATIC), ("heads=many",))
    assert "fail" == found[ALL_CASES].status


def test_what_no_case_judged_fails() -> None:
    """An inconclusive feature is never passed."""
    open_row = FeatureRow("heads", "one", "inconclusive", 3, "no case could have shown a bug")
    found = feature_outcomes(verdict(open_row, failed=40), ())
    assert ("fail", "inconclusive: no case could have shown a bug") == found["heads=one"]
