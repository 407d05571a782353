"""The rows of a verdict about errors: by case, by dtype, by contender and feature."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from mha_parity.core.features import AXES
from mha_parity.core.report_arrays import CaseError
from mha_parity.core.verdict import PINNED_PATH, TARGET
from mha_parity.judging import accuracy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mha_parity.core.verdict import Accuracy
    from mha_parity.judging.accuracy import MeasuredError
    from mha_parity.run.case_run import CaseResult


def case_errors(case_results: Sequence[CaseResult]) -> tuple[CaseError, ...]:
    """Return the error of each output that was compared with the reference."""
    return tuple(
        CaseError(
            dtype=case_result.case.dtype,
            keys=case_result.case.keys,
            units=check_result.error / check_result.allowed,
            times_torch=math.nan if check_result.times_torch is None else check_result.times_torch,
            fails=check_result.severity.fails,
            bound=math.nan
            if check_result.bound is None
            else check_result.bound / check_result.allowed,
        )
        for case_result in case_results
        for check_result in case_result.check_results
        if check_result.check == "output" and check_result.allowed > 0
    )


def accuracies(case_results: Sequence[CaseResult]) -> tuple[Accuracy, ...]:
    """Return the candidate's output errors in units of torch's own, a row per dtype.

    The median is over cases drawn beforehand; the worst counts what was looked at since it was bad.
    """
    worst: dict[str, float] = {}
    for case_result in case_results:
        for check_result in case_result.check_results:
            if check_result.check == "output" and check_result.times_torch is not None:
                times = check_result.times_torch
                worst[case_result.case.dtype] = max(worst.get(case_result.case.dtype, 0.0), times)
    found = _measurements(case_results, ("", ""))
    rows = (
        accuracy.accuracy_row(dtype, found[TARGET, dtype], worst=worst.get(dtype, 0.0))
        for dtype in AXES["dtype"]
    )
    return tuple(row for row in rows if row is not None)


def accuracy_table(case_results: Sequence[CaseResult]) -> tuple[Accuracy, ...]:
    """Return a row for each contender and dtype, and for target and torch with each feature.

    Of features only those that vary among the cases; torch's other paths have too few cases there.
    """
    pair = (TARGET, PINNED_PATH)
    measured = [case_result for case_result in case_results if case_result.measured]
    rows = [*_rows(measured, ("", ""), (*pair, *accuracy.TORCH_PATHS))]
    for feature in _varying(measured):
        rows += _rows(measured, feature, pair)
    return tuple(rows)


def _rows(
    case_results: Sequence[CaseResult], feature: tuple[str, str], contenders: Iterable[str]
) -> Iterator[Accuracy]:
    found = _measurements(case_results, feature)
    for dtype in AXES["dtype"]:
        for name in contenders:
            row = accuracy.accuracy_row(dtype, found[name, dtype], contender=name, feature=feature)
            if row is not None:
                yield row


def _varying(case_results: Iterable[CaseResult]) -> list[tuple[str, str]]:
    """Return the features of axes on which the measured cases differ."""
    seen = {item for case_result in case_results for item in case_result.case.features().items()}
    values = {axis: [v for v in AXES[axis] if (axis, v) in seen] for axis in AXES}
    return [
        (axis, value)
        for axis, found in values.items()
        for value in found
        if axis != "dtype" and len(found) > 1
    ]


def _measurements(
    case_results: Iterable[CaseResult], feature: tuple[str, str]
) -> dict[tuple[str, str], list[MeasuredError]]:
    """Return what was measured of each contender and dtype, on the cases with a feature."""
    axis, value = feature
    found: dict[tuple[str, str], list[MeasuredError]] = defaultdict(list)
    for case_result in case_results:
        if not axis or getattr(case_result.case, axis) == value:
            for each in case_result.measured:
                found[each.contender, case_result.case.dtype].append(each)
    return found
