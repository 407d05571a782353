"""What a mask hides, and what it adds, against what it should."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import may_hide_by_numbers
from mha_parity.catalogue import Attention
from mha_parity.diagnose.experiments.calls import pose
from mha_parity.diagnose.experiments.influence import irregular, visibility, visible_rule
from mha_parity.diagnose.experiments.reading import NOISE, SampleWeights, read_problem
from mha_parity.diagnose.experiments.transfer import curve

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.diagnose.experiments.calls import Caller, CallResult

AXES = {"padding": ("bool", "float", "lengths"),
        "attn": ("bool2d", "float2d", "bool3d", "float3d", "causal")}  # fmt: skip
SIZES: dict[str, object] = {
    "batch": 2, "queries": 7, "keys": 9, "heads_count": 3, "head_dim": 11,
}  # fmt: skip
# What a mask may depend on: equal sizes of two axes, the scale, another code path.
CHANGES: dict[str, dict[str, object]] = {
    "": {},
    " where L = S": {"queries": 9},
    " where N = L": {"batch": 7},
    " where N = H": {"batch": 3},
    " at D = 67": {"head_dim": 67},
}
LEAST = 1e-3
RESOLVED = 100  # times what a weight is read to: an output that is less off says nothing of them
RETURNED, WITHOUT = " with returned weights", " without returned weights"
UNREAD = "less than weights can be read to"
BEHIND = "the weights are right, the output is not"


@dataclass(frozen=True)
class MaskEffect:
    """One kind of mask: what it does in place of what it should ("" where it is right).

    ``error`` is the largest error of the output; ``trial`` the call.
    """

    name: str
    effect: str
    error: float
    trial: CallResult

    @property
    def understood(self) -> bool:
        """Whether the weights show what the mask does."""
        return bool(self.effect) and not self.effect.endswith((BEHIND, UNREAD))


def masks(caller: Caller, *, plain_wrong: bool = False) -> Iterator[MaskEffect]:
    """Yield what each kind of mask does that is offered and answered.

    Where problems without a mask are wrong, only which keys are seen can be held against it.
    """
    for axis, kinds in AXES.items():
        for kind in kinds:
            if kind not in caller.candidate.offer[axis] or not caller.running():
                continue
            designs = _designs(caller, {axis: kind})
            found = list(_effects(caller, designs[:1] if plain_wrong else designs, plain_wrong))
            wrong = [each for each in found if each.effect]
            yield from ([each for each in wrong if each.understood] or wrong or found)[:1]


def _designs(caller: Caller, mask: dict[str, str]) -> list[tuple[str, Case]]:
    """Return the cases with one mask, each with what is particular of it."""
    sizes = dict(SIZES)
    if caller.base.heads_count == 1 or caller.base.kv_heads == "fewer":
        sizes["heads_count"] = caller.base.heads_count
    shown: dict[str, object] = {"weights": caller.candidate.offer["weights"][-1]}
    changes = {**CHANGES, RETURNED: shown}
    name = "=".join(*mask.items())
    cases: dict[Case, str] = {}
    for where, change in changes.items():
        case = caller.case(**{**sizes, **change}, **mask)
        # What is hidden by a finite number, and a row that is lowered, is no pattern to read out.
        seeds = (seed for seed in count(case.seed) if not may_hide_by_numbers(case, seed))
        cases.setdefault(case.replace(seed=next(seeds)), name + where)
    return [(where, case) for case, where in cases.items()]


def _effects(
    caller: Caller, designs: Sequence[tuple[str, Case]], plain_wrong: bool
) -> Iterator[MaskEffect]:
    """Yield the effect of a mask in one design after the other, until one shows what it is."""
    for name, case in designs:
        trial = caller.pose([pose(case)])[0]
        if trial.found is None:
            continue
        effect = _effect(caller, trial, plain_wrong)
        alone = effect and not plain_wrong and _is_right_with_weights(caller, case)
        found = MaskEffect(f"{name}{WITHOUT if alone else ''}", effect, _error(trial), trial)
        yield found
        if found.understood:
            return


def _is_right_with_weights(caller: Caller, case: Case) -> bool:
    """Return whether a case is answered rightly where weights are returned too."""
    shown = caller.candidate.offer["weights"][-1]
    if shown == case.weights:
        return False
    trial = caller.pose([pose(case.replace(weights=shown))])[0]
    return not trial.crashed and not trial.wrong


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
    if plain_wrong:
        return ""
    error = _error(trial)
    if error <= RESOLVED * NOISE[problem.case.dtype]:
        return f"the output is {error:.2g} off, {UNREAD}"
    return BEHIND


def _error(trial: CallResult) -> float:
    """Return the largest error of the output."""
    found = trial.expected if trial.found is None else trial.found
    return float(np.nanmax(np.abs(found - trial.expected), initial=0))


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
        score = _scaled(float(np.median(fill)), reading.problem)
        return f"hidden keys get the score {score}, not -inf"
    if np.ptp(added) <= LEAST < abs(np.median(added)):
        return f"hidden keys get {float(np.median(added)):.4g} added to their score, not -inf"
    return ""


def _scaled(fill: float, problem: Problem) -> str:
    """Return a score, and what it is before the scale where that is the rounder number."""
    before = fill / problem.scale
    whole = abs(before - round(before)) < LEAST < abs(fill - round(fill))
    return f"{fill:.4g}" + (f" ({before:.0f} before it is scaled)" if whole else "")


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
