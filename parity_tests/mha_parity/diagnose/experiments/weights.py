"""Experiments on the weights alone: at several sizes, from the first that departs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.designs.other_order import (
    SAME_ORDER,
    SWAP_AXES,
    other_order,
    reshaped_keys,
)
from mha_parity.diagnose.experiments.designs.shortest_rules import (
    EVERYWHERE,
    OffIndices,
    index_rule,
)
from mha_parity.diagnose.experiments.designs.weights_from_output import (
    SampleWeights,
    read_case_weights,
)
from mha_parity.diagnose.experiments.masks.hidden_scores import causal_fill
from mha_parity.diagnose.experiments.masks.influence import irregular
from mha_parity.diagnose.experiments.masks.visible_keys import skipped_at_peaks, wrong_keys
from mha_parity.diagnose.experiments.scores import score_functions, transfer_curve
from mha_parity.diagnose.experiments.scores.added_scores import COUNTED, added
from mha_parity.diagnose.experiments.scores.added_values import added_values
from mha_parity.diagnose.experiments.scores.denominators import denominator
from mha_parity.diagnose.experiments.scores.row_factors import row_factors
from mha_parity.diagnose.experiments.scores.scale import (
    EXACT,
    PRECISELY,
    RIGHT_LAW,
    ROOT_ROUNDED,
    ROUNDED,
    in_float32,
    law,
    measured,
    with_addend,
)
from mha_parity.diagnose.experiments.scores.single_key_weights import of_one_key
from mha_parity.diagnose.experiments.scores.skipped_tiles import skipped_tiles
from mha_parity.diagnose.experiments.scores.small_weights import small_weights
from mha_parity.diagnose.experiments.scores.unwritten_rows import (
    empty_heads,
    empty_rows,
    repeated_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.designs.calls import Caller, CallResult

# Widths of several residues modulo 4 and 8; lengths within a tile and beyond tiles of 64 and 128,
# with tails of unlike lengths for tiles of 16, 32, 64 and 128.
SMALL = {"batch": 1, "queries": 6, "keys": 24, "head_dim": 13}
MEDIUM = {"batch": 1, "queries": 101, "keys": 127, "head_dim": 131}
LARGE = {"batch": 1, "queries": 167, "keys": 191, "head_dim": 193}
LARGER = {"batch": 1, "queries": 299, "keys": 319, "head_dim": 321}
PROJECTED = {**SMALL, "keys": 11}  # a layer of one head shows no more keys than it has columns
# Or mixes the heads of a position: all have the same values where weights are read.
OWN_ALONE = "no key of another position has a part in a row, whatever the scores"
POSITIONS = "take the product of q and k, and that of the weights and v, over the axis of positions"
LEAST_FACTOR = 1e-6  # a factor nearer to 0 than that is none, nor are factors that differ by more
NEARLY_1 = 1e-3  # rows of weights that miss 1 by less are measured as sums
LEAST_MISS = 1e-4  # of the worst miss: a reading that misses by less has another cause
NEARLY_EXP = 1e-2  # of a logarithm: a formula of other q or k misses by more
OF_FLOAT32 = 2.0**-20  # by which logarithms miss a line that are computed in float32


def readings(caller: Caller) -> Iterator[SampleWeights]:
    """Yield weights read at growing sizes, then at scores with a standard deviation of 10.

    The largest size is read where no smaller one shows anything, and longer rows of such scores
    where plain ones show nothing.
    """
    heads = 1 if caller.base.heads_count == 1 else 2
    one_head = caller.base.form == "mha" and heads == 1
    small: dict[str, object] = {**(PROJECTED if one_head else SMALL), "heads_count": heads}
    plain: list[dict[str, object]] = [
        small,
        {**MEDIUM, "heads_count": heads},
        {**LARGE, "heads_count": 1},
    ]
    found = []
    for design in (*plain, {**small, "regime": "peaky"}):
        reading = read_case_weights(caller, caller.case(**design)) if caller.running() else None
        found += [] if reading is None else [reading]
    yield from found
    wrong = [each.problem.case.regime for each in found if not each.right]
    further: list[dict[str, object]] = [] if wrong else [{**LARGER, "heads_count": 1}]
    further += [] if "normal" in wrong else [{**MEDIUM, "heads_count": 1, "regime": "peaky"}]
    for design in further:
        reading = read_case_weights(caller, caller.case(**design)) if caller.running() else None
        yield from [] if reading is None else [reading]


def causes(caller: Caller, found: list[SampleWeights]) -> list[Effect]:
    """Return why weights depart; where none does, a scale may be off by less than one shows."""
    wrong = [each for each in found if not each.right]
    if not wrong:
        return [each for each in (with_addend(caller),) if each]
    found_first = (
        empty_heads(wrong)
        or empty_rows(wrong)
        or _multiplied(wrong)
        or repeated_rows(wrong)
        or _mixed(wrong)
        or _in_other_order(wrong)
        or _reshaped(wrong)
        or _other_axis(wrong[0])
        or causal_fill(wrong[0])
        or wrong_keys(wrong)
    )
    if found_first:
        return [found_first]
    curves = [each for each in map(transfer_curve.curve, _as_wrong(wrong)) if each is not None]
    curves.sort(key=lambda c: c.reading.problem.case.regime != "normal")
    widths = [each.problem.head_dim for each in found if each.right]
    for i, each in enumerate(curves):
        if cause := _bent(caller, each, curves[i + 1 :], widths):
            return [cause]
    if some := _of_some_rows(caller, wrong, widths) or skipped_at_peaks(wrong):
        return [some]
    return [_unknown(wrong[0], curves[0] if curves else None)]


def _as_wrong(wrong: Sequence[SampleWeights]) -> list[SampleWeights]:
    """Return the readings that are off by a share of the worst: no other speaks for that one."""
    off = [float(np.abs(each.weights - each.expected).max()) for each in wrong]
    worst = max((min(miss, 1.0) for miss in off if math.isfinite(miss)), default=0.0)
    return [each for each, miss in zip(wrong, off, strict=True) if not miss < LEAST_MISS * worst]


def causes_of_rows(
    caller: Caller, wrong: Sequence[CallResult], found: list[SampleWeights]
) -> list[Effect]:
    """Return with what rows are multiplied, or what is added to weights or done to small ones."""
    factor = added_values(wrong) or row_factors(wrong, found)
    if factor is None or not factor.understood:
        factor = small_weights(caller) or factor
    return [] if factor is None else [factor]


def causes_of_falling_scores(caller: Caller) -> list[Effect]:
    """Return the skipped tiles that only decreasing scores reveal."""
    reading = read_case_weights(caller, caller.case(**LARGE, heads_count=1, regime="falling"))
    found = None if reading is None or reading.right else skipped_tiles([reading])
    return [found] if found else []


def _of_some_rows(
    caller: Caller, wrong: Sequence[SampleWeights], widths: Sequence[int]
) -> Effect | None:
    """Return what fits the wrong rows where these follow a rule and all other rows are right."""
    seen = []
    for each in wrong:
        near = np.abs(each.weights - each.expected) <= 10 * each.noise
        alone = each.visible.sum(axis=-1).max(axis=0) < 2  # one key has the weight 1, whatever else
        off = np.flatnonzero(~near.all(axis=(0, 2)) | alone)
        seen.append(OffIndices(len(alone), frozenset(off.tolist())))
    rule = index_rule("row", seen)
    if rule is None or rule == EVERYWHERE:
        return None
    for each, rows in zip(wrong, seen, strict=True):
        at = sorted(rows.off)
        arrays = {n: getattr(each, n)[:, at] for n in ("weights", "expected", "scores", "query")}
        found = transfer_curve.curve(replace(each, **arrays))
        cause = None if found is None else _bent(caller, found, [], widths)
        if cause is not None and cause.understood:
            return replace(
                cause, text=f"in {rule}: {cause.text}; all others are right", operation=""
            )
    return None


def _multiplied(wrong: list[SampleWeights]) -> Effect | None:
    """Return the one factor that all weights are multiplied with, and are right but for it."""
    factors = []
    for each in wrong:
        factor = float(np.vdot(each.expected, each.weights) / np.vdot(each.expected, each.expected))
        rest = np.abs(each.weights - factor * each.expected).max()
        if not rest <= 10 * each.noise * max(abs(factor), 1):
            return None
        factors.append(factor)
    if abs(factors[0]) <= LEAST_FACTOR or abs(factors[0] - 1) <= NEARLY_1:
        return None
    if np.ptp(factors) > LEAST_FACTOR * abs(factors[0]):
        return None
    return Effect(
        f"all weights are {factors[0]:.6g} times what they should be: their rows sum to "
        f"{factors[0]:.6g}, expected 1",
        "multiply the output by nothing after the softmax",
    )


def _mixed(wrong: list[SampleWeights]) -> Effect | None:
    """Return what is added to the right weights: one number for all keys, or a row's own key."""
    found = []
    for each in wrong:
        parts = np.stack(
            [
                each.expected,
                each.visible / each.visible.sum(axis=-1, keepdims=True),
                np.broadcast_to(np.eye(*each.expected.shape[1:]), each.expected.shape),
            ]
        )
        solved = np.linalg.lstsq(parts.reshape(3, -1).T, each.weights.ravel(), rcond=None)[0]
        rest = np.abs(each.weights - np.tensordot(solved, parts, 1)).max()
        if not rest <= 10 * each.noise or np.abs(solved[1:]).max() <= 100 * each.noise:
            return None
        found.append(solved)
    right, mean, own = found[0]
    if np.ptp(found, axis=0).max() > 1e-6:
        return None
    if max(abs(right), abs(mean), abs(own - 1)) <= 1e-6:
        return Effect(OWN_ALONE, POSITIONS, understood=False)
    listed = ["P"] if abs(right - 1) <= 1e-6 else [f"{right:.6g} P"] if abs(right) > 1e-6 else []
    for size, place in ((mean, "/S"), (own, " at j = i")):
        sign = "- " if size < 0 else "+ " if listed else ""
        listed += [f"{sign}{abs(size):.6g}{place}"] if abs(size) > 1e-6 else []
    means = abs(mean + 1) <= 1e-6 and len(listed) == 2
    centred = ": the mean of V over the keys is subtracted" if means else ""
    return Effect(
        f"the values are multiplied with {' '.join(listed)}{centred}, expected P = softmax(scores)",
        "add back to the output what is subtracted from V"
        if means
        else "return P V, and add nothing to it",
    )


def _in_other_order(wrong: list[SampleWeights]) -> Effect | None:
    rule = other_order(wrong)
    return Effect(rule, SAME_ORDER) if rule else None


def _reshaped(wrong: list[SampleWeights]) -> Effect | None:
    said = reshaped_keys(wrong)
    return Effect(said, SWAP_AXES) if said else None


def _other_axis(reading: SampleWeights) -> Effect | None:
    """Return over which axis the weights sum to 1 where that is not the keys."""
    weights, atol = reading.weights, 100 * reading.noise
    if np.abs(weights.sum(axis=-1) - 1).max() <= atol:
        return None
    sums = {
        "each column, over the queries": weights.sum(axis=1),
        "each cell, over the heads": weights.sum(axis=0),
        "each row, over heads and keys together": weights.sum(axis=(0, 2)),
        "each head, over rows and keys together": weights.sum(axis=(1, 2)),
    }
    for name, total in sums.items():
        if np.abs(total - 1).max() <= atol:
            return Effect(f"weights sum to 1 in {name}, expected: in each row, over keys",
                         "take the softmax over the last axis of (N, H, L, S)",
                         operation="axis of the softmax")  # fmt: skip
    return None


def _bent(
    caller: Caller,
    found: transfer_curve.Curve,
    others: Sequence[transfer_curve.Curve],
    widths: Sequence[int],
) -> Effect | None:
    """Return a formula of weights from scores, where one fits; ``widths`` are computed right."""
    slopes, misfit = transfer_curve.slope(found)
    if misfit <= found.atol:
        return _straight(caller, found, slopes)
    factors = transfer_curve.channel_factors(found)
    if factors is not None:
        more = [f for c in others[:1] if (f := transfer_curve.channel_factors(c)) is not None]
        return Effect(
            transfer_curve.describe_channels([factors, *more], widths),
            "sum the products over all D channels",
        )
    term = added(found) or of_one_key(found)
    if term is not None and term.remedy == COUNTED:  # such keys may fill tiles of a half
        return term
    if merged := transfer_curve.tile_offset(found):
        return merged
    return term or _of_score(found)


def _of_score(found: transfer_curve.Curve) -> Effect | None:
    """Return which function of the score alone the weights are, where one fits."""
    if score_function := score_functions.score_function(found):
        return Effect(
            score_function[0].text.format(c=score_function[1]),
            score_function[0].remedy,
            operation=score_function[0].operation,
        )
    if dtype := transfer_curve.rounded_exponentials(found):
        story = f"the exponentials are rounded to {dtype} before they meet V"
        return Effect(story, "keep every stage in the dtype of the inputs")
    if story := transfer_curve.step_function_sentence(found):
        return Effect(story, "call exp")
    return None


def _straight(caller: Caller, found: transfer_curve.Curve, slopes: Array) -> Effect | None:
    shows = (np.where(found.usable, found.x, 0) != 0).any(axis=(1, 2))
    slopes = slopes[shows] if shows.any() else slopes  # a head with one key a row has no slope
    if np.ptp(slopes) > found.atol:
        listed = ", ".join(f"{s * found.reading.problem.scale:.4g}" for s in slopes)
        return Effect(f"each head has a scale of its own: {listed}", "use 1/sqrt(D) in all heads")
    if almost := in_float32(found.reading.problem.head_dim, slopes[0]) or with_addend(caller):
        return almost
    # A slope rests on all weights: of 32 bits and more it is read as exactly as a scale is.
    dtype = found.reading.problem.dtype
    if abs(slopes[0] - 1) > (EXACT[dtype.name] if dtype.itemsize > 2 else found.atol):
        scale, expected = slopes[0] * found.reading.problem.scale, found.reading.problem.scale
        formula = law(measured(caller))
        if caller.candidate.facts.wider_input:
            formula = formula.replace("(2 D)", "(E), by the width of the input")
        at = next((n for n in range(4, 17) if f"{scale:.{n}g}" != f"{expected:.{n}g}"), 17)
        listed = f"{scale:.{at}g}"
        if formula and formula != RIGHT_LAW:  # which it is at the sizes of the law
            at_width = f" at D = {found.reading.problem.head_dim}"
            listed = formula if formula.endswith(at_width) else f"{formula} ({listed}{at_width})"
        return Effect(
            f"the effective scale is {listed}, expected {RIGHT_LAW} = {expected:.{at}g}",
            PRECISELY if formula.startswith((RIGHT_LAW + ROUNDED, RIGHT_LAW + ROOT_ROUNDED)) else
            "multiply q k^T by 1/sqrt(D), once, with the D of the call",
            operation="scale",
        )  # fmt: skip
    return denominator(found)


def _unknown(reading: SampleWeights, found: transfer_curve.Curve | None) -> Effect:
    """Say of weights that fit nothing the two facts that narrow it down most."""
    sums = reading.weights.sum(axis=-1)
    first = (
        "rows of weights are NaN" if np.isnan(sums).all()
        else "rows of weights sum to 1" if np.abs(sums - 1).max() < 1e-6
        else "rows of weights sum to 0" if np.abs(sums).max() < 1e-6
        else f"rows of weights sum to {sums.min():.4g} … {sums.max():.4g}"
    )  # fmt: skip
    if example := irregular(reading):
        return Effect(
            f"some keys get no weight, or get one that is not expected, by no rule that was "
            f"tried: {example.text}; {first}",
            understood=False,
        )
    if found is None:
        others = "" if np.isnan(sums).all() else ", some are negative or 0"
        return Effect(f"the weights are no softmax: {first}{others}", understood=False)
    slopes, misfit = transfer_curve.slope(found)
    if misfit <= NEARLY_EXP:
        # An exp of few digits errs by more than the digits of float32, or other things do.
        is_exp = misfit > OF_FLOAT32
        return Effect(
            f"the weights are nearly those expected: their logarithms miss a line of slope "
            f"{slopes.mean():.3g} by up to {misfit:.2g}{', as an approximated exp does' * is_exp}; "
            f"{first}",
            "call exp" if is_exp else "give all weights the digits of the inputs",
            understood=False,
        )
    return Effect(
        f"the weights are no function of the true scores alone (a line through their logarithms "
        f"has slope {slopes.mean():.3g} and misses by {misfit:.3g}): q, k or their split may "
        f"differ, or something is added to the scores; {first}", understood=False,
    )  # fmt: skip
