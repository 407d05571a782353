"""Which stage of attention the returned weights are, where they are not the weights."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue import Attention
from mha_parity.checks.altered_problems import CASE_AXES
from mha_parity.core.arrays import softmax
from mha_parity.core.compare import as_float64
from mha_parity.diagnose.experiments.designs.calls import WRONG, unmixed_problem
from mha_parity.diagnose.experiments.designs.weights_from_output import reading_of
from mha_parity.diagnose.experiments.masks.masks import AXES, PAIRED, SIZES
from mha_parity.diagnose.experiments.scores.transfer_curve import curve, tile_offset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.diagnose.experiments.designs.calls import Caller, CallResult

LONG = 70  # rows and keys: more than a tile of 64, and a rest


def returned(caller: Caller) -> Iterator[str]:
    """Yield what the returned weights are in place of those that the right output mixes with."""
    sizes = dict(SIZES)
    if caller.base.heads_count == 1 or caller.base.kv_heads == "fewer":
        sizes["heads_count"] = caller.base.heads_count
    offer = caller.candidate.offer
    offered = {axis: [k for k in kinds if k in offer[axis]] for axis, kinds in AXES.items()}
    masks = [{}, *({axis: k} for axis, kinds in offered.items() for k in kinds)]
    masks += [dict(zip(AXES, pair, strict=True)) for pair in product(*offered.values())]
    for kind in (k for k in offer["weights"] if k != "none"):
        for mask in masks:
            if not caller.running():
                return
            case = caller.case(**sizes, **mask, weights=kind)
            # Two masks are passed as two or as one, by the seed.
            seeds = range(case.seed, case.seed + (PAIRED if len(mask) > 1 else 1))
            problems = [unmixed_problem(case.replace(seed=seed)) for seed in seeds]
            trials = caller.ask_problems(problems)
            right = (each for each in trials if not (each.crashed or each.wrong))
            if text := next(filter(None, map(_stage, right)), ""):
                where = " and ".join(f"{axis}={value}" for axis, value in mask.items())
                where = where and f" with {where}"
                what = f"the returned weights (weights={kind}){where} are {text}"
                yield f"{what}; the output is right"
                break
        else:
            if text := _of_tiles(caller, kind):
                yield f"of the returned weights (weights={kind}) {text}; the output is right"


def _of_tiles(caller: Caller, kind: str) -> str:
    """Return by what returned weights of long rows are off from one tile of keys to the others."""
    heads = {"heads_count": 1, "kv_heads_count": 0} if kind == "averaged" else {}
    case = caller.case(queries=LONG, keys=LONG, weights=kind, batch=1, **heads)
    trial = caller.ask_problems([unmixed_problem(case)])[0]
    weights = None if trial.answer is None else trial.answer.weights
    if weights is None or trial.crashed or trial.wrong:
        return ""
    of_sample = as_float64(weights)[0]
    of_sample = of_sample[None] if kind == "averaged" else of_sample
    if of_sample.shape != (case.heads_count, LONG, LONG):
        return ""
    reading = reading_of(trial.problem, of_sample, 0)
    found = None if reading.right else curve(reading)
    merged = None if found is None else tile_offset(found)
    return merged.text if merged else ""


def _stage(trial: CallResult) -> str:
    """Return what the returned weights are; "" where they are right or none came."""
    weights = None if trial.answer is None else trial.answer.weights
    expected = _shown(trial.problem, trial.right.stages["weights"])
    if weights is None or _same(weights, expected, trial):
        return ""
    if _same(weights, expected.swapaxes(-1, -2), trial):
        return "transposed, (…, S, L) in place of (…, L, S)"
    if weights.shape != expected.shape:
        return f"of shape {weights.shape}, expected {expected.shape}"
    stages = dict(_stages(trial.problem, trial.right.stages))
    named = (n for n, a in stages.items() if _same(weights, _shown(trial.problem, a), trial))
    return next(named, "") or _shares(weights, trial) or _sums(as_float64(weights))


def _shares(weights: Array, trial: CallResult) -> str:
    """Return of how much of each head the mean is made, where it is a sum of them."""
    heads = trial.right.stages["weights"]
    if trial.problem.case.weights != "averaged" or heads.shape[1] < 2:
        return ""
    columns = as_float64(heads).swapaxes(0, 1).reshape(heads.shape[1], -1).T
    shares = np.linalg.lstsq(columns, as_float64(weights).ravel(), rcond=None)[0]
    made = (columns @ shares).reshape(weights.shape)
    if not _same(weights, made, trial):
        return ""
    # Of a head that is left out rounding errors are left, which 0.0 makes a 0 without a sign.
    listed = ", ".join(f"{round(each, 6) + 0.0:.4g}" for each in shares)
    count = len(shares)
    return f"{listed} times those of heads 0 … {count - 1}, expected 1/{count} of each"


def _stages(problem: Problem, stages: dict[str, Array]) -> Iterator[tuple[str, Array]]:
    weights, scores, masked = (stages[n] for n in ("weights", "scores", "masked scores"))
    powers = np.exp(masked - masked.max(axis=-1, keepdims=True, initial=-np.inf))
    with np.errstate(divide="ignore", invalid="ignore"):  # a scale may be 0
        yield "the scores before the softmax, mask included", masked
        yield "the scores before mask and softmax", scores
        yield "q k^T, neither scaled nor masked", scores / problem.scale
        yield "the logarithms of the weights", np.log(weights)
    yield "the exponentials, not divided by their sum", powers
    yield "the weights without the mask", softmax(scores)
    visible = np.where(weights > 0, softmax(scores), 0)
    yield "the weights without the mask, and 0 where it hides: not divided by their sum", visible
    yield "the weights before they are scaled by 1/sqrt(D)", weights * problem.scale
    for name, axis in CASE_AXES.items():
        if getattr(problem, name) is not None:
            yield f"the weights without {name}", _weights_without(problem, name, axis)
    mean = softmax(masked.mean(axis=1, keepdims=True))
    yield "the softmax of the mean scores over the heads", np.broadcast_to(mean, weights.shape)
    yield from _over_heads(weights)


def _weights_without(problem: Problem, name: str, axis: str) -> Array:
    """Return the weights (N, H, L, S) of a problem without one of its masks."""
    case = problem.case.replace(**{axis: "none"})
    right = Attention(problem.replace(case=case, **{name: None}))
    right.answer()
    return right.stages["weights"]


def _over_heads(weights: Array) -> Iterator[tuple[str, Array]]:
    """Yield what may be made of the heads in place of keeping them or taking their mean."""
    whole = weights.shape
    yield "the sum over the heads, not their mean", weights * whole[1]
    yield "the weights of head 0 alone", np.broadcast_to(weights[:, :1], whole)
    yield "the weights of the last head alone", np.broadcast_to(weights[:, -1:], whole)
    yield "the largest over the heads", np.broadcast_to(weights.max(axis=1, keepdims=True), whole)
    yield "the mean over the heads", np.broadcast_to(weights.mean(axis=1, keepdims=True), whole)
    yield "the weights with the heads in reverse order", weights[:, ::-1]
    read = weights.reshape(whole[1], whole[0], *whole[2:]).swapaxes(0, 1)
    yield "the weights with N * H rows read as (H, N) in place of (N, H)", read
    yield "the weights with samples and heads exchanged", weights.swapaxes(0, 1).reshape(whole)


def _shown(problem: Problem, array: Array) -> Array:
    """Return the array as weights of its kind are returned: by head, or their mean."""
    return np.asarray(array.mean(axis=1) if problem.case.weights == "averaged" else array)


def _same(found: Array, expected: Array, trial: CallResult) -> bool:
    if found.shape != expected.shape:
        return False
    one, other = as_float64(found), as_float64(expected)
    usable = np.isfinite(other) & (other > -1e4)  # a finite number may stand for -inf
    height = max(1.0, float(np.abs(other[usable]).max(initial=0)))
    with np.errstate(invalid="ignore"):
        close = np.abs(one - other) <= WRONG * trial.allowed * height
    return bool(close[usable].all()) and bool((one[~usable] < -1e3).all() or usable.all())


def _sums(weights: Array) -> str:
    """Return what is odd of weights that are no stage."""
    sums = weights.sum(axis=-1)
    return f"no stage that was tried; their rows sum to {sums.min():.4g} … {sums.max():.4g}"
