"""Keys that a mask hides and terms that it adds, against those expected."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.masks import TILE, may_hide_by_numbers
from mha_parity.catalogue import Attention
from mha_parity.diagnose.experiments.arrays import moved_elements
from mha_parity.diagnose.experiments.designs.calls import CallResult, unmixed_problem
from mha_parity.diagnose.experiments.designs.effect import Effect, FeatureEffect
from mha_parity.diagnose.experiments.designs.shortest_rules import TILES, index_runs
from mha_parity.diagnose.experiments.designs.variants import (
    answered_variant,
    mask_variants,
    without_masks,
)
from mha_parity.diagnose.experiments.designs.weights_from_output import SampleWeights, read_problem
from mha_parity.diagnose.experiments.masks.hidden_scores import LEAST, hidden_scores
from mha_parity.diagnose.experiments.masks.influence import (
    BEHIND_SOFTMAX,
    irregular,
    visibility,
    visible_rule,
)
from mha_parity.diagnose.experiments.masks.rescaled_scores import rescaled
from mha_parity.diagnose.experiments.masks.visible_keys import (
    AFTER,
    IN_SCORES,
    SEE_ALL,
    effect_of_rule,
)
from mha_parity.diagnose.experiments.scores.transfer_curve import RESCALED, curve, tile_offset
from mha_parity.diagnose.read_weights import ATOL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.diagnose.experiments.designs.calls import Caller

AXES = {"padding": ("bool", "float", "lengths"),
        "attn": ("bool2d", "float2d", "bool3d", "float3d", "causal")}  # fmt: skip
SIZES: dict[str, object] = {
    "batch": 2, "queries": 7, "keys": 9, "heads_count": 3, "head_dim": 11,
}  # fmt: skip
N_IS_H, SQUARE = " where N = H", " where L = S"
# What a mask may depend on: equal sizes of two axes, more samples, the scale, another code path.
CHANGES: dict[str, dict[str, object]] = {
    "": {},
    SQUARE: {"queries": 9},
    " at L = 1": {"queries": 1},
    " at N = 6": {"batch": 6},
    " where N = L": {"batch": 7},
    N_IS_H: {"batch": 3},
    " at D = 67": {"head_dim": 67},
    " and bias_kv=yes": {"bias_kv": "yes"},
    " and zero_attn=yes": {"zero_attn": "yes"},
    " at L = 131, S = 137": {"batch": 1, "queries": 131, "keys": 137, "heads_count": 1},
    " at L = S = 131": {"batch": 1, "queries": 131, "keys": 131, "heads_count": 1},
}
# The values of a layer show as many keys as its input has columns.
READABLE = {"head_dim": 139}
RESOLVED = 100  # times what a weight is read to: an output that is less off says nothing of them
ALONE, PAIRED = 16, 4  # seeds with which a mask is tried, and two at once
RETURNED, WITHOUT = " with returned weights", " without returned weights"
HIDDEN_QUERIES = Effect(
    "it hides the rows of queries that it marks, not keys",
    "give the mask (N, S) the shape (N, 1, 1, S): its last axis is that of keys",
)
NAN_OF_HIDDEN = Effect(
    "rows with a hidden key are NaN", "let -inf reach the exponential alone: 0 times -inf is NaN"
)
BEHIND = Effect("the weights are right, the output is not", understood=False)
OF_BOTH = "hide a key where either mask hides it, and add both where they are float"


@dataclass(frozen=True)
class MaskEffect(FeatureEffect):
    """One kind of mask: what it does in place of what it should.

    ``trial`` is the call. ``always``: it is wrong in every way in which the mask is passed.
    """

    trial: CallResult
    always: bool = False

    @property
    def kind(self) -> str:
        """The value on the axis of its mask, of the second of two: "causal"."""
        return str(re.findall(r"(?:padding|attn)=(\w+)", self.name)[-1])


def masks(caller: Caller, *, plain_wrong: bool = False) -> Iterator[MaskEffect]:
    """Yield what each kind of mask does that is offered and answered.

    Where problems without a mask are wrong, only which keys are seen can be held against it.
    """
    for axis, kinds in AXES.items():
        for kind in kinds:
            if kind not in caller.candidate.offer[axis] or not caller.running():
                continue
            designs, always = _in_every_way(caller, _designs(caller, {axis: kind}), ALONE)
            found = list(_effects(caller, designs[:1] if plain_wrong else designs, plain_wrong))
            wrong = [each for each in found if each.effect]
            chosen = ([each for each in wrong if each.understood] or wrong or found)[:1]
            yield from (replace(each, always=always) for each in chosen)


def mask_pairs(caller: Caller) -> Iterator[MaskEffect]:
    """Yield what is wrong where two masks are given at once, of masks that are right alone."""
    offer = caller.candidate.offer
    for padding in (kind for kind in AXES["padding"] if kind in offer["padding"]):
        for attn in (kind for kind in AXES["attn"] if kind in offer["attn"]):
            if not caller.running():
                return
            both = _designs(caller, {"padding": padding, "attn": attn})
            # A switch of the causal rule may be passed at L = S alone, and a mask for it elsewhere.
            square = [each for each in both if each[0].endswith(SQUARE)] if attn == "causal" else []
            chosen = [_in_every_way(caller, [each], PAIRED)[0] for each in (*both[:1], *square)]
            designs = [*itertools.chain.from_iterable(chosen)]
            found = [e for e in _effects(caller, designs, plain_wrong=False) if e.effect]
            for each in ([each for each in found if each.understood] or found)[:1]:
                text = caller.with_parameter(each.effect, each.trial.problem)
                yield replace(each, cause=each.cause and replace(each.cause, text=text))


def _designs(caller: Caller, mask: dict[str, str]) -> list[tuple[str, Case]]:
    """Return the cases with one mask, each with what is particular of it."""
    sizes = dict(SIZES)
    if caller.base.heads_count == 1 or caller.base.kv_heads == "fewer":
        sizes["heads_count"] = caller.base.heads_count
    shown: dict[str, object] = {"weights": caller.candidate.offer["weights"][-1]}
    changes = {**CHANGES, RETURNED: shown}
    name = " and ".join(f"{axis}={kind}" for axis, kind in mask.items())
    cases: dict[Case, str] = {}
    offer = caller.candidate.offer
    changes[N_IS_H] = {"batch": caller.case(**sizes).heads_count}
    for where, change in changes.items():
        if any(value not in offer[axis] for axis, value in change.items() if axis in offer):
            continue
        if not all(map(caller.varies, {"head_dim"} & change.keys())):
            continue
        long = READABLE if "keys" in change and caller.base.form == "mha" else {}
        case = caller.case(**{**sizes, **long, **change}, **mask)
        if case.keys != change.get("keys", case.keys):  # in self-attention S follows L
            continue
        cases.setdefault(case.replace(seed=_pattern_seeds(case, 1)[0]), name + where)
    return [(where, case) for case, where in cases.items()]


def _in_every_way(
    caller: Caller, designs: Sequence[tuple[str, Case]], ways: int
) -> tuple[list[tuple[str, Case]], bool]:
    """Return the designs, the first and the longest with a seed whose call is wrong, if one is.

    The seed chooses in which of several ways a mask is passed, and whether it hides whole tiles.
    The second value: whether all seeds of the first design are wrong.
    """
    found, always = [], False
    for i, (name, case) in enumerate(designs):
        most = ways if i == 0 or case.keys > TILE else 1
        seeds = _pattern_seeds(case, most)
        trials = (
            caller.ask_problems([unmixed_problem(case.replace(seed=s)) for s in seeds])
            if most > 1
            else []
        )
        wrong = next((s for s, t in zip(seeds, trials, strict=False) if t.wrong), seeds[0])
        found.append((name, case.replace(seed=wrong)))
        always = all(t.wrong for t in trials) if i == 0 else always
    return found, always


def _pattern_seeds(case: Case, number: int) -> list[int]:
    """Return seeds of which none hides by a finite number, or lowers a row: no pattern to read."""
    seeds = (seed for seed in count(case.seed) if not may_hide_by_numbers(case, seed))
    return list(islice(seeds, number))


def _effects(
    caller: Caller, designs: Sequence[tuple[str, Case]], plain_wrong: bool
) -> Iterator[MaskEffect]:
    """Yield the effect of a mask in one design after the other, until one shows what it is."""
    for name, case in designs:
        trial = caller.ask_problems([unmixed_problem(case)])[0]
        if trial.found is None:
            continue
        effect = _effect(caller, trial, plain_wrong)
        # Of two masks, the keys that are seen do not show which one is read wrongly.
        of_two = "none" not in {case.padding, case.attn}
        if effect and (not effect.remedy or (of_two and effect.remedy == SEE_ALL)):
            effect = replace(effect, remedy=OF_BOTH if of_two else IN_SCORES)
        alone = effect and not plain_wrong and _is_right_with_weights(caller, case)
        found = MaskEffect(f"{name}{WITHOUT if alone else ''}", effect, trial.largest_error, trial)
        yield found
        if found.understood:
            return


def _is_right_with_weights(caller: Caller, case: Case) -> bool:
    """Return whether a case is answered rightly where weights are returned too."""
    shown = caller.candidate.offer["weights"][-1]
    if shown == case.weights:
        return False
    trial = caller.ask_problems([unmixed_problem(case.replace(weights=shown))])[0]
    return not trial.crashed and not trial.wrong


def _effect(caller: Caller, trial: CallResult, plain_wrong: bool) -> Effect | None:
    """Return what a mask does in place of what it should, in sample 0 and then in the last."""
    if not trial.wrong or moved_elements.is_left_out(caller.candidate, trial):
        return None
    problem = trial.problem
    known = (
        None
        if plain_wrong
        else _as_other_mask(trial)
        or moved_elements.index_permutation(trial)
        or moved_elements.blanked_rows(trial)
        or _with_zeros(caller, trial)
    )
    if known:
        return known
    was_read = False
    for sample in range(problem.case.batch):
        reading = read_problem(caller, problem, sample)
        was_read |= reading is not None
        if reading is None or reading.right:
            continue
        if not plain_wrong:
            return mask_effect(reading, unmasked(problem, sample), trial)
        if rule := visibility(reading):
            return effect_of_rule(rule)
    return None if plain_wrong else _unread(trial, was_read=was_read)


def _in_some_samples(trial: CallResult) -> str:
    """Return in which samples a mask has no effect, where it has the right one in others."""
    hidden = trial.problem.hidden()
    off = np.asarray(trial.off.any(axis=tuple(range(1, trial.off.ndim))))
    if not (hidden.any(axis=(1, 2, 3)) & ~off).any():
        return ""
    visible = (~hidden).sum(axis=(1, 2, 3))
    most = np.array_equal(off, visible == visible.max())
    which = ", that of the most visible keys" if most and off.sum() == 1 else ""
    return f" in sample {index_runs(np.flatnonzero(off))} of {off.size}{which}"


def _unread(trial: CallResult, *, was_read: bool) -> Effect:
    """Return what is known of a wrong output whose weights are right as far as they are read."""
    error = trial.largest_error
    if error <= RESOLVED * ATOL[trial.problem.case.dtype]:
        text = f"the output is {error:.2g} off, less than weights can be read to"
        return Effect(text, understood=False)
    if was_read:
        return BEHIND
    rows = np.flatnonzero(trial.off.any(axis=(0, 1, 3)))
    text = f"row {index_runs(rows)} of {trial.problem.case.queries} is wrong"
    return Effect(f"{text}, the weights cannot be read", understood=False)


def _as_other_mask(trial: CallResult) -> Effect | None:
    """Return for what the mask was taken, where the answer is right for that."""
    return answered_variant(trial, mask_variants(trial.problem)) or _hidden_queries(trial)


def _with_zeros(caller: Caller, trial: CallResult) -> Effect | None:
    """Return for what a float mask is taken that hides every key, where some numbers are 0."""
    problem = trial.problem
    for name in ("key_padding_mask", "attn_mask"):
        mask = getattr(problem, name)
        if mask is None or mask.dtype == np.bool_ or not (mask != 0).all():
            continue
        kept = np.cumsum(np.isfinite(mask), axis=-1) % 2 == 1  # the first finite one, and others
        zeros = problem.replace(**{name: np.where(kept & np.isfinite(mask), 0, mask)})
        changed = caller.ask_problems([zeros])[0]
        return answered_variant(changed, mask_variants(zeros))
    return None


def _hidden_queries(trial: CallResult) -> Effect | None:
    """Return that a padding mask hides rows in place of keys, where these rows alone are changed.

    All others are answered as without the mask.
    """
    mask, case = trial.problem.key_padding_mask, trial.problem.case
    if mask is None or case.queries != case.keys:
        return None
    bare = trial.problem.replace(case=case.replace(padding="none"), key_padding_mask=None)
    changed = CallResult(bare, trial.answer).off.any(axis=(1, 3))
    marked = mask if mask.dtype == np.bool_ else mask != 0
    # Where a sample's rows are all marked, or none is, other causes change the same ones.
    in_part = (marked.any(axis=1) & ~marked.all(axis=1)).any()
    return HIDDEN_QUERIES if in_part and np.array_equal(changed, marked) else None


def kept_keys(caller: Caller, found: MaskEffect) -> str:
    """Return which keys row i keeps under a mask, as read out: "0 … i"; "" without a rule."""
    reading = read_problem(caller, found.trial.problem)
    return "" if reading is None else visible_rule(reading)


def unmasked(problem: Problem, sample: int) -> Array:
    """Return the scores without any mask, (H, L, S), of one sample."""
    bare = Attention(without_masks(problem))
    bare.answer()
    return np.asarray(bare.stages["scores"][sample][..., : problem.key.shape[1]])


def mask_effect(reading: SampleWeights, plain: Array, trial: CallResult) -> Effect:
    """Return what the weights say of the mask; ``plain`` are the scores without it."""
    blank = np.isnan(reading.weights).any(axis=(0, 2))
    if blank.any():
        if tile := _hidden_tile(np.asarray(blank), ~reading.visible):
            return tile
        text = f"row {index_runs(np.flatnonzero(blank))} is NaN, as where no key is left"
        return Effect(text, understood=False)
    empty = np.asarray((reading.weights == 0).all(axis=(0, 2)) & reading.visible.any(axis=(0, 2)))
    if empty.any() and (tile := _hidden_tile(empty, ~reading.visible, "0")):
        return tile
    top = plain.max(axis=-1, keepdims=True)
    bare = np.exp(plain - top)
    bare = bare / bare.sum(axis=-1, keepdims=True)
    atol = 10 * reading.noise
    weights, hidden = reading.weights, ~reading.visible
    if np.abs(weights - bare).max() <= atol:
        return Effect(f"the mask has no effect{_in_some_samples(trial)}")
    if np.abs(weights - np.where(hidden, 0, bare)).max() <= atol:
        return Effect(BEHIND_SOFTMAX, operation=AFTER)
    return (
        hidden_scores(reading, plain)
        or _added(reading, plain, bare)
        or rescaled(reading, plain)
        or effect_of_rule(visibility(reading) or irregular(reading))
        or _between_tiles(reading)
        or Effect("weights of visible keys are wrong by no rule that was tried", understood=False)
    )


def _between_tiles(reading: SampleWeights) -> Effect | None:
    """Return that tiles of keys are merged wrongly, where within each the weights are right.

    Few keys are cut in tiles of as few, within which two weights are right by chance.
    """
    found = curve(reading) if reading.weights.shape[-1] > TILE else None
    merged = None if found is None else tile_offset(found)
    return merged and replace(merged, remedy=RESCALED)


def _hidden_tile(blank: Array, hidden: Array, come_to: str = "NaN") -> Effect | None:
    """Return that a tile of keys that are all hidden makes a row NaN or 0, and no other; or None.

    The first tile alone, or any: the rows of one mask seldom tell.
    """
    # Of more keys masks hide many or none, so that both rules fit; few keys come first.
    few = hidden.shape[-1] == SIZES["keys"] and come_to == "NaN"
    if few and np.array_equal(hidden.any(axis=(0, 2)), blank):
        return NAN_OF_HIDDEN
    for tile in TILES:
        starts = range(0, hidden.shape[-1], tile)
        rows = [hidden[..., start : start + tile].all(axis=-1).any(axis=0) for start in starts]
        if np.array_equal(rows[0], blank) or np.array_equal(np.any(rows, axis=0), blank):
            return Effect(
                f"rows for which a whole tile of keys is hidden are {come_to}",
                "take 0 for a running maximum of -inf before it is subtracted",
            )
    return None


def _added(reading: SampleWeights, plain: Array, bare: Array) -> Effect | None:
    """Return the factor on a float mask, or that it is added to the weights."""
    mask = np.where(reading.visible, reading.scores - plain, 0)
    found = curve(reading)
    if np.abs(mask).max() == 0:
        return None
    rest = reading.weights - bare
    factor = float((rest * mask).sum() / (mask * mask).sum())
    if np.abs(rest - factor * mask)[reading.visible].max() <= 10 * reading.noise:
        return Effect("the mask is added to the weights, after the softmax")
    if found is None:
        return None
    x = np.stack([found.relative(plain), found.relative(mask)], axis=-1)[found.usable]
    factors = np.linalg.lstsq(x, found.y[found.usable], rcond=None)[0]
    misfit = np.abs(x @ factors - found.y[found.usable]).max()
    if misfit > found.atol or abs(factors[1] - 1) <= LEAST:  # a mask that is added as it should be
        return None
    scale = reading.problem.scale
    law = " = 1/sqrt(D)" if abs(factors[1] - scale) < LEAST * scale else ""
    by = f"{factors[1]:.4g}{law}"
    return Effect(f"the float mask is multiplied by {by} before it is added to the scores")
