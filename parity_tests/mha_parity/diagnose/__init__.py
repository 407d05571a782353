"""Name the bug of a failing candidate, or measure its errors where no name fits."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import catalogue
from mha_parity.core.deadline import Deadline
from mha_parity.core.verdict import Diagnosis
from mha_parity.diagnose import call_effects, diagnosis_cases, evidence, hypotheses, output_axes
from mha_parity.diagnose.evidence import TELLING, Observation
from mha_parity.diagnose.experiment_diagnosis import ExperimentDiagnosis
from mha_parity.diagnose.experiments.conditions.correct_digits import error_analysis
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.finite_minimum import least_numbers
from mha_parity.diagnose.inverted_masks import inverted_masks
from mha_parity.diagnose.log_sum_exp import wrong_log_sum_exp
from mha_parity.diagnose.small_errors import small_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mha_parity.core.candidate import Answer, Candidate
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.diagnose.hypotheses import Fit, Hypothesis

FAILURES = 24  # failing cases that are looked at: the plainest
SCREENED_FAILURES = 6  # of these, how many a bug must explain one of to stay in the running
SCREENING_RESERVE = 2.5  # seconds that the experiments need behind it
SHOWN = 3  # names given where several partial ones remain
LEAST_SHARE = 0.5  # a name that explains less of the failures is not worth giving
# Of the failures, what a confident name explains at least: the rest has other causes.
MIN_CONFIDENT_SHARE = 0.9
NEARLY = 0.95  # explained by one: a second bug would explain how roundings fell
MIN_TELLING_CASES = 2  # telling cases that a confident name rests on, at least
EXPERIMENT_TIME_SHARE = 2 / 3  # of the time that is left when no single name fits: for experiments
MIN_EXPERIMENT_SECONDS = 1.5  # though the names took longer than they should
# How much longer what is compiled for each size may be examined: a call takes 0.1 s and more.
COMPILED = 3
FITTED = "fitted"  # the convention of what small calls showed
UNSURE = (
    "what the axes of the inputs mean was found by small calls, of which some raised: mend this "
    "first, then check again"
)
RETURNED = "input-returned"
PAIRED = 6  # partial explanations that are tried in pairs


def diagnose(
    candidate: Candidate,
    failures: Sequence[tuple[Problem, Answer]],
    *,
    crashes: bool = False,
    budget: float = 5.0,
    shrunk: Sequence[Case] = (),
) -> tuple[Diagnosis, ...]:
    """Say why ``candidate`` failed on ``failures``; most certain first.

    A name is confident where the wrong attention of that name predicts all failing answers, and
    those to further cases drawn to refute it. What no name explains is found by experiments, and
    so is where calls fail, if some cases did (``crashes``). ``budget`` is in seconds, as
    ``Deadline`` counts them. What one failing case needs is held against ``shrunk`` ones.
    """
    if not failures:
        return _crashes_alone(candidate, budget, shrunk) if crashes else ()
    if candidate.facts.compiles:
        budget *= COMPILED
    session = _Session(candidate, failures, budget, shrunk)
    findings, extra = call_effects.from_findings(session.failing)
    findings += wrong_log_sum_exp(session.failing)
    habit = call_effects.name_state(candidate, session.failing, session.running)
    if habit or (findings and not any(each.failing for each in session.seen)):
        known = [n for n in findings if n.bug is not None]
        others = [h for h in habit if h.bug not in {n.bug for n in known}]
        return (*known, *others, *(n for n in findings if n.bug is None))
    # About rows that see no key torch disagrees with itself: an answer there may be right.
    wrong = (o for o in session.seen if o.failing and not o.problem.masked_rows().any())
    if extra and not findings and not any(wrong):
        return extra
    if plain := (
        inverted_masks(candidate)
        or output_axes.name_axis_order(session.seen)
        or least_numbers(candidate, session.seen)
    ):
        return (*findings, *plain)
    named = session.names()
    where = session.measurements.crashes if crashes else ()
    # Arrays of the caller that were changed are another problem when asked again: no state.
    written = any(each.bug == call_effects.MUTATES for each in findings)
    causes = (() if written else session.state) or named or session.facts(known=bool(findings))
    if not any(each.bug or each.remedy for each in causes):  # then nothing is understood of them
        causes = (*extra, *causes)
    if where and candidate.convention == FITTED:
        # Calls that raised may have hidden how the target is meant: only exact names are safe then.
        where = tuple(replace(each, evidence=UNSURE) for each in where)
        causes = tuple(each for each in causes if each.bug and each.confident)
    if any(each.bug == RETURNED for each in causes):  # an input that is returned is its own view
        findings = tuple(each for each in findings if call_effects.ALIASING not in each.evidence)
    # What calls do with some feature alone explains less than what is wrong without it.
    rare = [each for each in findings if each.explains < 1]
    if any(each.confident or each.explains >= 1 for each in causes):
        findings = tuple(each for each in findings if each not in rare)
        return (*findings, *where, *causes, *rare)
    return (*findings, *where, *causes)


def errs_by_rounding(candidate: Candidate, case: Case) -> bool | None:
    """Return whether the errors of a case are without pattern, as of rounding; None if none."""
    found = error_analysis(Caller(candidate, Deadline(1.0).running), case)
    return None if found is None or found.right else found.rounding


def _crashes_alone(
    candidate: Candidate, budget: float, shrunk: Sequence[Case]
) -> tuple[Diagnosis, ...]:
    """Return for which sizes calls fail, or with which features, where no answer was wrong."""
    measured = ExperimentDiagnosis(candidate, Deadline(budget).running)
    return measured.crashes or measured.needed_to_raise(shrunk, Deadline(budget).running)


class _Session:
    """One diagnosis: what was seen so far, and what is still in the running."""

    def __init__(
        self,
        candidate: Candidate,
        failures: Sequence[tuple[Problem, Answer]],
        budget: float,
        shrunk: Sequence[Case],
    ) -> None:
        self.candidate = candidate
        self.shrunk = shrunk
        self.deadline = Deadline(budget)
        chosen = diagnosis_cases.plainest_cases([problem.case for problem, _ in failures], FAILURES)
        self.failing = [Observation(*failures[i], failing=True) for i in chosen]
        self.measured: list[Observation] = []
        hides = {axis: candidate.offer[axis] for axis in ("attn", "padding")}
        self.causal_alone = hides == {"attn": ("causal",), "padding": ("none",)}
        # A case may fail by a relation or by conduct while its answer is right: then it may err by
        # more than the tolerance, within the bound of its roundings.
        least = (TELLING if o.answer and o.answer.notes else 1 for o in self.failing)
        seen = zip(self.failing, least, strict=True)
        self.seen = [o if o.error_in_tolerances > n else replace(o, failing=False) for o, n in seen]

    def running(self, reserve: float = 0.5) -> bool:
        """Return whether there is time left, beyond what the last steps need."""
        return self.deadline.running(reserve)

    def names(self) -> tuple[Diagnosis, ...]:
        """Return the names that explain the failures."""
        plainest = [each.problem.case for each in self.seen if each.failing][
            : diagnosis_cases.ALIKE
        ]
        self.see_more(diagnosis_cases.similar_problems(plainest, self.candidate))
        self.see_more(diagnosis_cases.varied_problems(self.candidate.offer))
        failing = [each for each in self.seen if each.failing]
        if not failing:
            return ()
        every = hypotheses.single_bugs()
        screened = self.screened(failing)
        slow = any(evidence.is_slow(each.problem.case) for each in screened)
        remaining = hypotheses.plausible_hypotheses(
            every, screened, lambda: not slow or self.running(SCREENING_RESERVE)
        )
        fits = self.weighed(self.separated(remaining))
        if fits and _explains_nearly_all(fits[0]):
            confirmed = self.confirmed(fits)
            if confirmed and _explains_nearly_all(confirmed[0]):
                return self.diagnoses(confirmed)
        stored = call_effects.stored_answers(self.candidate, failing, self.running)
        if stored:
            return stored
        by_size = call_effects.size_border(self.seen)
        if by_size and by_size[0].confident:
            return by_size
        causes = self.measurements.causes
        confirmed = self.confirmed(fits)  # each of two bugs alone is contradicted
        numbers = any(not each.is_nan for each in failing)  # NaN alone comes of many a pair
        understood = any(each.confident for each in causes)
        combined = self.combined(every, fits, failing, alone=understood) if numbers else []
        both = [f for f in combined if f.share >= MIN_CONFIDENT_SHARE]
        if both:
            return self.diagnoses(both)
        nearly = [
            f for f in confirmed if f.sole or (f.share >= MIN_CONFIDENT_SHARE and not f.refuted)
        ]
        partial = self.diagnoses(nearly)
        sure = tuple(each for each in partial if each.confident)
        # A size says where, and what rows see there narrows down what.
        seen = self.measurements.unexplained_weights if by_size else ()
        return (*sure, *causes) or partial or (*by_size, *seen)

    def screened(self, failing: Sequence[Observation]) -> list[Observation]:
        """Return the failing observations that a bug must explain one of: quick ones.

        Where all are of long rows, those of the cases that they were shrunk to.
        """
        found = evidence.quickest(failing[: 2 * SCREENED_FAILURES], SCREENED_FAILURES)
        if not evidence.is_slow(found[0].problem.case):
            return found
        shrunk = (evidence.observe(self.candidate, make_problem(case)) for case in self.shrunk)
        return [each for each in shrunk if each.failing] or found[:1]

    def see_more(self, drawn: Sequence[Problem]) -> None:
        """Ask the candidate about further problems, while there is time."""
        for problem in drawn:
            if not self.running(reserve=2.5):
                return
            self.seen.append(evidence.observe(self.candidate, problem))

    def separated(self, remaining: list[Hypothesis]) -> list[Hypothesis]:
        """Ask where the holding hypotheses disagree, then where the first shows."""
        holding = [f.hypothesis for f in self.weighed(remaining) if f.holds]
        if not holding:
            return remaining
        pool = diagnosis_cases.problem_pool(self.candidate.offer)
        if len({h.bugs for h in holding}) > 1:
            chosen = diagnosis_cases.separating_problems(
                [h.kind for h in holding], pool, self.running
            )
            self.see_more(chosen)
            holding = [f.hypothesis for f in self.weighed(remaining) if f.holds]
        if holding:
            self.see_more(diagnosis_cases.revealing_problems(holding[0].kind, pool, self.running))
        return remaining

    def confirmed(self, fits: Sequence[Fit]) -> list[Fit]:
        """Return how those stand that predict the experiments too: one that fails is no name."""
        if not self.measured:
            self.measured = self.measurements.observations()
            self.seen += self.measured
        return self.weighed([f.hypothesis for f in fits])

    def predicts(self, each: Hypothesis) -> bool:
        """Return whether no experiment made so far contradicts a hypothesis.

        Single roundings to a narrower dtype may fall otherwise: the digits confirm that one.
        """
        if self.measured and self.measurements.rounds and each.of_precision:
            return True
        return not any(o.contradicts(each.kind) for o in self.measured)

    def weighed(self, remaining: Sequence[Hypothesis]) -> list[Fit]:
        """Return how the hypotheses stand against all that was seen, best first."""
        fits = [hypotheses.fit_hypothesis(h, self.seen) for h in remaining if self.predicts(h)]
        return sorted(
            (f for f in fits if f.telling),
            key=lambda f: (
                -f.holds,
                f.refuted > 0,
                -f.share,
                not (self.causal_alone and f.hypothesis.of_causality),
                -report_count(f),
                f.hypothesis.spelling > 0,
            ),
        )

    def combined(
        self,
        every: list[Hypothesis],
        fits: list[Fit],
        failing: list[Observation],
        *,
        alone: bool = False,
    ) -> list[Fit]:
        """Return two bugs at once that nothing speaks against, if any do.

        One of the two explains some failures ``alone``, where the experiments understood a cause.
        """
        partial = [f.hypothesis for f in fits[:PAIRED]]
        unexplained = [each for each in failing if not any(each.matches(h.kind) for h in partial)]
        first, *_ = unexplained or failing
        if evidence.is_slow(first.problem.case):
            first, *_ = evidence.quickest(unexplained or failing, 1)
        found = list(self._pairs(every, first, partial, alone=alone))
        return [f for f in self.weighed(found) if f.sole and f.share >= LEAST_SHARE]

    def _pairs(
        self,
        every: list[Hypothesis],
        first: Observation,
        partial: list[Hypothesis],
        *,
        alone: bool,
    ) -> list[Hypothesis]:
        """Return pairs that no observation contradicts."""
        in_time = has_time_for_pair(self.running)
        ways: list[Sequence[Hypothesis]] = [partial] if partial else []
        for fixed in ways if alone else [*ways, ()]:
            pairs = hypotheses.bug_pairs(every, first, fixed, in_time)
            found = [h for h in pairs if not any(o.contradicts(h.kind) for o in self.seen)]
            if found:
                return found
        return []

    def diagnoses(self, fits: list[Fit]) -> tuple[Diagnosis, ...]:
        """Return the fits in words: those that hold as one name with aliases, else partial ones."""
        holding = [f for f in fits if f.holds]
        if holding:
            return (self._diagnosis(holding[0], _others(holding)),)
        shown: dict[str, Diagnosis] = {}
        covered: set[int] = set()
        failing = sum(o.failing for o in self.seen)
        for each in fits:
            explained = self._explained(each)
            whole = len(covered) >= NEARLY * failing
            if each.refuted or not explained - covered or len(shown) == SHOWN or whole:
                continue
            shown.setdefault(each.hypothesis.id, self._diagnosis(each, ()))
            covered |= explained
        return tuple(shown.values()) if len(covered) >= LEAST_SHARE * failing else ()

    def _explained(self, each: Fit) -> set[int]:
        kind = each.hypothesis.kind
        return {i for i, o in enumerate(self.seen) if o.failing and o.matches(kind)}

    def _diagnosis(self, best: Fit, aliases: tuple[str, ...]) -> Diagnosis:
        bugs = best.hypothesis.bugs
        # Other names of the bug itself; entries are named where they hold, and else refuted.
        names = (a for bug in bugs for a in bug.aliases if a not in catalogue() and a != "(right)")
        passing = sum(not o.failing and o.answer is not None for o in self.seen)
        detail = f" ({best.hypothesis.constants})" if best.hypothesis.constants else ""
        return Diagnosis(
            bug=best.hypothesis.id,
            title="; and ".join(bug.title for bug in bugs),
            remedy="; ".join(bug.remedy for bug in bugs),
            explains=best.share,
            confident=best.sole
            and best.telling >= MIN_TELLING_CASES
            and best.share >= MIN_CONFIDENT_SHARE,
            aliases=(*aliases, *names),
            evidence=f"predicts {best.explained} of {best.failing} failing answers{detail}"
            + (f", and fits the {_others_counted(passing)}" if passing else ""),
            seen_in=", ".join(bugs[0].sources[:3]),
        )

    @cached_property
    def measurements(self) -> ExperimentDiagnosis:
        """The experiments on the candidate; two thirds of the time that is left are theirs."""
        deadline = Deadline(max(self.deadline.left, MIN_EXPERIMENT_SECONDS) * EXPERIMENT_TIME_SHARE)
        wrong = [each.problem.case for each in self.seen if each.failing]
        two_masks = bool(wrong) and all("none" not in {each.padding, each.attn} for each in wrong)
        return ExperimentDiagnosis(self.candidate, deadline.running, two_masks=two_masks)

    @property
    def state(self) -> tuple[Diagnosis, ...]:
        """The causes if one is a state between calls: no formula is right of such a target."""
        return self.measurements.causes if self.measurements.keeps_state else ()

    def facts(self, *, known: bool = False) -> tuple[Diagnosis, ...]:
        """Return what the experiments understood, or the facts that narrow it down.

        Where a cause is known and the experiments saw nothing wrong, there is nothing to narrow.
        """
        if known and not self.measurements.findings:
            return ()
        if not self.measurements.findings and (found := small_errors(self.failing)):
            return found
        failing = [each.problem.case for each in self.seen if each.failing]
        # The time of the experiments may have passed while names were tried on what they saw.
        deadline = Deadline(max(self.deadline.left, MIN_EXPERIMENT_SECONDS))
        return self.measurements.causes or self.measurements.facts(
            failing, deadline.running, self.shrunk
        )


def has_time_for_pair(running: Callable[[float], bool]) -> Callable[[], bool]:
    """Return whether there is time for another pair: weighing and measuring need a second."""
    return lambda: running(1.2)


def _explains_nearly_all(each: Fit) -> bool:
    """Return whether a hypothesis explains the failures alone, but for how roundings fell."""
    return each.holds or (each.share >= NEARLY and not each.refuted)


def report_count(each: Fit) -> int:
    """Return how often the bug is known to have happened: of equals the usual one comes first."""
    return sum(len(bug.sources) for bug in each.hypothesis.bugs)


def _others_counted(passing: int) -> str:
    return "other one" if passing == 1 else f"{passing} others"


def _others(holding: list[Fit]) -> tuple[str, ...]:
    first = holding[0].hypothesis
    alike = [f.hypothesis for f in holding[1:] if len(f.hypothesis.bugs) == len(first.bugs)]
    # Two bugs in the other order are the same pair.
    others = {frozenset(h.id.split(" + ")): h.id for h in reversed(alike)}
    others.pop(frozenset(first.id.split(" + ")), None)
    return tuple(reversed(others.values()))


__all__ = ["Diagnosis", "Observation", "diagnose", "errs_by_rounding"]
