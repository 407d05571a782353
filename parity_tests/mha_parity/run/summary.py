"""Counts over the case results of a run: features, checks, accuracy, notes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from mha_parity.core.candidate import ADAPTER, NOT_ASKED, NOT_CALLED, TargetError
from mha_parity.core.check_result import MASKED_ROWS, PADDED_QUERIES, WITHOUT_KEYS, Severity
from mha_parity.core.features import AXES, EXTREME_VALUES
from mha_parity.core.parameters import Role, Status, with_status
from mha_parity.core.verdict import (
    TOO_COARSE,
    CheckRow,
    FeatureRow,
    Outcome,
    counted_cases,
)
from mha_parity.judging.nonfinite import SEVERAL
from mha_parity.judging.output import OVERFLOWING
from mha_parity.run.case_run import ANSWERED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mha_parity.core.check_result import CheckResult
    from mha_parity.core.features import Offer
    from mha_parity.core.options import Options
    from mha_parity.core.parameters import Parameter
    from mha_parity.run.case_run import CaseResult

# Values that replace the normal ones in a few cases: a short run may have none of them.
PARTIAL_BIASES = frozenset({("bias", "in"), ("bias", "out")})
NOT_DRAWN = "--cases 500 has some"
ENDED = "the run ended before"
LEFT_OUT = "by an option of the run"


def outcome(
    case_results: Sequence[CaseResult],
    rows: Sequence[FeatureRow],
    parameters: Sequence[Parameter],
    run_check_failed: bool,
    max_times_torch: float | None = None,
) -> Outcome:
    """Return the verdict: any failure fails; else anything untested leaves it open.

    So do time-outs, since a slow target may be right, unless they are most of the cases asked, and
    errors that roundings of the dtype do not reach, unless ``max_times_torch`` allows a factor.
    """
    failing = [case_result for case_result in case_results if case_result.fails]
    asked = len(case_results) - len(_sentences(case_results, NOT_ASKED))
    mostly = 2 * len(failing) > asked
    if run_check_failed or any(mostly or not each.only_timed_out for each in failing):
        return Outcome.FAIL
    if failing or improbable(case_results, max_times_torch)[0]:
        return Outcome.INCONCLUSIVE
    untested = any(row.status == "inconclusive" for row in rows) or bool(
        _sentences(case_results, NOT_CALLED)
    )
    if not case_results or untested or any(each.is_untried for each in parameters):
        return Outcome.INCONCLUSIVE
    return Outcome.PASS


def improbable(
    case_results: Iterable[CaseResult], max_times_torch: float | None = None
) -> tuple[int, float]:
    """Return how many cases have an error that roundings do not reach, and the largest factor.

    None where ``max_times_torch`` says which factor is right.
    """
    found = [
        check_result.times_torch or 0.0
        for case_result in case_results
        for check_result in case_result.check_results
        if check_result.improbable and max_times_torch is None
    ]
    return len(found), max(found, default=0.0)


def feature_rows(
    case_results: Iterable[CaseResult],
    asked: Offer,
    offer: Offer,
    reasons: Mapping[tuple[str, str], str],
    *,
    stopped: bool = False,
    whole: Offer | None = None,
) -> tuple[FeatureRow, ...]:
    """Return one row a feature: fail, pass, inconclusive (no case can show it), not offered.

    Or "left out" by options, where the ``whole`` of what a run without them asks has it.
    Or "not drawn": what no case could show of a run that ``stopped`` at its failures, and the
    values that replace normal ones, where no case of a short run has them, or one alone in which
    every row comes out as NaN.

    ``asked`` is what the run drew from; ``reasons`` say why a feature is not offered. Of gradients
    that are offered and not asked for, or of their absence, there is no row.
    """
    seen: Counter[tuple[str, str]] = Counter()
    failed: Counter[tuple[str, str]] = Counter()
    informative: Counter[tuple[str, str]] = Counter()
    seconds_of: dict[tuple[str, str], float] = defaultdict(float)
    for case_result in case_results:
        features = case_result.case.features().items()
        seen.update(features)
        for feature in features:
            seconds_of[feature] += case_result.seconds
        if case_result.fails:
            failed.update(features)
        elif case_result.exposes and not case_result.inconclusive:
            informative.update(features)

    def row(axis: str, value: str) -> FeatureRow:
        judged = failed[axis, value] or informative[axis, value]
        if (stopped or value in EXTREME_VALUES) and value in asked[axis] and not judged:
            why = ENDED if stopped else NOT_DRAWN
            return FeatureRow(axis, value, "not drawn", seen[axis, value], why)
        if value in asked[axis]:
            found = _row(axis, value, seen, failed, informative)
            return replace(found, seconds=seconds_of[axis, value])
        if whole is not None and value in whole[axis]:
            return FeatureRow(axis, value, "left out", 0, LEFT_OUT)
        reason = "" if value in offer[axis] else reasons.get((axis, value), "")
        return FeatureRow(axis, value, "not offered", 0, reason)

    return tuple(
        row(axis, value)
        for axis, values in AXES.items()
        for value in values
        if axis != "gradients" or value in asked[axis] or value not in offer[axis]
        # A part of the biases is for layers that lack the rest: of others there is nothing to say.
        if (axis, value) not in PARTIAL_BIASES or value in offer[axis]
    )


def _row(
    axis: str,
    value: str,
    seen: Counter[tuple[str, str]],
    failed: Counter[tuple[str, str]],
    informative: Counter[tuple[str, str]],
) -> FeatureRow:
    key = (axis, value)
    if failed[key]:
        reason = f"{failed[key]} of {seen[key]} fail"
        return FeatureRow(axis, value, "fail", seen[key], reason, failed[key])
    if informative[key] or value == "empty":
        return FeatureRow(axis, value, "pass", seen[key])
    reason = "no case drawn" if not seen[key] else "no case could have shown a bug"
    return FeatureRow(axis, value, "inconclusive", seen[key], reason)


def reasons(case_results: Iterable[CaseResult]) -> dict[str, int]:
    """Count the inconclusive cases by why: a call not made, float16's range, or rounding."""
    found: Counter[str] = Counter()
    for case_result in (each for each in case_results if each.inconclusive):
        first = next(
            each for each in case_result.check_results if each.severity is Severity.INCONCLUSIVE
        )
        said = first.check == ANSWERED or first.detail in OVERFLOWING
        detail = first.detail.partition("\n")[0].rstrip(".")
        found[detail if said else TOO_COARSE] += 1
    return dict(found)


def parameters_with_status(
    listed: Iterable[Parameter], case_results: Iterable[CaseResult], options: Options
) -> tuple[Parameter, ...]:
    """Return the target's parameters with what became of each over the run.

    Where ``--features`` fixes the masks or the inputs, or ``--path`` a path of torch, what that
    leaves out is left out knowingly.
    """
    found = with_status(listed, (each.parameters for each in case_results), options.without)
    fixed = {axis for axis, _ in options.features}

    def is_excluded(parameter: Parameter) -> bool:
        axes = {"inputs"} if parameter.role is Role.KEYS else {"attn", "padding"}
        return parameter.is_untried and (options.path is not None or bool(axes & fixed))

    return tuple(replace(p, status=Status.EXCLUDED) if is_excluded(p) else p for p in found)


def check_rows(
    case_results: Iterable[CaseResult], run_check_results: Iterable[CheckResult]
) -> tuple[CheckRow, ...]:
    """Return how many cases each check judged, how many it failed, and what the target took."""
    asked: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    seconds_of: dict[str, float] = defaultdict(float)
    for case_result in case_results:
        failing = (each.check for each in case_result.check_results if each.severity.fails)
        failed.update(failing)
        for name in (*(each.check for each in case_result.check_results), *case_result.held):
            asked[name] += 1
            seconds_of[name] += case_result.seconds
    for check_result in run_check_results:
        asked[check_result.check] += 1
        failed[check_result.check] += check_result.severity.fails
    return tuple(CheckRow(name, asked[name], failed[name], seconds_of[name]) for name in asked)


def worst(check_results: Iterable[CheckResult]) -> CheckResult | None:
    """Return the check result whose error is largest in units of what was allowed.

    An error that rounding may reach whatever is allowed as a match proves nothing: it is left out.
    """
    judged = [
        each
        for each in check_results
        if each.where is not None
        and each.allowed > 0
        and each.severity is not Severity.INCONCLUSIVE
    ]
    return max(judged, key=lambda each: each.error / each.allowed, default=None)


def exposing_cases(case_results: Iterable[CaseResult]) -> dict[str, int]:
    """Return how many cases would have exposed each of the gross errors."""
    return dict(Counter(name for case_result in case_results for name in case_result.exposes or ()))


def measured_cases(case_results: Iterable[CaseResult]) -> int:
    """Return in how many cases that was measured."""
    return sum(case_result.exposes is not None for case_result in case_results)


def verdict_notes(
    case_results: Sequence[CaseResult], parameters: Iterable[Parameter] = ()
) -> tuple[str, ...]:
    """Return what a reader should know of the verdict: first how the target was understood."""
    check_results = [
        check_result for case_result in case_results for check_result in case_result.check_results
    ]
    unjudged = (_unjudged(case_results, NOT_ASKED), _unjudged(case_results, NOT_CALLED))
    remarks = dict.fromkeys(
        remark for case_result in case_results for remark in case_result.remarks
    )
    meanings = (f"`{each.name}`: {each.meaning}" for each in parameters if each.meaning)
    said = (
        *unjudged, *remarks, *meanings, _less_accurate(check_results),
        *_masked_rows(check_results), *_padded_queries(check_results),
    )  # fmt: skip
    return tuple(dict.fromkeys(note for note in said if note))


def _masked_rows(check_results: Iterable[CheckResult]) -> Iterator[str]:
    """Yield what rows that see no key are where torch has something else, in the judge's words.

    Rows that meet several policies are counted for none.
    """
    named = (
        each for each in check_results if each.check == MASKED_ROWS and SEVERAL not in each.detail
    )
    found = Counter(
        each.detail for each in named
        if not each.severity.fails and (WITHOUT_KEYS in each.detail or "are nan" not in each.detail)
    )  # fmt: skip
    said: dict[str, list[str]] = {}
    for sentence, count in found.most_common():
        rows, _, what = sentence.removesuffix(".").partition(" are ")
        said.setdefault(rows, []).append(f"{what} in {counted_cases(count)}")
    for rows, counts in said.items():
        torchs = "0" if WITHOUT_KEYS in rows else "NaN"
        yield f"{rows} are {', '.join(counts)}, where torch's module has {torchs}."


def _padded_queries(check_results: Iterable[CheckResult]) -> Iterator[str]:
    """Yield what rows of padded queries are where they were left out, in the judge's words."""
    found = Counter(each.detail for each in check_results if each.check == PADDED_QUERIES)
    said: dict[str, list[str]] = {}
    for sentence, count in found.most_common():
        rows, _, what = sentence.removesuffix(".").partition(" are ")
        said.setdefault(rows, []).append(f"{what} in {counted_cases(count)}")
    for rows, counts in said.items():
        yield f"{rows} are {', '.join(counts)}, and were not judged; --strict-padding judges them."


def _unjudged(case_results: Sequence[CaseResult], begins: str) -> str:
    """Count the cases that were not asked, or that the harness could not ask, with the last reason.

    Empty where there is none.
    """
    found = _sentences(case_results, begins)
    return f"{counted_cases(len(found))}: {found[-1]}" if found else ""


def _sentences(case_results: Iterable[CaseResult], begins: str) -> list[str]:
    """Return the first lines of all results that begin so."""
    return [
        check_result.detail.partition("\n")[0]
        for case_result in case_results
        for check_result in case_result.check_results
        if check_result.detail.startswith(begins)
    ]


def refuse_unanswered(
    target: str, convention: str, case_results: Sequence[CaseResult], lost_trial: str = ""
) -> None:
    """Raise where not one case was answered: of such a target there is nothing to judge.

    ``lost_trial``: how a small call ended that should have shown how the target is called.

    Raises
    ------
    TargetError
        Every call crashed, timed out, or could not be made; the sentence says what was tried.

    """
    calls = [result for each in case_results for result in each.check_results]
    if not calls or any(each.answered for each in case_results):
        return
    # All of them are not asked where a constructor refuses the sizes of every case.
    tried = [each for each in calls if not each.detail.startswith(NOT_ASKED)] or calls
    said = Counter(each.kind for each in tried)
    first = next(each for each in tried if each.kind == said.most_common(1)[0][0])
    sentence = first.detail.partition("\n")[0]
    sentence = sentence.removeprefix(f"{NOT_CALLED}: ").removeprefix(f"{NOT_ASKED}: ")
    none = f"none of {counted_cases(len(tried))} was answered, the first was {tried[0].case.id}"
    if lost_trial and lost_trial not in sentence:  # else all calls end so
        raise TargetError(
            f"{target} {NOT_CALLED}: of the small calls that show how it is called one "
            f"{lost_trial}, and as {convention}, by its signature alone, it {sentence}; {none}; "
            f"raise --timeout or --memory, or {ADAPTER}."
        )
    raise TargetError(
        f"{target} {NOT_CALLED} as {convention}: {sentence}; {none}; it should answer some: mend "
        f"that, name another --convention, or {ADAPTER}."
    )


def _less_accurate(check_results: Sequence[CheckResult]) -> str:
    """Say where the target is worse than torch, but not wrong."""
    less = [each for each in check_results if each.severity is Severity.LESS_ACCURATE]
    if not less:
        return ""
    times = [each.times_torch or 0.0 for each in less]
    factor = max(filter(math.isfinite, times), default=0.0)
    # Where torch's own error is large in that case, it may be the larger of the two.
    amount = f" by a factor of up to {factor:.1f}" if round(factor, 1) > 1 else ""
    checks = "1 check" if len(less) == 1 else f"{len(less)} checks"
    exact = ", of which torch's error is 0 in some" if factor < max(times) else ""
    return f"less accurate than torch{amount} in {checks}{exact}, within the rounding bound"
