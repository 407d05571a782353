"""From the trials of a run to its verdict: counts, features, checks, accuracy."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from mha_parity import accuracy
from mha_parity.candidate import NOT_ASKED, NOT_AWAITED
from mha_parity.features import AXES, of_case
from mha_parity.judgement import Severity
from mha_parity.verdict import CheckRow, FeatureRow, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mha_parity.accuracy import Measured
    from mha_parity.features import Offer
    from mha_parity.judgement import Judgement
    from mha_parity.trial import Trial
    from mha_parity.verdict import Accuracy


def outcome(trials: Sequence[Trial], rows: Sequence[FeatureRow], failed_over_run: bool) -> Outcome:
    """Return the verdict: any failure fails; else anything untested leaves it open."""
    if failed_over_run or any(trial.fails for trial in trials):
        return Outcome.FAIL
    if not trials or any(row.status == "inconclusive" for row in rows):
        return Outcome.INCONCLUSIVE
    return Outcome.PASS


def feature_rows(trials: Iterable[Trial], asked: Offer, offer: Offer) -> tuple[FeatureRow, ...]:
    """Return one row a feature: fail, pass, inconclusive (no case could have told), not offered.

    ``asked`` is what the run drew from. Of gradients that are offered and not asked for, or of
    their absence, there is nothing to say.
    """
    seen: Counter[tuple[str, str]] = Counter()
    failed: Counter[tuple[str, str]] = Counter()
    telling: Counter[tuple[str, str]] = Counter()
    took: dict[tuple[str, str], float] = defaultdict(float)
    for trial in trials:
        features = of_case(trial.case).items()
        seen.update(features)
        for feature in features:
            took[feature] += trial.seconds
        if trial.fails:
            failed.update(features)
        elif trial.exposes and not trial.inconclusive:
            telling.update(features)
    return tuple(
        replace(
            _row(axis, value, value in asked[axis], seen, failed, telling),
            seconds=took[axis, value],
        )
        for axis, values in AXES.items()
        for value in values
        if axis != "gradients" or value in asked[axis] or value not in offer[axis]
    )


def _row(
    axis: str,
    value: str,
    offered: bool,
    seen: Counter[tuple[str, str]],
    failed: Counter[tuple[str, str]],
    telling: Counter[tuple[str, str]],
) -> FeatureRow:
    key = (axis, value)
    if not offered:
        return FeatureRow(axis, value, "not offered", 0)
    if failed[key]:
        note = f"{failed[key]} of {seen[key]} fail"
        return FeatureRow(axis, value, "fail", seen[key], note, failed[key])
    if telling[key] or value == "empty":
        return FeatureRow(axis, value, "pass", seen[key])
    note = "no case drawn" if not seen[key] else "no case could have shown a bug"
    return FeatureRow(axis, value, "inconclusive", seen[key], note)


def check_rows(trials: Iterable[Trial], over_run: Iterable[Judgement]) -> tuple[CheckRow, ...]:
    """Return how many cases each check judged, how many it failed, and what the target took."""
    asked: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    took: dict[str, float] = defaultdict(float)
    of_cases = ((judgement, trial.seconds) for trial in trials for judgement in trial.judgements)
    for judgement, seconds in (*of_cases, *((judgement, 0.0) for judgement in over_run)):
        asked[judgement.check] += 1
        failed[judgement.check] += judgement.severity.fails
        took[judgement.check] += seconds
    return tuple(CheckRow(name, asked[name], failed[name], took[name]) for name in asked)


def accuracies(trials: Sequence[Trial]) -> tuple[Accuracy, ...]:
    """Return the candidate's output errors in units of torch's own, a row a dtype.

    The median is over cases drawn beforehand; the worst counts what was looked at since it was bad.
    """
    worst: dict[str, float] = {}
    for trial in trials:
        for judgement in trial.judgements:
            if judgement.check == "output" and judgement.times_torch is not None:
                times = judgement.times_torch
                worst[trial.case.dtype] = max(worst.get(trial.case.dtype, 0.0), times)
    found = _measurements(trials, ("", ""))
    rows = (
        accuracy.summary(dtype, found[accuracy.TARGET, dtype], worst=worst.get(dtype, 0.0))
        for dtype in AXES["dtype"]
    )
    return tuple(row for row in rows if row is not None)


def accuracy_table(trials: Sequence[Trial]) -> tuple[Accuracy, ...]:
    """Return a row for each contender and dtype, and for target and torch with each feature.

    Of features only those that vary among the cases; torch's other paths have too few cases there.
    """
    pair = (accuracy.TARGET, accuracy.PINNED)
    measured = [trial for trial in trials if trial.measured]
    rows = [*_rows(measured, ("", ""), (*pair, *accuracy.PATHS))]
    for feature in _varying(measured):
        rows += _rows(measured, feature, pair)
    return tuple(rows)


def _rows(
    trials: Sequence[Trial], feature: tuple[str, str], contenders: Iterable[str]
) -> Iterator[Accuracy]:
    found = _measurements(trials, feature)
    for dtype in AXES["dtype"]:
        for name in contenders:
            row = accuracy.summary(dtype, found[name, dtype], contender=name, feature=feature)
            if row is not None:
                yield row


def _varying(trials: Iterable[Trial]) -> list[tuple[str, str]]:
    """Return the features of axes on which the measured cases differ."""
    seen = {item for trial in trials for item in of_case(trial.case).items()}
    values = {axis: [v for v in AXES[axis] if (axis, v) in seen] for axis in AXES}
    return [
        (axis, value)
        for axis, found in values.items()
        for value in found
        if axis != "dtype" and len(found) > 1
    ]


def _measurements(
    trials: Iterable[Trial], feature: tuple[str, str]
) -> dict[tuple[str, str], list[Measured]]:
    """Return what was measured of each contender and dtype, on the cases with a feature."""
    axis, value = feature
    found: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for trial in trials:
        if not axis or getattr(trial.case, axis) == value:
            for each in trial.measured:
                found[each.contender, trial.case.dtype].append(each)
    return found


def worst(judgements: Iterable[Judgement]) -> Judgement | None:
    """Return the judgement whose error is largest in units of what was allowed."""
    judged = [each for each in judgements if each.where is not None and each.allowed > 0]
    return max(judged, key=lambda each: each.error / each.allowed, default=None)


def powers(trials: Iterable[Trial]) -> dict[str, int]:
    """Return how many cases would have exposed each of the gross errors."""
    return dict(Counter(name for trial in trials for name in trial.exposes or ()))


def weighed(trials: Iterable[Trial]) -> int:
    """Return in how many cases that was measured."""
    return sum(trial.exposes is not None for trial in trials)


def notes(trials: Sequence[Trial]) -> tuple[str, ...]:
    """Return what a reader should know beside the verdict."""
    judgements = [judgement for trial in trials for judgement in trial.judgements]
    unjudged = (_unjudged(judgements, begins) for begins in (NOT_AWAITED, NOT_ASKED))
    remarks = dict.fromkeys(remark for trial in trials for remark in trial.remarks)
    return tuple(note for note in (*unjudged, _less_accurate(judgements), *remarks) if note)


def _unjudged(judgements: Sequence[Judgement], begins: str) -> str:
    """Say how many cases a target that hangs or was lost too often was not judged by, and why."""
    unseen = [each.detail for each in judgements if each.detail.startswith(begins)]
    cases = "1 case was" if len(unseen) == 1 else f"{len(unseen)} cases were"
    return f"{cases} {unseen[-1].splitlines()[0]}" if unseen else ""


def _less_accurate(judgements: Sequence[Judgement]) -> str:
    """Say where the target is worse than torch, but not wrong."""
    less = [each for each in judgements if each.severity is Severity.LESS_ACCURATE]
    if not less:
        return ""
    factor = max(each.times_torch or 0.0 for each in less)
    amount = f" by a factor of up to {factor:.1f}" if factor else ""
    checks = "1 check" if len(less) == 1 else f"{len(less)} checks"
    return f"less accurate than torch{amount} in {checks}, within the rounding bound"
