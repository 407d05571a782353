"""Find the features that failing cases have and others lack: one group of features for each bug.

Each question is a one-sided hypergeometric test: in how many of a thousand draws would as many of
the failing cases have certain values of one axis, if failures fell on cases by chance? The values
are chosen after the failures are known, so the probability is multiplied by the number of choices:
of the axis, and of as many of its values. It has to stay below ``LEVEL``.

The values that are least probable by chance explain a group of failures. Every other axis is then
tested among the cases with these values alone: what failures have in common only because the cases
of the explaining feature have it is explained by that feature.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mha_parity.core.features import PLAIN
from mha_parity.core.verdict import FailureGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mha_parity.core.verdict import FeatureSet
    from mha_parity.run.case_run import CaseResult

LEVEL = 1e-3  # probability below which an accumulation of failures is no accident
MOST = 3  # independent bugs that features are to separate
NEGLIGIBLE = 1e-12  # of the largest term of a sum


def failure_groups(case_results: Iterable[CaseResult]) -> tuple[FailureGroup, ...]:
    """Return the groups that hold all failures, one for each bug that features separate.

    A single group without common features where they explain none, or leave a failure over.
    """
    case_results = list(case_results)
    if not any(each.fails for each in case_results):
        return ()
    cases = _Cases.of(case_results)
    found = _explaining(cases, cases.judged)
    if not found:
        return (FailureGroup(absent=_features(_absent(cases, cases.judged, {}))),)
    return tuple(
        _group(cases, first, cases.judged & ~_union(each for each in found if each is not first))
        for first in found
    )


@dataclass(frozen=True)
class _Cases:
    """Cases as bits of integers: those that could have shown a bug, that fail, that have a value.

    Long runs have a million cases, and 20 axes of up to 16 values.
    """

    judged: int
    failed: int
    axes: dict[str, dict[str, int]]

    @classmethod
    def of(cls, case_results: list[CaseResult]) -> _Cases:
        """Return the cases; of those that pass, the ones in which a bug could have shown."""
        size = len(case_results) // 8 + 1
        judged, failed = bytearray(size), bytearray(size)
        axes: dict[str, dict[str, bytearray]] = defaultdict(
            lambda: defaultdict(lambda: bytearray(size))
        )
        for place, each in enumerate(case_results):
            byte, bit = place >> 3, 1 << (place & 7)
            if not each.fails and (each.inconclusive or each.exposes == frozenset()):
                continue
            judged[byte] |= bit
            failed[byte] |= bit * each.fails
            for axis, value in each.case.features().items():
                axes[axis][value][byte] |= bit
        return cls(
            _number(judged),
            _number(failed),
            {
                axis: {value: _number(bits) for value, bits in values.items()}
                for axis, values in axes.items()
                if len(values) > 1
            },
        )


@dataclass(frozen=True, eq=False)
class _Subset:
    """The cases with some values of one axis, and how probable their failures are by chance.

    ``is_few``: without the plain value, or at most half of the values.
    """

    axis: str
    values: tuple[str, ...]
    cases: int
    log_probability: float
    is_few: bool

    @property
    def is_significant(self) -> bool:
        """Whether chance hardly explains how many failures the cases have."""
        return self.log_probability < math.log(LEVEL)


def _explaining(
    cases: _Cases, among: int, known: frozenset[str] = frozenset()
) -> list[_Subset] | None:
    """Return sets of few values that together hold all failures; None where there are none.

    One set if it can; else the most telling one, and what explains the failures outside of it, on
    other axes than those known.
    """
    failed = cases.failed & among
    if not failed:
        return []
    subsets = [
        each
        for each in _subsets(cases, among)
        if each.axis not in known and each.is_few and each.is_significant
    ]
    subsets.sort(key=lambda each: each.log_probability)
    whole = [each for each in subsets if not failed & ~each.cases]
    if whole:
        return whole[:1]
    if len(known) + 1 == MOST:
        return None
    best = {each.axis: each for each in reversed(subsets)}  # the most telling of each axis
    for first in sorted(best.values(), key=lambda each: each.log_probability):
        rest = _explaining(cases, among & ~first.cases, known | {first.axis})
        if rest is not None:
            return [first, *rest]
    return None


def _group(cases: _Cases, first: _Subset, among: int) -> FailureGroup:
    """Return the group of a set: with further sets that narrow it, and those explained by these."""
    common = {first.axis: first}
    inside = among & first.cases
    while narrower := [each for each in _holding(cases, inside, common) if each.is_few]:
        best = min(narrower, key=lambda each: each.log_probability)
        common[best.axis] = best
        inside &= best.cases
    explained = [each for each in _holding(cases, among, common) if each.is_few]
    return FailureGroup(
        common=_features(common.values()),
        explained=_features(explained),
        absent=_features(_absent(cases, inside, common)),
    )


def _holding(cases: _Cases, among: int, known: Iterable[str]) -> Iterator[_Subset]:
    """Yield, for axes not known, the values that all failures have, where that is no accident."""
    failed = cases.failed & among
    for each in _subsets(cases, among):
        if each.axis not in known and each.is_significant and not failed & ~each.cases:
            yield each


def _absent(cases: _Cases, among: int, known: Iterable[str]) -> Iterator[_Subset]:
    """Yield the values that no failure has, on axes of which most values fail."""
    for each in _holding(cases, among, known):
        if not each.is_few:
            values = cases.axes[each.axis]
            absent = tuple(v for v in values if v not in each.values and values[v] & among)
            yield _Subset(each.axis, absent, among & ~each.cases, each.log_probability, is_few=True)


def _subsets(cases: _Cases, among: int) -> Iterator[_Subset]:
    """Yield, for every axis, the values that fail most often: one, two, up to all that fail."""
    failed = cases.failed & among
    total = among.bit_count()
    present = {
        axis: {value: bits & among for value, bits in values.items() if bits & among}
        for axis, values in cases.axes.items()
    }
    varied = {axis: values for axis, values in present.items() if len(values) > 1}
    for axis, values in varied.items():
        share = {v: (bits & failed).bit_count() / bits.bit_count() for v, bits in values.items()}
        ordered = sorted(values, key=lambda value: -share[value])
        holding = sum(share[value] > 0 for value in values)
        inside = 0
        for count, value in enumerate(ordered[: min(holding, len(ordered) - 1)], start=1):
            inside |= values[value]
            log_probability = _log_tail(
                (inside & failed).bit_count(), inside.bit_count(), failed.bit_count(), total
            )
            choices = len(varied) * math.comb(len(values), count)
            chosen = tuple(ordered[:count])
            is_few = PLAIN[axis] not in chosen or 2 * count <= len(values)
            yield _Subset(axis, chosen, inside, log_probability + math.log(choices), is_few)


def _log_tail(inside: int, size: int, failed: int, total: int) -> float:
    """Return the logarithm of the hypergeometric probability of ``inside`` failures or more.

    ``failed`` of ``total`` cases fail, and ``size`` cases are looked at.
    """
    if inside * total <= size * failed:
        return 0.0  # no more than on average: the exact probability says nothing
    first = (
        _log_choose(size, inside)
        + _log_choose(total - size, failed - inside)
        - _log_choose(total, failed)
    )
    term = terms = 1.0
    for more in range(inside, min(size, failed)):
        outside = total - size - failed + more + 1
        term *= (size - more) * (failed - more) / ((more + 1) * outside)
        terms += term
        if term < NEGLIGIBLE * terms:
            break
    return first + math.log(terms)


def _log_choose(total: int, chosen: int) -> float:
    log_factorial = math.lgamma
    return log_factorial(total + 1) - log_factorial(chosen + 1) - log_factorial(total - chosen + 1)


def _features(subsets: Iterable[_Subset]) -> tuple[FeatureSet, ...]:
    return tuple((each.axis, tuple(sorted(each.values))) for each in subsets)


def _union(subsets: Iterable[_Subset]) -> int:
    union = 0
    for each in subsets:
        union |= each.cases
    return union


def _number(bits: bytearray) -> int:
    return int.from_bytes(bits, "little")
