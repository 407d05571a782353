"""Results of all experiments on one target, and what of them a report says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mha_parity.diagnose.experiments.conditions.state import CallHistoryEffect

if TYPE_CHECKING:
    from mha_parity.diagnose.experiments.conditions.correct_digits import ErrorAnalysis
    from mha_parity.diagnose.experiments.conditions.sizes import Scan
    from mha_parity.diagnose.experiments.designs.calls import CallResult
    from mha_parity.diagnose.experiments.designs.effect import Effect, FeatureEffect
    from mha_parity.diagnose.experiments.designs.perturbation import Influence
    from mha_parity.diagnose.experiments.designs.weights_from_output import SampleWeights
    from mha_parity.diagnose.experiments.masks.masks import MaskEffect
    from mha_parity.diagnose.experiments.scores.exponential import ExponentialErrors
    from mha_parity.diagnose.experiments.scores.scale import EffectiveScale


@dataclass(frozen=True)
class ExperimentFinding:
    """One cause in one sentence, the remedy, what else was seen of it, and the operation."""

    text: str
    remedy: str = ""
    evidence: str = ""
    understood: bool = True
    stage: str = ""
    operation: str = ""

    @classmethod
    def of(cls, effect: Effect, stage: str, evidence: str = "") -> ExperimentFinding:
        """Return an effect as a finding of a stage."""
        e = effect
        return cls(e.text, e.remedy, evidence, e.understood, stage, e.operation)


@dataclass
class Examination:
    """Results of each experiment."""

    unanswered: dict[str, str] = field(default_factory=dict)
    scans: list[Scan] = field(default_factory=list)
    earlier: CallHistoryEffect = field(default_factory=CallHistoryEffect)
    readings: list[SampleWeights] = field(default_factory=list)
    causes: list[Effect] = field(default_factory=list)
    digits: ErrorAnalysis | None = None
    masks: list[MaskEffect] = field(default_factory=list)
    features: list[FeatureEffect] = field(default_factory=list)
    values: list[Effect] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    scales: list[EffectiveScale] = field(default_factory=list)
    exponential: ExponentialErrors | None = None
    influences: list[Influence] = field(default_factory=list)
    split: ExperimentFinding | None = None
    shared: str = ""
    as_integers: tuple[str, ...] = ()  # the masks that are read otherwise as integers
    narrow: Examination | None = None  # in a dtype in which the errors of this one are rounding

    @property
    def wrong(self) -> list[CallResult]:
        """The wrong answers to plain problems, those with axes of one element left out."""
        return [t for each in self.scans for t in each.trials if t.wrong and is_telling(t)]


def is_telling(trial: CallResult) -> bool:
    """Return whether no axis of a problem has one element alone."""
    case = trial.problem.case
    return min(case.queries, case.keys, case.head_dim) > 1
