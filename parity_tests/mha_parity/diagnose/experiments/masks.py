"""What a mask hides, and what it adds, against what it should."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue import Attention
from mha_parity.diagnose.experiments.calls import pose
from mha_parity.diagnose.experiments.influence import irregular, visibility, visible_rule
from mha_parity.diagnose.experiments.reading import SampleWeights, read_problem
from mha_parity.diagnose.experiments.transfer import curve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.diagnose.experiments.calls import Caller, CallResult

AXES = {"padding": ("bool", "float", "lengths"),
        "attn": ("bool2d", "float2d", "bool3d", "float3d", "causal")}  # fmt: skip
SIZES = {"batch": 2, "queries": 7, "keys": 9, "heads_count": 3, "head_dim": 11}
LEAST = 1e-3


@dataclass(frozen=True)
class MaskEffect:
    """One kind of mask: what it does in place of what it should ("" where it is right).

    ``error`` is the largest error of the output; ``trial`` the call.
    """

    name: str
    effect: str
    error: float
    trial: CallResult


def masks(caller: Caller, *, plain_wrong: bool = False) -> Iterator[MaskEffect]:
    """Yield what each kind of mask does that is offered and answered.

    Where problems without a mask are wrong, only which keys are seen can be held against it.
    """
    for axis, kinds in AXES.items():
        for kind in kinds:
            if kind not in caller.candidate.offer[axis] or not caller.running():
                continue
            sizes = SIZES if caller.base.heads_count > 1 else SIZES | {"heads_count": 1}
            trial = caller.pose([pose(caller.case(**sizes, **{axis: kind}))])[0]
            if trial.found is not None:
                error = float(np.nanmax(np.abs(trial.found - trial.expected), initial=0))
                yield MaskEffect(
                    f"{axis}={kind}", _effect(caller, trial, plain_wrong), error, trial
                )


def _effect(caller: Caller, trial: CallResult, plain_wrong: bool) -> str:
    """Return what a mask does in place of what it should, in sample 0 and then in the last."""
    if not trial.wrong:
        return ""
    problem = trial.problem
    for sample in range(problem.case.batch):
        reading = read_problem(caller, problem, sample)
        if reading is None or reading.right:
            continue
        if not plain_wrong:
            return mask_effect(reading, unmasked(problem, sample), sample)
        if rule := visibility(reading):
            return rule
    return "" if plain_wrong else "the weights are right, the output is not"


def kept_keys(caller: Caller, found: MaskEffect) -> str:
    """Return which keys row i keeps under a mask, as read out: "0 … i"; "" without a rule."""
    reading = read_problem(caller, found.trial.problem)
    return "" if reading is None else visible_rule(reading)


def unmasked(problem: Problem, sample: int) -> Array:
    """Return the scores without any mask, (H, L, S), of one sample."""
    case = problem.case.replace(padding="none", attn="none", masked_rows="none")
    bare = Attention(problem.replace(case=case, key_padding_mask=None, attn_mask=None))
    bare.answer()
    return np.asarray(bare.stages["scores"][sample][..., : problem.key.shape[1]])


def mask_effect(reading: SampleWeights, plain: Array, sample: int) -> str:
    """Return what the weights say of the mask; ``plain`` are the scores without it."""
    top = plain.max(axis=-1, keepdims=True)
    bare = np.exp(plain - top)
    bare = bare / bare.sum(axis=-1, keepdims=True)
    atol = 10 * reading.noise
    weights, hidden = reading.weights, ~reading.visible
    if np.abs(weights - bare).max() <= atol:
        return "the mask has no effect"
    if np.abs(weights - np.where(hidden, 0, bare)).max() <= atol:
        return "hidden weights are set to 0 after the softmax, and rows are not divided by their sum again"  # noqa: E501
    shapes = _patterns(reading, hidden, sample)
    zero = ~reading.seen
    for name, pattern in shapes:
        some = ~pattern.all(axis=-1)  # rows that would see no key may be anything
        if np.array_equal(zero[some], pattern[some]) and not np.array_equal(pattern, hidden):
            return name
    return (
        _filled(reading, plain, hidden)
        or _added(reading, plain, bare)
        or visibility(reading)
        or irregular(reading)
        or "weights of visible keys are wrong by no rule that was tried"
    )


def _patterns(reading: SampleWeights, hidden: Array, sample: int) -> Iterator[tuple[str, Array]]:
    """Yield what may be hidden in place of what should."""
    yield "the mask is inverted: what it marks is seen, the rest hidden", ~hidden
    if hidden.shape[-1] == hidden.shape[-2]:
        yield "the mask is applied transposed", hidden.swapaxes(-1, -2)
    problem = reading.problem
    every = problem.hidden()[..., : problem.key.shape[1]]
    n, heads = every.shape[:2]
    tiled = every.reshape(-1, *every.shape[2:])[np.arange(n * heads).reshape(heads, n).T[sample]]
    yield "masks of N * H rows are read as (H, N) in place of (N, H)", tiled
    for other in range(n):
        if other != sample:
            yield f"sample {sample} has the mask of sample {other}", every[other]
    yield "every head has the mask of head 0", np.broadcast_to(hidden[:1], hidden.shape)
    yield "heads have the masks in reverse order", hidden[::-1]
    for shift in (1, -1):
        yield f"the mask is shifted by {shift:+d} keys", np.roll(hidden, shift, axis=-1)
        yield f"the mask is shifted by {shift:+d} rows", np.roll(hidden, shift, axis=-2)


def _filled(reading: SampleWeights, plain: Array, hidden: Array) -> str:
    """Return the score that hidden keys get, or what is added to theirs, where it is one number."""
    weights = np.where(reading.weights > 1e-300, reading.weights, np.nan)
    if not (hidden & np.isfinite(weights)).any():
        return ""
    rows = np.where(hidden, np.nan, np.log(weights) - plain)
    scores = np.log(weights) - _row_medians(rows)
    elements = hidden & np.isfinite(scores) & (reading.weights > LEAST * reading.noise)
    if 2 * elements.sum() < hidden.sum():
        return ""
    fill, added = scores[elements], (scores - plain)[elements]
    if np.ptp(fill) <= LEAST:
        return f"hidden keys get the score {float(np.median(fill)):.4g}, not -inf"
    if np.ptp(added) <= LEAST < abs(np.median(added)):
        return f"hidden keys get {float(np.median(added)):.4g} added to their score, not -inf"
    return ""


def _row_medians(rows: Array) -> Array:
    """Return the median of each row's numbers, (..., 1); NaN where a row has none."""
    medians = np.full((*rows.shape[:-1], 1), np.nan)
    some = np.isfinite(rows).any(axis=-1)
    medians[some, 0] = np.nanmedian(rows[some], axis=-1)
    return medians


def _added(reading: SampleWeights, plain: Array, bare: Array) -> str:
    """Return the factor on a float mask, or that it is added to the weights."""
    mask = np.where(reading.visible, reading.scores - plain, 0)
    found = curve(reading)
    if np.abs(mask).max() == 0:
        return ""
    rest = reading.weights - bare
    factor = float((rest * mask).sum() / (mask * mask).sum())
    if np.abs(rest - factor * mask)[reading.visible].max() <= 10 * reading.noise:
        return "the mask is added to the weights, after the softmax"
    if found is None:
        return ""
    x = np.stack([found.relative(plain), found.relative(mask)], axis=-1)[found.usable]
    factors = np.linalg.lstsq(x, found.y[found.usable], rcond=None)[0]
    if np.abs(x @ factors - found.y[found.usable]).max() > found.atol:
        return ""
    scale = reading.problem.scale
    law = " = 1/sqrt(D)" if abs(factors[1] - scale) < LEAST * scale else ""
    return f"the float mask is multiplied by {factors[1]:.4g}{law} before it is added to the scores"
