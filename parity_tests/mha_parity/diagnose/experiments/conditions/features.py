"""Which feature alone makes the answer wrong, and of a bias, how many times it is added."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.features import PLAIN
from mha_parity.diagnose.experiments.arrays.error_places import contents, places
from mha_parity.diagnose.experiments.arrays.moved_elements import index_permutation, reshaped_rows
from mha_parity.diagnose.experiments.arrays.projection_parts import bias_variants
from mha_parity.diagnose.experiments.designs.calls import WRONG, CallResult, unmixed_problem
from mha_parity.diagnose.experiments.designs.effect import Effect, FeatureEffect
from mha_parity.diagnose.experiments.designs.variants import (
    answered_variant,
    head_variants,
    used_key_heads,
)
from mha_parity.diagnose.experiments.designs.weights_from_output import read_problem
from mha_parity.diagnose.experiments.scores.given_scale import REMEDY as SCALE_REMEDY
from mha_parity.diagnose.experiments.scores.given_scale import given_scale
from mha_parity.diagnose.experiments.scores.transfer_curve import curve, slope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.diagnose.experiments.designs.calls import Caller

AXES = ("bias", "out_proj", "bias_kv", "zero_attn", "scale", "layout", "inputs", "memory",
        "kv_heads", "v_dim", "weights")  # fmt: skip
GROUPED = {"heads_count": 6, "kv_heads_count": 3}
# The arrays that are there for one feature alone.
ARRAYS = {
    "bias": ("b_q", "b_k", "b_v", "b_out"), "bias_kv": ("bias_k", "bias_v"), "zero_attn": (),
}  # fmt: skip
SIZES = {"batch": 2, "queries": 5, "keys": 7, "heads_count": 3, "head_dim": 6}
IGNORED = Effect("it has no effect")
OUTPUT_BIAS = "add the bias of the output projection once, behind the sum over heads"
EXACT = 1e-3  # of how often a bias is added: a count, or a factor such as 1/sqrt(D)


def features(caller: Caller) -> Iterator[FeatureEffect]:
    """Yield what each further feature does that is offered and answered."""
    sizes = dict(SIZES)
    if caller.base.heads_count == 1 or caller.base.kv_heads == "fewer":
        sizes["heads_count"] = caller.base.heads_count
    right: dict[str, str] = {}
    for axis in AXES:
        for value in caller.candidate.offer[axis]:
            if value == getattr(caller.base, axis) or not caller.running():
                continue
            # The output projection has a bias where the others have: if theirs are right.
            more = right if axis == "out_proj" else {}
            case = caller.case(**{**sizes, **more, **_change(axis, value)})
            problem = make_problem(case) if axis == "out_proj" else unmixed_problem(case)
            trial = caller.ask_problems([problem])[0]
            if trial.answer is not None and trial.found is None:
                yield FeatureEffect(f"{axis}={value}", _shape(trial, axis), np.inf)
            elif trial.found is not None:
                if axis == "scale":
                    effect = given_scale(caller, case)
                else:
                    effect = _ignored(trial, axis) or _effect(caller, trial)
                if axis == "bias" and not effect:
                    right["bias"] = value
                found = FeatureEffect(f"{axis}={value}", effect, trial.largest_error)
                yield from _by_inputs(caller, case, found) if axis == "bias" else (found,)


def _by_inputs(caller: Caller, case: Case, own: FeatureEffect) -> Iterator[FeatureEffect]:
    """Yield the effect of biases; by the kind of inputs where they are right with another kind.

    What is wrong with these inputs and no biases is not theirs.
    """
    found = {case.inputs: own}
    for inputs in caller.candidate.offer["inputs"]:
        if inputs == case.inputs or not caller.running():
            continue
        other = case.replace(inputs=inputs, keys=case.queries if inputs == "self" else case.keys)
        biased, bare = (unmixed_problem(each) for each in (other, other.replace(bias="no")))
        trial = caller.ask_problems([biased])[0]
        effect = _bias_effect(caller, trial) if trial.found is not None else None
        if not effect or not any(each.wrong for each in caller.ask_problems([bare])):
            found[inputs] = FeatureEffect(own.name, effect, trial.largest_error)
    wrong = {inputs: each for inputs, each in found.items() if each.effect}
    if len(wrong) in {0, len(found)}:
        yield own
        return
    said: set[Effect | None] = set()
    for inputs, each in wrong.items():
        if each.cause not in said:
            ignored = each.cause == IGNORED
            cause = (
                Effect("biases have no effect")
                if ignored
                else each.cause and each.cause.within("with biases, ")
            )
            yield FeatureEffect(f"inputs={inputs}", cause, each.error)
        said.add(each.cause)


def _bias_effect(caller: Caller, trial: CallResult) -> Effect | None:
    return _ignored(trial, "bias") or _effect(caller, trial)


def _change(axis: str, value: str) -> dict[str, object]:
    """Return what a feature changes of a case: of grouped heads and value widths, the sizes."""
    if axis == "kv_heads":
        return dict(GROUPED)
    return {"v_head_dim": SIZES["head_dim"] + 3} if axis == "v_dim" else {axis: value}


def _shape(trial: CallResult, axis: str) -> Effect:
    found = () if trial.answer is None else np.shape(trial.answer.output)
    text = f"the output has the shape {found}, expected {trial.problem.output_shape}"
    return Effect(text, SCALE_REMEDY if axis == "scale" else "")


def _effect(caller: Caller, trial: CallResult) -> Effect | None:
    if not trial.wrong:
        return None
    variants = (*head_variants(trial.problem), *bias_variants(trial.problem))
    if effect := (
        answered_variant(trial, variants)
        or used_key_heads(trial)
        or _added_bias(trial)
        or _query_bias(caller, trial)
        or _scaled(caller, trial)
    ):
        return effect
    if order := index_permutation(trial):
        return Effect(order.text)
    if reshaped := reshaped_rows(trial):
        return reshaped
    spots = f" at {', '.join(places([trial]))}" if places([trial]) else ""
    text = contents([trial])
    return Effect(f"the output is {text or 'wrong'}{spots}")


def _scaled(caller: Caller, trial: CallResult) -> Effect | None:
    """Return the factor on all scores, where that is all."""
    reading = read_problem(caller, trial.problem)
    found = None if reading is None or reading.right else curve(reading)
    if found is None:
        return None
    slopes, misfit = slope(found)
    factor, root = float(slopes.mean()), trial.problem.head_dim**0.5
    if misfit > found.atol or np.ptp(slopes) > found.atol or abs(factor - 1) <= EXACT:
        return None
    laws = {"1/sqrt(D)": 1 / root, "sqrt(D)": root, "1/D": root**-2}
    law = next((f" = {text}" for text, number in laws.items() if abs(factor - number) < EXACT), "")
    return Effect(f"the scores are multiplied by {factor:.4g}{law} besides the scale")


def _ignored(trial: CallResult, axis: str) -> Effect | None:
    """Return that a feature has no effect, where the output is the one expected without it."""
    if axis not in ARRAYS or not trial.wrong:
        return None
    case = trial.problem.case.replace(**{axis: PLAIN[axis]})
    bare = trial.problem.replace(case=case, **dict.fromkeys(ARRAYS[axis]))
    return None if CallResult(bare, trial.answer).wrong else IGNORED


def _added_bias(trial: CallResult) -> Effect | None:
    """Return how many times a bias is added to v or to the output, where that is all."""
    problem, found = trial.problem, trial.found
    biases = (("v", problem.b_v, ""), ("the output projection", problem.b_out, OUTPUT_BIAS))
    for name, bias, remedy in biases:
        if bias is None or not bias.any() or found is None:
            continue
        vector = trial.by_head(np.broadcast_to(bias, problem.output_shape))
        difference = found - trial.expected
        more = float((difference * vector).sum() / (vector * vector).sum())
        if np.abs(difference - more * vector).max() <= WRONG * trial.allowed:
            return Effect(_counted(name, 1 + more), remedy)
    return None


def _counted(name: str, times: float) -> str:
    if abs(times) < EXACT:
        return f"the bias of {name} is not added"
    return f"the bias of {name} is added {times:.4g} times, expected once"


def _query_bias(caller: Caller, trial: CallResult) -> Effect | None:
    """Return how many times the bias of q is added, from what it adds to the scores."""
    problem = trial.problem
    reading = None if problem.b_q is None else read_problem(caller, problem)
    found = None if reading is None else curve(reading)
    if reading is None or found is None or reading.right:
        return None
    scores = found.relative(_bias_scores(problem, reading.key, found.y.shape))
    x, rest = scores[found.usable], (found.y - found.x)[found.usable]
    more = float(x @ rest) / max(float(x @ x), 1e-300)
    if np.abs(rest - more * x).max(initial=0) > found.atol:
        return None
    root = abs(1 + more - problem.head_dim**0.5) < EXACT
    why = " (sqrt(D): q is scaled before its bias is added)" if root else ""
    return Effect(_counted("q", 1 + more) + why)


def _bias_scores(problem: Problem, key: Array, shape: tuple[int, ...]) -> Array:
    """Return what the bias of q adds to the scores, (H, L, S)."""
    bias = np.asarray(problem.b_q, dtype=np.float64).reshape(problem.num_heads, 1, -1)
    return np.broadcast_to(problem.scale * (bias @ key.swapaxes(-1, -2)), shape)
