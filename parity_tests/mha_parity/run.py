"""A run: draws the cases that a candidate offers, tries each, and sums up to a verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mha_parity import summary
from mha_parity.again import Command
from mha_parity.drawing import drawing, reachable
from mha_parity.environment import environment
from mha_parity.gradient_pictures import gradient_pictures
from mha_parity.judging import Settings
from mha_parity.options import Options
from mha_parity.parts import KEPT, jobs, parts, parts_elsewhere
from mha_parity.pictures import closest, pictures
from mha_parity.shrink import shrunk
from mha_parity.systematic import Systematic
from mha_parity.trial import ANSWERED
from mha_parity.verdict import Diagnosis, Failure, Picture, Verdict

if TYPE_CHECKING:
    from mha_parity.again import Again
    from mha_parity.candidate import Candidate
    from mha_parity.case import Case
    from mha_parity.features import Offer
    from mha_parity.judgement import Judgement
    from mha_parity.parts import Part
    from mha_parity.trial import Trial

Progress = Callable[[int, int], None]
SHOWN = 3  # failures shrunk and shown in full, each of another check or dtype
NO_GRADIENTS = (
    "got --grad, but the target offers no gradients: it should compute with torch's tensors, or be "
    "a layer with `vjp` or `backward`; leave --grad out, or give it one of these."
)


def check(
    candidate: Candidate,
    options: Options | None = None,
    *,
    target: str | None = None,
    again: Again | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Judge ``candidate`` over a run of cases and return the verdict.

    ``target`` is the text by which other processes find it. ``again`` says how to see a failure
    again (default: by the command). ``progress`` is called with (cases done, cases in all).
    Raises ``ValueError`` when the options leave nothing that the candidate offers.
    """
    options = options or Options()
    started = time.perf_counter()
    offer = restricted(candidate.offer, options, getattr(candidate, "reasons", None))
    cases = drawing(offer, options.cases, options.seed)
    systematic = Systematic()
    trials: list[Trial] = []
    there: dict[str, str] | None = None
    for part in _parts(candidate, options, target, cases, progress):
        kept = sum(trial.problem is not None for trial in trials)
        trials += part.trials if kept < KEPT else [trial.light() for trial in part.trials]
        systematic.merge(part.systematic)
        there = there or part.environment
    over_run = systematic.judgements()
    name = target or candidate.name
    again = again or Command(name, options)
    verdict = _verdict(candidate, options, name, again, trials, over_run, offer)
    seconds = time.perf_counter() - started
    return replace(verdict, environment=there or environment(), seconds=seconds)


def _parts(
    candidate: Candidate,
    options: Options,
    target: str | None,
    cases: Iterable[Case],
    progress: Progress | None,
) -> Iterator[Part]:
    """Yield the cases' trials part by part, from here or from several processes."""

    def tick(done: int) -> None:
        if progress:
            progress(done, options.cases)

    settings = settings_of(options)
    if target is not None and jobs(options, target) > 1:
        return parts_elsewhere(target, options, cases, settings, tick)
    return parts(candidate, cases, settings, tick)


def settings_of(options: Options) -> Settings:
    """Return what the judge needs to know of the options."""
    return Settings(
        fully_masked=options.fully_masked,
        max_times_torch=options.max_times_torch,
    )


def restricted(
    offer: Offer, options: Options, reasons: Mapping[tuple[str, str], str] | None = None
) -> Offer:
    """Return the offer narrowed to the dtypes and features that the options name.

    Gradients are asked of all cases or of none. ``reasons`` say why something is not offered.

    Raises
    ------
        ValueError: the candidate does not offer what was named.

    """
    wanted = list(options.features) + [("dtype", dtype) for dtype in options.dtypes]
    wanted = [("gradients", "yes" if options.grad else "no"), *wanted]
    if options.grad and "yes" not in offer["gradients"]:
        said = (reasons or {}).get(("gradients", "yes"), "")
        raise ValueError(f"{NO_GRADIENTS} Asked for some: {said}" if said else NO_GRADIENTS)
    narrowed = dict(offer)
    for axis in dict(wanted):
        values = tuple(value for a, value in wanted if a == axis)
        missing = [value for value in values if value not in offer[axis]]
        if missing:
            offered = " or ".join(f"{axis}={value}" for value in offer[axis])
            raise ValueError(
                f"{axis}={missing[0]} was asked for, but the target offers only {offered}."
            )
        narrowed[axis] = values
    return reachable(narrowed)


def _verdict(
    candidate: Candidate,
    options: Options,
    target: str,
    again: Again,
    trials: list[Trial],
    over_run: list[Judgement],
    offer: Offer,
) -> Verdict:
    judgements = [judgement for trial in trials for judgement in trial.judgements] + over_run
    rows = summary.feature_rows(trials, offer, candidate.offer)
    failing = [trial for trial in trials if trial.fails]
    failures = _failures(candidate, options, again, failing, over_run)
    settings, worst = settings_of(options), summary.worst(judgements)
    return Verdict(
        target=target,
        convention=candidate.convention,
        outcome=summary.outcome(trials, rows, any(j.severity.fails for j in over_run)),
        run=len(trials),
        passed=sum(not trial.fails and not trial.inconclusive for trial in trials),
        failed=len(failing),
        inconclusive=sum(trial.inconclusive for trial in trials),
        features=rows,
        checks=summary.check_rows(trials, over_run),
        failures=failures,
        diagnosis=_diagnosis(candidate, failing) if options.diagnose else (),
        accuracy=summary.accuracies(trials),
        accuracy_table=summary.accuracy_table(trials),
        worst=worst,
        power=summary.powers(trials),
        weighed=summary.weighed(trials),
        notes=summary.notes(trials),
        pictures=_pictures(candidate, failures, worst, settings) if options.draw else (),
        gradient_pictures=gradient_pictures(candidate, failures if options.draw else (), settings),
    )


def _pictures(
    candidate: Candidate,
    failures: tuple[Failure, ...],
    worst: Judgement | None,
    settings: Settings,
) -> tuple[Picture, ...]:
    """Return what the page draws of the failures, or of the case that came closest to one."""
    if failures:
        return pictures(candidate, failures, settings)
    return closest(candidate, worst, settings)


def _diagnosis(candidate: Candidate, failing: list[Trial]) -> tuple[Diagnosis, ...]:
    """Return the name of the bug, or what was measured; nothing where there was no answer.

    What fails in gradients alone has a right output, and is told by its gradients.
    """
    answered = [
        trial for trial in failing if trial.problem is not None and trial.answer is not None
    ]
    forward = [trial for trial in answered if trial.fails_forward]
    pairs = [(t.problem, t.answer) for t in forward or answered if t.problem and t.answer]
    if not pairs:
        return ()
    from mha_parity.diagnose import backwards, diagnose

    found = diagnose(candidate, pairs) if forward else backwards.named(pairs)
    silent = sum(any(each.check == ANSWERED for each in t.judgements) for t in failing)
    if not silent:
        return found
    cases = "1 failing case" if silent == 1 else f"{silent} failing cases"
    return tuple(
        replace(each, evidence=f"{each.evidence}; {cases} gave no answer to compare".lstrip("; "))
        for each in found
    )


def _failures(
    candidate: Candidate,
    options: Options,
    again: Again,
    failing: list[Trial],
    over_run: list[Judgement],
) -> tuple[Failure, ...]:
    """Return the failures to show: one of each kind, the smallest cases of all, shrunk."""
    shown: dict[tuple[str, str], Judgement] = {}
    for trial in sorted(failing, key=lambda trial: len(trial.case.id)):
        for judgement in trial.judgements:
            if judgement.severity.fails:
                shown.setdefault((judgement.check, judgement.severity.value), judgement)
    most = SHOWN if options.shrink else 0
    settings = settings_of(options)
    full = [
        _failure(shrunk(candidate, each, settings), again, first_seen=each.case)
        for each in list(shown.values())[:most]
    ]
    plain = [_failure(each, again) for each in list(shown.values())[most:]]
    whole_run = [
        Failure(judgement=each, case=each.case, replay=again.run())
        for each in over_run
        if each.severity.fails
    ]
    return tuple(full + plain + whole_run)


def _failure(judgement: Judgement, again: Again, first_seen: Case | None = None) -> Failure:
    return Failure(
        judgement=judgement,
        case=judgement.case,
        replay=again.case(judgement.case.id),
        first_seen=first_seen,
    )
