"""Cases as a run keeps them: arrays of some failures alone, so that a million fit in 1 GiB."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from mha_parity.core.check_result import Severity
from mha_parity.run.case_run import ALL_OF
from mha_parity.run.chunks import KEPT_FAILURES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mha_parity.core.check_result import CheckResult
    from mha_parity.run.case_run import CaseResult

Value = TypeVar("Value")


class RetainedResults:
    """The results of the cases of a run so far.

    Behind the first 2000 cases a check that found nothing to say is kept as its name alone
    (``CaseResult.held``), unless its error is the largest yet, in units of what is allowed.
    ``drawn``: a page draws the error of each case, so that all are kept.
    """

    def __init__(self, *, drawn: bool) -> None:
        self.case_results: list[CaseResult] = []
        self._drawn = drawn
        self._with_arrays = {True: 0, False: 0}  # failures that float32 explains, and others
        self._worst = 0.0
        self._shared: dict[Any, Any] = {}

    def add(self, case_results: Iterable[CaseResult]) -> None:
        """Keep the results of a chunk; with their arrays where fewer than 40 failures have theirs.

        Failures that float32 in place of float64 explains, and others, are counted each. A
        chunk is decided as a whole, so that workers and this process keep the same.
        """
        some = {kind: count < KEPT_FAILURES for kind, count in self._with_arrays.items()}
        for found in case_results:
            explained = found.right_by_float32
            case_result = found if some[explained] else found.without_arrays()
            self._with_arrays[explained] += case_result.problem is not None
            self.case_results.append(self._sharing(self._briefer(case_result)))

    def _briefer(self, case_result: CaseResult) -> CaseResult:
        """Return the result without what no report reads of a check that found nothing."""
        check_results = case_result.check_results
        kept = [self._is_worst(each) or not _is_plain(each) for each in check_results]
        if self._drawn or len(self.case_results) < ALL_OF or all(kept):
            return case_result
        pairs = list(zip(check_results, kept, strict=True))
        names = (each.check for each, keep in pairs if not keep)
        return replace(
            case_result,
            check_results=tuple(each for each, keep in pairs if keep),
            held=(*names, *case_result.held),
        )

    def _is_worst(self, found: CheckResult) -> bool:
        """Return whether the error is the largest yet, in units of what is allowed."""
        if found.where is None or found.allowed <= 0:
            return False
        units = found.error / found.allowed
        is_worst = units > self._worst
        self._worst = max(units, self._worst)
        return is_worst

    def _sharing(self, case_result: CaseResult) -> CaseResult:
        """Return the result with what it has in common with others as one object in all of them.

        What comes from another process has its own copy of each.
        """

        def shared(value: Value) -> Value:
            found: Value = self._shared.setdefault(value, value)
            return found

        # A key of their own kind: no parameters are not the empty tuple that another field is.
        key = ("parameters", *case_result.parameters.items())
        return replace(
            case_result,
            check_results=tuple(
                replace(each, where=shared(each.where)) for each in case_result.check_results
            ),
            exposes=shared(case_result.exposes),
            parameters=self._shared.setdefault(key, case_result.parameters),
            answer_dtype=shared(case_result.answer_dtype),
            held=shared(case_result.held),
        )


def _is_plain(found: CheckResult) -> bool:
    """Return whether a verdict says nothing of the result but that its check was asked."""
    said = found.detail or found.times_torch is not None or found.improbable
    return found.severity is Severity.MATCH and not said
