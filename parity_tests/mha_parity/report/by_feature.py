"""The verdict as one test for all cases and one for each feature that differs from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mha_parity.core.check_result import SYSTEMATIC
from mha_parity.report import correlations
from mha_parity.report.brief import first_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from mha_parity.core.verdict import FailureGroup, FeatureRow, FeatureSet, Verdict

ALL_CASES = "all-cases"  # the test of the verdict itself


class FeatureOutcome(NamedTuple):
    """Outcome that a test reports: "pass", "fail" or "skip", and the reason."""

    status: str
    reason: str = ""


def feature_outcomes(verdict: Verdict, expected: Collection[str]) -> dict[str, FeatureOutcome]:
    """Return the outcome of ``all-cases`` and of each offered feature, ``axis=value``.

    A feature fails if it explains failures, if no case judged it, or if it is ``expected`` to fail
    and does. Any other feature with failing cases is skipped: ``all-cases`` fails for these. That
    is skipped where an expected feature explains each failure, and so is what else these failures
    have in common.
    """
    found = {ALL_CASES: _all_cases(verdict, expected)}
    found.update(_features(verdict, expected))
    return found


def _all_cases(verdict: Verdict, expected: Collection[str]) -> FeatureOutcome:
    if verdict.holds:
        return FeatureOutcome("pass")
    run_check_results = any(each.check_result.check == SYSTEMATIC for each in verdict.failures)
    if ALL_CASES in expected or run_check_results:
        return FeatureOutcome("fail", first_line(verdict))
    by_group = [_expected_names(group.common, expected) for group in verdict.failure_groups]
    by_axis = ((axis.name, tuple(row.value for row in axis.failing)) for axis in _failing(verdict))
    names = (
        " or ".join(by_group) if by_group and all(by_group) else _expected_names(by_axis, expected)
    )
    if names:
        return FeatureOutcome("skip", f"every failing case has {names}")
    return FeatureOutcome("fail", first_line(verdict))


def _failing(verdict: Verdict) -> Iterator[correlations.Axis]:
    return (axis for axis in correlations.axes(verdict) if axis.failing)


def _expected_names(sets: Iterable[FeatureSet], expected: Collection[str]) -> str:
    """Return the features of the first axis whose values are all expected; "" without one."""
    for axis, values in sets:
        names = sorted(f"{axis}={value}" for value in values)
        if set(names) <= set(expected):
            return " or ".join(names)
    return ""


def _features(verdict: Verdict, expected: Collection[str]) -> Iterator[tuple[str, FeatureOutcome]]:
    explaining = correlations.explaining(verdict)
    for axis in correlations.axes(verdict):
        for row in axis.rows:
            if row.status == "not drawn":
                yield _name(row), FeatureOutcome("skip", f"not drawn: {row.reason}")
        for row in axis.offered:
            yield _name(row), _feature(row, explaining.get(_name(row)), expected)


def _feature(
    row: FeatureRow, group: FailureGroup | None, expected: Collection[str]
) -> FeatureOutcome:
    """Return the outcome of a feature, which explains the failures of a group, or none."""
    counts = f"{row.failed} of {row.cases} cases fail"
    if row.status == "pass":
        return FeatureOutcome("pass")
    if row.status != "fail":
        return FeatureOutcome("fail", f"{row.status}: {row.reason}")
    known = _expected_names(group.common, expected) if group else ""
    if _name(row) in expected or (group and not known):
        return FeatureOutcome("fail", counts)
    if known:
        return FeatureOutcome("skip", f"{counts}; explained with {known}, which may fail")
    return FeatureOutcome("skip", f"{counts}; {ALL_CASES} says why")


def _name(row: FeatureRow) -> str:
    return f"{row.axis}={row.value}"
