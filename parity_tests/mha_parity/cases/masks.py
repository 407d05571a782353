"""Draw the masks of a case: which keys are hidden, by True, by -inf or by a finite number.

Hidden keys are drawn one by one; among more than a tile of them, half of the masks leave a window
visible instead: kernels have a branch for a tile whose keys are all hidden, or all visible.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.rng import Stream, largest_number

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case

# These keep further streams separate from the problem's.
LARGE_MASK, ATTN_WINDOW, PADDING_WINDOW = 0x1A56 << 32, 0xA77B << 32, 0x9ADB << 32
# Finite numbers that programs hide keys with, and what is added to a whole row.
MASKED_BY, LOWERED = (-1e4, -1e9, -math.inf), -1e4
LARGE_SHARE = 2  # one in 2 plain cases with a float mask has finite large numbers
HIDDEN = 0.375  # the probability of a key to be hidden
TILE = 16  # fewer keys are hidden one by one
LONE = 0.25  # the share of rows with a window of their own that see a single key


def draw_masks(case: Case, stream: Stream) -> dict[str, Array]:
    """Return the masks; one anchor key stays visible to all, except in rows masked on purpose."""
    masks: dict[str, Array] = {}
    anchor = 0 if case.attn == "causal" or case.padding == "lengths" else stream.below(case.keys)
    if case.padding != "none":
        masks["key_padding_mask"] = _padding(case, stream, anchor)
    if case.attn not in {"none", "causal"}:
        masks["attn_mask"] = _attn_mask(case, stream, anchor)
    _hide_by_numbers(case, masks)
    return masks


def may_hide_by_numbers(case: Case, seed: int) -> bool:
    """Return whether a case with this seed has a finite number for -inf in a float mask.

    Not where it hides all keys of a row in float16, whose most negative number does not absorb the
    scores in float64, in which the reference is computed.
    """
    absorbs = case.masked_rows == "none" or case.dtype != "float16"
    return case.regime == "normal" and absorbs and Stream(seed ^ LARGE_MASK).below(LARGE_SHARE) == 0


def _hide_by_numbers(case: Case, masks: dict[str, Array]) -> None:
    """Put a finite large number for -inf into one float mask of some cases, in place.

    A row hidden wholly by the most negative number sees all of its keys alike. Else one row is
    lowered at all of its keys, which torch's softmax does not see; in 16 bits the scores would be
    lost next to such a number.
    """
    floats = [mask for mask in masks.values() if mask.dtype != bool]
    if not floats or not may_hide_by_numbers(case, case.seed):
        return
    stream = Stream(case.seed ^ LARGE_MASK)
    stream.below(LARGE_SHARE)  # drawn by `may_hide_by_numbers`
    mask = floats[stream.below(len(floats))]
    number = -math.inf if case.masked_rows == "some" else MASKED_BY[stream.below(len(MASKED_BY))]
    mask[np.isneginf(mask)] = max(number, -largest_number(case.dtype))
    if case.masked_rows == "none" and case.dtype in {"float64", "float32"}:
        mask[tuple(stream.below(length) for length in mask.shape[:-1])] += LOWERED


def _padding(case: Case, stream: Stream, anchor: int) -> Array:
    if case.padding == "lengths":
        lengths = np.array([1 + stream.below(case.keys) for _ in range(case.batch)])
    else:
        windows = Stream(case.seed ^ PADDING_WINDOW)
        hidden = _hidden(stream, windows, (case.batch, case.keys), anchor)
    emptied = case.masked_rows == "some" and case.attn in {"none", "causal"}
    sample = stream.below(case.batch)
    if case.padding == "lengths":
        lengths[sample] = 0 if emptied else lengths[sample]
        return np.asarray(np.arange(case.keys) >= lengths[:, None])
    hidden[sample] |= emptied
    if case.padding == "bool":
        return hidden
    return np.where(hidden, -np.inf, stream.normal(case.batch, case.keys))


def _attn_mask(case: Case, stream: Stream, anchor: int) -> Array:
    blocks = case.batch * case.heads_count if case.attn.endswith("3d") else 1
    windows = Stream(case.seed ^ ATTN_WINDOW)
    hidden = _hidden(stream, windows, (blocks, case.queries, case.keys), anchor)
    if case.masked_rows == "some":
        hidden[stream.below(blocks), stream.below(case.queries)] = True
    mask = hidden
    if case.attn.startswith("float"):
        mask = np.where(hidden, -np.inf, 1.5 * stream.normal(*hidden.shape))
    return mask if case.attn.endswith("3d") else mask[0]


def _hidden(stream: Stream, windows: Stream, shape: tuple[int, ...], anchor: int) -> Array:
    """Return which keys are hidden, one by one or around windows; the anchor is not."""
    hidden = np.asarray(stream.booleans(HIDDEN, *shape))
    kind = windows.below(4) if shape[-1] > TILE else 0
    if kind < 2:
        hidden[..., anchor] = False
        return hidden
    rows = shape[:-1] if kind == 2 else (*shape[:-2], 1)
    before, behind = windows.indices(anchor + 1, *rows), windows.indices(shape[-1] - anchor, *rows)
    if kind == 2:
        several = ~windows.booleans(LONE, *rows)
        before, behind = before * several, behind * several
    distance = np.arange(shape[-1]) - anchor
    outside = (distance < -before[..., None]) | (distance > behind[..., None])
    return np.array(np.broadcast_to(outside, shape))
