"""The identity card of an attention: all experiments, right ones too, and what they amount to."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.deadline import Deadline
from mha_parity.core.environment import environment
from mha_parity.core.identity_card import (
    ExperimentResult,
    IdentityCard,
    InfluenceMatrix,
    TransferPoints,
)
from mha_parity.diagnose.experiment_diagnosis import as_diagnosis
from mha_parity.diagnose.experiment_results import formula, measures
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.designs.own_weights import copies_refused, own_weight_results
from mha_parity.diagnose.experiments.examination import Examination
from mha_parity.diagnose.experiments.run_experiments import (
    cause_findings,
    run_experiments,
)
from mha_parity.diagnose.experiments.scores import transfer_curve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.candidate import Candidate
    from mha_parity.diagnose.experiments.examination import ExperimentFinding

POINTS = 400  # of the transfer curve, evenly over all that were read
NO_FORMULA = "no softmax(q k^T / sqrt(D)) v"
DRAWN = 32  # rows and keys at most of a matrix that can be read


def identify(candidate: Candidate, target: str, seconds: float = math.inf) -> IdentityCard:
    """Return what the experiments measure of a candidate; none begins after ``seconds``."""
    started = time.perf_counter()
    caller = Caller(candidate, Deadline(seconds).running)
    refused = copies_refused(caller)
    own = own_weight_results(caller)
    seen = Examination() if refused else run_experiments(caller, whole=True)
    if refused:
        unasked = f"not measured: {refused}"
        found: tuple[ExperimentResult, ...] = (
            ExperimentResult(experiment="other weights", sentence=unasked, as_torch=None),
        )
    else:
        found = measures(caller, seen)
    lines = (*own, *found)
    if not caller.running():
        over = f"{seconds:.0f} s are over: some experiments made fewer calls, or none"
        lines += (ExperimentResult(experiment="time", sentence=over, as_torch=None),)
    causes = cause_findings(seen)
    clauses = dict.fromkeys(each.clause for each in lines if each.clause)
    return IdentityCard(
        target=target,
        convention=candidate.convention,
        sentence=", ".join([_unmeasured(own) if refused else _computes(seen, causes), *clauses]),
        measures=lines,
        causes=tuple(as_diagnosis(each) for each in causes),
        transfer=_points(seen),
        influence=tuple(_matrices(seen)),
        calls=len(caller.trials),
        seconds=time.perf_counter() - started,
        environment=environment(),
    )


def _computes(seen: Examination, causes: list[ExperimentFinding]) -> str:
    """Return the formula of the output, and the cause where that is not all."""
    computed = formula(seen)
    if not causes:
        return computed or "right, by a formula that cannot be read out of the output"
    weights = [each for each in causes if each.stage == "weights"]
    if computed and weights:
        return computed
    start = computed or NO_FORMULA
    return f"{start}, but {causes[0].text}" if computed else f"{start}: {causes[0].text}"


def _unmeasured(own: tuple[ExperimentResult, ...]) -> str:
    """Return what is known of a layer of which its own weights alone were asked."""
    right = all(each.as_torch is not False for each in own)
    return "right with its own weights, the only ones asked" if right else NO_FORMULA


def _points(seen: Examination) -> TransferPoints | None:
    curves = [c for each in seen.readings if (c := transfer_curve.curve(each)) is not None]
    scores = [c.x[c.usable] for c in curves]
    found = [c.y[c.usable] for c in curves]
    if seen.exponential is not None:
        positive = seen.exponential.ratios > 0
        scores.append(seen.exponential.scores[positive])
        found.append(np.log(seen.exponential.ratios[positive]))
    if not scores:
        return None
    x, y = np.concatenate(scores), np.concatenate(found)
    order = np.argsort(x)[np.linspace(0, len(x) - 1, min(POINTS, len(x))).astype(int)]
    return TransferPoints(scores=x[order], found=y[order])


def _matrices(seen: Examination) -> Iterator[InfluenceMatrix]:
    """Yield what reaches what: keys to rows, then samples, heads and rows among themselves."""
    wrong = [r for r in seen.readings if not np.array_equal(r.seen, r.visible)]
    for reading in (wrong or seen.readings)[:1]:
        part = (0, slice(DRAWN), slice(DRAWN))
        yield InfluenceMatrix(
            title="keys that a row sees", rows="query row", columns="key",
            reached=reading.seen[part], expected=reading.visible[part],
        )  # fmt: skip
    for each in seen.influences:
        yield InfluenceMatrix(
            title=f"{each.word}s that a {each.word} reaches", rows=f"{each.word} changed",
            columns=f"{each.word} of the output", reached=each.reached,
            expected=each.expected,
        )  # fmt: skip
