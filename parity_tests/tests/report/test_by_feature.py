"""One bug turns few tests red: those of what differs between failing and passing cases."""

from __future__ import annotations

import pytest

from mha_parity.core.case import parse
from mha_parity.core.check_result import SYSTEMATIC, CheckResult, Severity
from mha_parity.core.verdict import Failure, FailureGroup, FeatureRow, Outcome, Verdict
from mha_parity.report.by_feature import ALL_CASES, feature_outcomes

CASE = parse("qkv-N1-L2-S2-H2-D1-unbatched-float64-s0")


def row(axis: str, value: str, cases: int, failed: int) -> FeatureRow:
    """Return a feature that passes unless some of its cases fail."""
    return FeatureRow(axis, value, "fail" if failed else "pass", cases, failed=failed)


def verdict(
    *rows: FeatureRow, failed: int, check: str = "output", groups: tuple[FailureGroup, ...] = ()
) -> Verdict:
    """Return a verdict on 100 cases, of which some fail one check."""
    result = CheckResult(case=CASE, check=check, severity=Severity.WRONG)
    return Verdict(
        target="x:f", convention="qkv", outcome=Outcome.FAIL, run=100, passed=100 - failed,
        failed=failed, inconclusive=0, features=rows, checks=(), failure_groups=groups,
        failures=(Failure(check_result=result, case=CASE, replay="mha-parity replay"),),
    )  # fmt: skip


HEADS = (row("heads", "one", 50, 0), row("heads", "many", 50, 40))
SEVERAL = (FailureGroup(common=(("heads", ("many",)),)),)
DTYPES = (row("dtype", "float64", 50, 20), row("dtype", "float32", 50, 20))


def test_only_what_differs_fails() -> None:
    """Forty failures that all have several heads: dtypes with failing cases are skipped."""
    found = feature_outcomes(verdict(*HEADS, *DTYPES, failed=40, groups=SEVERAL), ())
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
    found = feature_outcomes(verdict(*HEADS, *DTYPES, failed=40, groups=SEVERAL), expected)
    assert status == found[ALL_CASES].status
    assert {"fail"} == {found[name].status for name in expected}


PADDED = (row("padding", "none", 50, 5), row("padding", "bool", 50, 35))
CAUSAL = (row("attn", "none", 60, 5), row("attn", "causal", 40, 35))
HALF = (row("dtype", "float64", 50, 20), row("dtype", "float16", 50, 30))
INTERACTION = FailureGroup(
    common=(("attn", ("causal",)), ("padding", ("bool",)), ("heads", ("many",))),
    explained=(("dtype", ("float64",)),),
)
FLOAT16 = FailureGroup(common=(("dtype", ("float16",)),))


def red(*expected: str, groups: tuple[FailureGroup, ...] = (INTERACTION,)) -> list[str]:
    """Return the tests that fail, where failing cases make up these groups."""
    subject = verdict(*PADDED, *CAUSAL, *HEADS, *HALF, failed=40, groups=groups)
    found = feature_outcomes(subject, expected)
    return [name for name, outcome in found.items() if outcome.status == "fail"]


def test_an_interaction_is_red_in_each_of_its_features() -> None:
    """A plain value (several heads) narrows it down and is not red, nor is what it explains."""
    assert [ALL_CASES, "padding=bool", "attn=causal"] == red()


def test_one_expected_feature_covers_its_interaction() -> None:
    """With causal expected, padding is not red; both may be expected as well."""
    assert ["attn=causal"] == red("attn=causal")
    assert ["padding=bool"] == red("padding=bool")
    assert ["padding=bool", "attn=causal"] == red("padding=bool", "attn=causal")


def test_each_of_two_bugs_is_expected_by_itself() -> None:
    """One expected bug leaves the other red; with both, nothing but them fails."""
    two = (INTERACTION, FLOAT16)
    assert [ALL_CASES, "dtype=float16", "padding=bool", "attn=causal"] == red(groups=two)
    assert [ALL_CASES, "dtype=float16", "attn=causal"] == red("attn=causal", groups=two)
    assert ["dtype=float16", "attn=causal"] == red("attn=causal", "dtype=float16", groups=two)


def test_an_error_over_the_run_is_explained_by_no_feature() -> None:
    """A systematic error has no cases of its own: ``all-cases`` stays red."""
    found = feature_outcomes(
        verdict(*HEADS, failed=40, check=SYSTEMATIC, groups=SEVERAL), ("heads=many",)
    )
    assert "fail" == found[ALL_CASES].status


def test_what_no_case_judged_fails() -> None:
    """An inconclusive feature is never passed."""
    open_row = FeatureRow("heads", "one", "inconclusive", 3, "no case could have shown a bug")
    found = feature_outcomes(verdict(open_row, failed=40), ())
    assert ("fail", "inconclusive: no case could have shown a bug") == found["heads=one"]
