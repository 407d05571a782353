"""The accuracy table as reports show it: bits, torch's own paths, and the features."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mha_parity.core.features import AXES, label
from mha_parity.core.verdict import PINNED_PATH, TARGET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.verdict import Accuracy, Verdict

ByDtype = dict[str, "Accuracy"]
ENOUGH = 5  # cases: a median of fewer says little of a feature


def accuracy_by_dtype(verdict: Verdict, contender: str, axis: str = "", value: str = "") -> ByDtype:
    """Return the rows of one contender over all cases, or over those of a feature, by dtype."""
    asked = (contender, axis, value)
    found = verdict.accuracy_table
    return {row.dtype: row for row in found if (row.contender, row.axis, row.value) == asked}


def accuracy_rows(verdict: Verdict) -> Iterator[dict[str, str]]:
    """Yield a row per dtype: errors in units of torch's own, and the bits that are right."""
    torchs = accuracy_by_dtype(verdict, PINNED_PATH)
    own = accuracy_by_dtype(verdict, TARGET)
    for each in verdict.accuracy:
        yield {
            "dtype": each.dtype,
            "median": f"{each.median_times_torch:.2f}",
            "worst": f"{each.worst_times_torch:.2f}",
            "bits right": _bits(own.get(each.dtype)),
            "torch's": _bits(torchs.get(each.dtype)),
            "cases": str(each.cases),
        }


def accuracy_sentence(verdict: Verdict) -> str:
    """Return the largest median and the worst error in units of torch's own, with their dtypes."""
    median = max(verdict.accuracy, key=lambda each: each.median_times_torch)
    worst = max(verdict.accuracy, key=lambda each: each.worst_times_torch)
    if median.dtype == worst.dtype:
        return (
            f"error {median.median_times_torch:.2f} times torch's in the median, "
            f"{_at_worst(worst)} ({median.dtype})"
        )
    return (
        f"error at most {median.median_times_torch:.2f} times torch's in the median "
        f"({median.dtype}), {_at_worst(worst)} ({worst.dtype})"
    )


def _at_worst(worst: Accuracy) -> str:
    """Return the worst error in units of torch's own, which may be 0 in a case."""
    if math.isinf(worst.worst_times_torch):
        return "and above 0 in a case in which torch's is 0"
    return f"{worst.worst_times_torch:.2f} times at worst"


def _bits(row: Accuracy | None) -> str:
    return f"{row.bits_right:.1f}" if row is not None else ""


def paths(verdict: Verdict) -> list[tuple[str, ByDtype]]:
    """Return the rows of torch's other paths, where they were taken, by path."""
    named = dict.fromkeys(row.contender for row in verdict.accuracy_table)
    return [
        (path, accuracy_by_dtype(verdict, path))
        for path in named
        if path not in {TARGET, PINNED_PATH}
    ]


def rows_by_feature(verdict: Verdict) -> list[tuple[str, ByDtype]]:
    """Return the target's rows by feature, in the features' order and words."""
    named = [(axis, value) for axis, values in AXES.items() for value in values]
    found = ((label(*each), accuracy_by_dtype(verdict, TARGET, *each)) for each in named)
    return [(words, by_dtype) for words, by_dtype in found if by_dtype]


def furthest(verdict: Verdict) -> str:
    """Return in a sentence the feature with which the target's median error is largest."""
    found = [
        (row.median_times_torch, words, row)
        for words, by_dtype in rows_by_feature(verdict)
        for row in by_dtype.values()
        if row.cases >= ENOUGH
    ]
    if not found:
        return ""
    times, words, row = max(found, key=lambda each: each[0])
    said = f"{times:.2f} times torch's error in the median of {row.cases} cases"
    return f"{words} in {row.dtype}: {said}"
