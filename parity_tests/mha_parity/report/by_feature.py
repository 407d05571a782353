"""The verdict as one test for all cases and one for each feature that differs from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mha_parity.core.check_result import SYSTEMATIC
from mha_parity.report import correlations
from mha_parity.report.brief import first_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mha_parity.core.verdict import FeatureRow, Verdict

ALL_CASES = "all-cases"  # the test of the verdict itself


class FeatureOutcome(NamedTuple):
    """What a test is to report: "pass", "fail" or "skip", and why."""

    status: str
    reason: str = ""


def feature_outcomes(verdict: Verdict, expected: Collection[str]) -> dict[str, FeatureOutcome]:
    """Return the outcome of ``all-cases`` and of each offered feature, ``axis=value``.

    A feature fails if failing cases concentrate on it, if no case judged it, or if it is
    ``expected`` to fail and does. A feature with failing cases is skipped where cases without it
    fail as well: ``all-cases`` fails for these. That passes where every failing case has an
    expected feature: where the failing values of one axis are all expected.
    """
    found = {ALL_CASES: _all_cases(verdict, expected)}
    found.update(_features(verdict, expected))
    return found


def _all_cases(verdict: Verdict, expected: Collection[str]) -> FeatureOutcome:
    if verdict.holds:
        return FeatureOutcome("pass")
    run_check_results = any(each.check_result.check == SYSTEMATIC for each in verdict.failures)
    for axis in correlations.axes(verdict):
        names = {_name(row) for row in axis.failing}
        if names and names <= set(expected) and ALL_CASES not in expected and not run_check_results:
            return FeatureOutcome("skip", f"every failing case has {' or '.join(sorted(names))}")
    return FeatureOutcome("fail", first_line(verdict))


def _features(verdict: Verdict, expected: Collection[str]) -> Iterator[tuple[str, FeatureOutcome]]:
    for axis in correlations.axes(verdict):
        for row in axis.rows:
            if row.status == "not drawn":
                yield _name(row), FeatureOutcome("skip", f"not drawn: {row.note}")
        for row in axis.offered:
            yield _name(row), _feature(row, concentrated=axis.concentrated, expected=expected)


def _feature(row: FeatureRow, *, concentrated: bool, expected: Collection[str]) -> FeatureOutcome:
    counts = f"{row.failed} of {row.cases} cases fail"
    if row.status == "pass":
        return FeatureOutcome("pass")
    if row.status != "fail":
        return FeatureOutcome("fail", f"{row.status}: {row.note}")
    if concentrated or _name(row) in expected:
        return FeatureOutcome("fail", counts)
    return FeatureOutcome("skip", f"{counts}; {ALL_CASES} says why")


def _name(row: FeatureRow) -> str:
    return f"{row.axis}={row.value}"
