"""One line of an identity card for each experiment, with the number that it measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.features import feature_label
from mha_parity.core.identity_card import ExperimentResult
from mha_parity.diagnose.evidence import ROUNDINGS
from mha_parity.diagnose.experiments.gradients.gradients import gradient_effects
from mha_parity.diagnose.experiments.masks.influence import irregular, visibility
from mha_parity.diagnose.experiments.masks.masks import kept_keys
from mha_parity.diagnose.experiments.scores import transfer_curve
from mha_parity.diagnose.experiments.scores.scale import law

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.diagnose.experiments.designs.calls import Caller
    from mha_parity.diagnose.experiments.designs.effect import FeatureEffect
    from mha_parity.diagnose.experiments.designs.weights_from_output import SampleWeights
    from mha_parity.diagnose.experiments.examination import Examination

MIN_SCALES = 3  # effective scales that a formula rests on
EXACT_ULPS = 4  # an exp of 1 ulp, and the roundings of two divisions
STATE = frozenset({"statelessness", "weights reloaded"})  # checks of one object called again
UNREAD = "not measured: the weights cannot be read out of the output"


def measures(caller: Caller, seen: Examination) -> tuple[ExperimentResult, ...]:
    """Return a line for each experiment."""
    each: tuple[Callable[[Examination], Iterator[ExperimentResult]], ...] = (
        _scale, _transfer, _exponential, _window, _influences, _sizes, _digits,
    )  # fmt: skip
    found = [measure for make in each for measure in make(seen)]
    found += [*_masks(caller, seen), *_features(seen)]
    return (*found, *_gradients(caller, seen), *_state(caller, seen), *_conduct(caller))


def formula(seen: Examination) -> str:
    """Return what the weights are, as a formula; "" where they are no scaled softmax."""
    text = law(seen.scales)
    if not text or not all(_straight(each) for each in seen.readings):
        return ""
    if text.startswith("1/"):
        return f"softmax(q k^T / {text[2:]}) v"
    return f"softmax(s q k^T) v with s = {text}"


def _straight(reading: SampleWeights) -> bool:
    """Return whether the weights are a softmax of the scores times a constant per head."""
    found = transfer_curve.curve(reading)
    if found is None:
        return reading.right
    _, misfit = transfer_curve.slope(found)
    sums = np.where(reading.visible, reading.weights, 0).sum(axis=-1)
    return misfit <= found.atol and bool((np.abs(sums - 1) <= 100 * reading.noise).all())


def _scale(seen: Examination) -> Iterator[ExperimentResult]:
    if len(seen.scales) < MIN_SCALES:
        yield ExperimentResult(experiment="scale", sentence=UNREAD, as_torch=None)
        return
    off = max(abs(m.factor - 1) for m in seen.scales)
    widths = sorted({m.case.head_dim for m in seen.scales})
    listed = f"{widths[0]} … {widths[-1]}" if len(widths) > 1 else f"{widths[0]} alone"
    where = f"{len(seen.scales)} sizes with D = {listed}"
    yield ExperimentResult(
        experiment="scale",
        sentence=f"{law(seen.scales)}, at {where}; 1/sqrt(D) is missed by {off:.2g} of it",
        value=off, unit="relative", as_torch=_is_scaled(seen),
    )  # fmt: skip


def _is_scaled(seen: Examination) -> bool:
    return all(m.equals(m.case.head_dim**-0.5) for m in seen.scales)


def _transfer(seen: Examination) -> Iterator[ExperimentResult]:
    curves = [c for each in seen.readings if (c := transfer_curve.curve(each)) is not None]
    if not curves:
        yield ExperimentResult(experiment="transfer curve", sentence=UNREAD, as_torch=None)
        return
    misses = [c.misfit(c.x) for c in curves]
    x = np.concatenate([c.x[c.usable] for c in curves])
    y = np.concatenate([c.y[c.usable] for c in curves])
    slope = float(x @ y) / max(float(x @ x), 1e-300)
    clear = max(c.reading.noise / c.atol for c in curves)  # lesser weights are read less well
    yield ExperimentResult(
        experiment="transfer curve",
        sentence=f"log of the weight over the score, {len(x)} points from 0 down to {x.min():.3g}: "
        f"at most {max(misses):.2g} from torch's line for weights from {clear:.2g}, "
        f"slope {slope:.6g}",
        value=max(misses), unit="logarithm",
        as_torch=all(miss <= c.atol for miss, c in zip(misses, curves, strict=True)),
    )  # fmt: skip


def _exponential(seen: Examination) -> Iterator[ExperimentResult]:
    found = seen.exponential
    if found is None:
        yield ExperimentResult(
            experiment="exponential", as_torch=None,
            sentence="not measured: the inputs cannot be set to exact scores",
        )  # fmt: skip
        return
    hidden = any(visibility(each) or irregular(each) for each in _normal(seen))
    if hidden or (len(seen.scales) >= MIN_SCALES and not _is_scaled(seen)):
        why = "some keys are not seen" if hidden else "the scale is another"
        text = f"not measured: {why}"
        yield ExperimentResult(experiment="exponential", sentence=text, as_torch=None)
        return
    allowed = ROUNDINGS["float64"] * (1 + np.abs(found.scores))
    right = bool((found.ulps <= allowed).all())
    ulps = max(1, round(found.worst))
    worst = f"{found.worst:.1f}" if found.worst < 1e4 else f"{found.worst:.2g}"
    yield ExperimentResult(
        experiment="exponential",
        sentence=f"exp of {found.scores.size} exactly known scores, {found.scores.min():.3g} … 0: "
        f"at most {worst} ulp off, at {found.at + 0.0:.4g}",
        value=found.worst, unit="ulp", as_torch=right,
        clause=f"exp {'exact to' if ulps <= EXACT_ULPS else 'within'} {ulps} ulp" if right else "",
    )  # fmt: skip


def _normal(seen: Examination) -> list[SampleWeights]:
    """Return the readings whose scores leave no weight too small to be read."""
    return [r for r in seen.readings if r.problem.case.regime == "normal"]


def _window(seen: Examination) -> Iterator[ExperimentResult]:
    normal = _normal(seen)
    if not normal:
        yield ExperimentResult(experiment="keys of a row", sentence=UNREAD, as_torch=None)
        return
    rules = [r.text for each in normal if (r := visibility(each) or irregular(each))]
    largest = normal[-1].seen.shape
    if rules:
        yield ExperimentResult(experiment="keys of a row", sentence=rules[-1], as_torch=False)
        return
    yield ExperimentResult(
        experiment="keys of a row",
        sentence=f"without a mask every row sees every key, up to {largest[1]} rows and "
        f"{largest[2]} keys",
        value=float(largest[2]), unit="keys", clause="no window",
    )  # fmt: skip


def _influences(seen: Examination) -> Iterator[ExperimentResult]:
    for each in seen.influences:
        clause = f"{each.word}s independent" if each.word != "query row" else ""
        yield ExperimentResult(
            experiment=f"{each.word}s", sentence=each.sentence, value=each.change,
            unit="change of another's output", as_torch=each.independent,
            clause=clause if each.independent else f"{each.word}s not independent",
        )  # fmt: skip


def _sizes(seen: Examination) -> Iterator[ExperimentResult]:
    tried = [each for each in seen.scans if each.crashed]
    calls = sum(len(each.trials) for each in tried)
    listed = ", ".join(f"{s.letter} {min(s.crashed)} … {max(s.crashed)}" for s in tried)
    bad = sum(t.wrong or t.crashed for s in tried for t in s.trials)
    if not bad:
        sentence = f"right in {calls} calls: {listed}"
    else:
        rules = [r for s in tried for r in (s.crash_rule, s.wrong_rule) if r]
        where = f", wherever {' or '.join(dict.fromkeys(rules[:3]))}" if rules else ""
        sentence = f"wrong or without an answer in {bad} of {calls} calls{where}: {listed}"
    yield ExperimentResult(
        experiment="sizes", sentence=sentence, value=float(bad), unit="calls", as_torch=not bad
    )


def _digits(seen: Examination) -> Iterator[ExperimentResult]:
    digit = seen.digits
    if digit is None:
        yield ExperimentResult(
            experiment="digits", sentence="not measured: no answer", as_torch=None
        )
        return
    where = f" in {digit.heads}" if digit.heads else ""
    cause = f", as rounding to {digit.dtype} gives" if digit.dtype and digit.rounding else ""
    yield ExperimentResult(
        experiment="digits",
        sentence=f"{digit.bits:.1f} bits of the largest number of the output are right{where}, "
        f"error {digit.error:.2g}{cause}",
        value=digit.bits, unit="bits", as_torch=digit.right,
    )  # fmt: skip


def _departure(each: FeatureEffect) -> ExperimentResult:
    return ExperimentResult(
        experiment=each.name, sentence=each.effect, value=each.error,
        unit="error of the output", as_torch=False,
    )  # fmt: skip


def _masks(caller: Caller, seen: Examination) -> Iterator[ExperimentResult]:
    for each in seen.masks:
        if each.effect:
            yield _departure(each)
            continue
        if each.trial.wrong:
            yield ExperimentResult(
                experiment=each.name, value=each.error, unit="error of the output", as_torch=None,
                sentence="hides no other keys than it should; the output is wrong without it too",
            )  # fmt: skip
            continue
        rule = kept_keys(caller, each) if each.name == "attn=causal" else ""
        keeps = rule.replace("0 … i", "j <= i") if rule == "0 … i" else rule
        effect = f"row i keeps keys {keeps}" if keeps else MASK_RULES[each.kind]
        yield ExperimentResult(
            experiment=each.name, sentence=f"{effect}; the output is {each.error:.2g} off",
            value=each.error, unit="error of the output",
            clause=f"causal mask keeps {keeps}" if keeps else "",
        )  # fmt: skip


MASK_RULES = {
    "bool": "what it marks is hidden", "bool2d": "what it marks is hidden",
    "bool3d": "what it marks is hidden, by sample and head", "lengths": "keys beyond are hidden",
    "float": "it is added to the scores", "float2d": "it is added to the scores",
    "float3d": "it is added to the scores, by sample and head", "causal": "later keys are hidden",
}  # fmt: skip


def _features(seen: Examination) -> Iterator[ExperimentResult]:
    """Yield the features that are right as one line, and a line for each that is not."""
    right = [each for each in seen.features if not each.effect]
    if right:
        error = max(each.error for each in right)
        named = ", ".join(feature_label(each.name) for each in right)
        yield ExperimentResult(
            experiment="features", value=error, unit="error of the output",
            sentence=f"{named}: each at most {error:.2g} off",
        )  # fmt: skip
    for each in seen.features:
        if each.effect:
            yield _departure(each)


def _gradients(caller: Caller, seen: Examination) -> Iterator[ExperimentResult]:
    """Yield how gradients are off, where they are offered and the output is right."""
    if "yes" not in caller.candidate.offer["gradients"] or not caller.running():
        return
    if seen.wrong or seen.causes:
        text = "not measured: the output is another"
        yield ExperimentResult(experiment="gradients", sentence=text, as_torch=None)
        return
    effects = [each.text for each in gradient_effects(caller)]
    yield ExperimentResult(
        experiment="gradients", value=float(len(effects)), unit="departures",
        sentence="; ".join(effects) or "all as torch's, at 3 sizes and with each mask",
        as_torch=not effects, clause="" if effects else "gradients right",
    )  # fmt: skip


def _state(caller: Caller, seen: Examination) -> Iterator[ExperimentResult]:
    """Yield what other calls change: of new objects, and of one that is called several times."""
    earlier = seen.earlier
    if not earlier.calls:
        yield ExperimentResult(
            experiment="state", sentence="not measured: no answer", as_torch=None
        )
        return
    of_one = [sentence for check, sentence in _findings(caller) if check in STATE]
    changes = (*earlier.changes, *of_one)
    right = not changes
    yield ExperimentResult(
        experiment="state",
        sentence=f"{earlier.calls} calls of other sizes and values in between change the answer to "
        f"a problem by at most {earlier.change:.2g}" if right else "; ".join(changes[:2]),
        value=earlier.change, unit="change of the output", as_torch=right,
        clause="stateless" if right else "keeps state between calls",
    )  # fmt: skip


def _conduct(caller: Caller) -> Iterator[ExperimentResult]:
    """Yield what else the calls did that a call should not, a line for each check."""
    found = {check: said for check, said in reversed(_findings(caller)) if check not in STATE}
    for check, said in reversed(found.items()):
        yield ExperimentResult(experiment=check, sentence=said, as_torch=False)


def _findings(caller: Caller) -> list[tuple[str, str]]:
    """Return check and sentence of the findings on calls, in the order in which they were made."""
    notes = [note for each in caller.trials if each.answer for note in each.answer.notes]
    parts = (note.partition(": ") for note in dict.fromkeys(notes))
    return [(check, sentence.removesuffix(".")) for check, _, sentence in parts]
