"""Findings of experiments on a candidate, as lines of a diagnosis."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mha_parity.cases.generate import make_problem
from mha_parity.core.features import AXES, label
from mha_parity.core.verdict import Diagnosis
from mha_parity.diagnose import measurements
from mha_parity.diagnose.evidence import TELLING, Observation
from mha_parity.diagnose.experiments.arrays.error_places import contents
from mha_parity.diagnose.experiments.arrays.replaced_inputs import (
    SKIPPED,
    common_variant,
    skipped_variants,
)
from mha_parity.diagnose.experiments.conditions.needed_conditions import needed
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.designs.weights_from_output import read_case_weights
from mha_parity.diagnose.experiments.examination import ExperimentFinding
from mha_parity.diagnose.experiments.run_experiments import (
    cause_findings,
    run_experiments,
)
from mha_parity.diagnose.experiments.weights import causes as weight_causes
from mha_parity.diagnose.read_weights import CALLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mha_parity.core.candidate import Candidate
    from mha_parity.core.case import Case
    from mha_parity.diagnose.experiments.conditions.needed_conditions import Needs
    from mha_parity.diagnose.experiments.designs.calls import CallResult

FACTS = 2  # about what is not understood
TRIALS = 3  # wrong and right answers to one set of features that a name has to predict too
LONGEST = 130  # keys: hundreds of names are held against each of these


class ExperimentDiagnosis:
    """The experiments on a candidate, made once."""

    def __init__(
        self, candidate: Candidate, running: Callable[[], bool], *, two_masks: bool = False
    ) -> None:
        """Make the experiments while there is time.

        ``two_masks``: each wrong answer was to a case with both masks.
        """
        self.candidate = candidate
        caller = Caller(candidate, running)
        self.findings = cause_findings(run_experiments(caller, two_masks=two_masks))
        self.trials = caller.trials
        self.caller = caller

    @property
    def keeps_state(self) -> bool:
        """Whether earlier calls change an answer."""
        return any(each.stage == "state" for each in self.findings)

    @property
    def rounds(self) -> bool:
        """Whether a stage is rounded to a narrower dtype."""
        return any(each.stage == "digits" for each in self.findings)

    @property
    def crashes(self) -> tuple[Diagnosis, ...]:
        """For which sizes calls fail, where a rule fits."""
        return tuple(as_diagnosis(f) for f in self.findings if f.stage == "crash" and f.understood)

    @property
    def causes(self) -> tuple[Diagnosis, ...]:
        """Causes found for wrong answers, and wrong weights of plain answers without a cause."""
        found = [f for f in self.findings if f.stage != "crash"]
        if not any(f.understood for f in found):
            return ()
        return tuple(as_diagnosis(f) for f in found if f.understood or f.stage == "weights")

    @property
    def unexplained_weights(self) -> tuple[Diagnosis, ...]:
        """Wrong weights that no experiment explains."""
        found = [f for f in self.findings if f.stage == "weights" and not f.understood]
        return tuple(as_diagnosis(f) for f in found)

    def facts(
        self, failing: Sequence[Case], running: Callable[[], bool], shrunk: Sequence[Case] = ()
    ) -> tuple[Diagnosis, ...]:
        """Return what was not understood, with the facts that narrow it down while there is time.

        Where nothing plain is wrong, these are what the plainest of the failing cases needs, held
        against the others and against ``shrunk`` ones.
        """
        self.caller.running = running
        if not self.findings and (found := next(self._needs(failing, shrunk), None)):
            return (self._narrowed(found),)
        causes = [as_diagnosis(f) for f in self.findings if not f.understood]
        # The weights that the experiments have read say what can be read out of them.
        weights = any(f.stage == "weights" for f in self.findings)
        measured = measurements.measure(self.candidate, running, weights=not weights)
        sentences = measured[1 : 1 + FACTS] or (() if causes else measured[:1])
        return (
            *causes,
            *(Diagnosis(bug=None, title=each, evidence=PROBED) for each in sentences),
        )

    def needed_to_raise(
        self, shrunk: Sequence[Case], running: Callable[[], bool]
    ) -> tuple[Diagnosis, ...]:
        """Return which features and sizes the first of the shrunk cases needs to raise."""
        self.caller.running = running
        found = next((each for each in self._needs(shrunk, shrunk) if each.crashed), None)
        return (self._narrowed(found),) if found else ()

    def _needs(self, failing: Sequence[Case], shrunk: Sequence[Case]) -> Iterator[Needs]:
        others = [*failing[:TRIALS], *shrunk]
        found = (needed(self.caller, case) for case in failing[:TRIALS])
        compared = (each.compared(self.caller, others) for each in found if each)
        yield from (each for each in compared if each)

    def _narrowed(self, found: Needs) -> Diagnosis:
        """Return what weights show where a case needs sizes alone, else what it needs."""
        remedy = NEEDED if len(found.kept) > 1 else NEEDED_ALONE
        if found.crashed:
            title = in_words(f"the call {found.sentence}")
            return Diagnosis(bug=None, title=title, remedy=remedy, evidence=PROBED)
        case, rules = found.case, " and ".join(found.kept)
        trials = self.caller.ask_problems([make_problem(case)])
        if skipped := common_variant(trials, skipped_variants):
            text = f"{skipped}, {found.sentence}"
            return as_diagnosis(ExperimentFinding(text, SKIPPED, PROBED))
        if found.sizes_alone:
            width = max(case.head_dim, -(-case.keys // CALLS))
            reading = read_case_weights(self.caller, case.replace(head_dim=width))
            causes = weight_causes(self.caller, [reading] if reading else [])
            if causes and causes[0].understood:
                text = f"wherever {rules}: {causes[0].text}"
                return as_diagnosis(ExperimentFinding(text, causes[0].remedy, found.sentence))
        sentence = found.sentence
        if found.kept == ("dtype=float16",) and contents(trials) == "NaN":
            sentence, remedy = f"{sentence}: NaN stands there", BEYOND_HALF
        remedy = remedy if found.agreed else ""
        return Diagnosis(bug=None, title=in_words(sentence), remedy=remedy, evidence=PROBED)

    def observations(self) -> list[Observation]:
        """Return answers of the experiments, wrong and right, that a name has to predict."""
        answered = [each for each in self.trials if each.answer is not None and _short(each)]
        groups: dict[tuple[object, ...], list[CallResult]] = {}
        for each in answered:
            key = (each.wrong, *each.problem.case.features().values())
            groups.setdefault(key, []).append(each)
        chosen = [trial for group in groups.values() for trial in _spread(group)]
        seen = [Observation(t.problem, t.answer, failing=False) for t in chosen]
        return [
            Observation(o.problem, o.answer, failing=o.error_in_tolerances > TELLING) for o in seen
        ]


NEEDED = "look at what the code does only where all of these come together"
NEEDED_ALONE = "look at what the code does only there"
BEYOND_HALF = (
    "look for numbers beyond 65504, which are infinite in float16, as a fill of -1e9 is, and below "
    "3e-8, which are 0, as an epsilon of 1e-8 is: 0 times infinity and 0 / 0 are NaN"
)
PROBED = "measured from outside"


def _short(trial: CallResult) -> bool:
    case = trial.problem.case
    return min(case.queries, case.keys) > 1 and max(case.queries, case.keys) <= LONGEST


def _spread(trials: Sequence[CallResult]) -> list[CallResult]:
    """Return a few trials, evenly over all."""
    step = max(len(trials) // TRIALS, 1)
    return list(trials[::step][:TRIALS])


def in_words(text: str) -> str:
    """Return a sentence with features in the words of the report: "attn=bool2d" is an option's."""

    def said(match: re.Match[str]) -> str:
        axis, value = match.groups()
        if value not in AXES.get(axis, {}):
            return match[0]
        return "the causal rule" if value == "causal" else label(axis, value)

    return re.sub(r"\b(\w+)=(\w+)", said, text)


def as_diagnosis(finding: ExperimentFinding) -> Diagnosis:
    """Return a finding of the experiments as a line of a diagnosis."""
    return Diagnosis(
        bug=None,
        title=in_words(finding.text),
        remedy=in_words(finding.remedy),
        evidence=finding.evidence or "experiments on the target",
        explains=1.0 if finding.understood else 0.0,
        operation=finding.operation,
    )
