"""Family 2: splitting into heads and merging them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue.plain_attention import Attention, before
from mha_parity.catalogue.registry import register_bug

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

SPLIT = "x.reshape(N, T, H, D).transpose(0, 2, 1, 3)"
MERGE = "x.transpose(0, 2, 1, 3).reshape(N, L, H * D)"


@register_bug(
    "split-no-transpose",
    2,
    "the heads are split by a reshape without a transpose",
    wrong="x.reshape(N, H, T, D)",
    right=SPLIT,
    visible="more than one head and more than one token",
    remedy=f"split by {SPLIT}",
    sources="reczoo/FuxiCTR#30",
    needs="heads=many",
)
class SplitNoTranspose(Attention):
    def split(self, x: Array, heads: int) -> Array:
        n, t, width = x.shape
        return x.reshape(n, heads, t, width // heads)


@register_bug(
    "merge-no-transpose",
    2,
    "the heads are merged by a reshape without a transpose",
    wrong="x.reshape(N, L, H * D)",
    right=MERGE,
    visible="more than one head and more than one token",
    remedy="swap the axes of heads and rows before the reshape: x (N, H, L, D) by "
    "x.transpose(0, 2, 1, 3).reshape(N, L, H * D)",
    sources="jsbaan/transformer-from-scratch#6 ajhalthor/Transformer-Neural-Network#4 "
    "pytorch/pytorch#67651 meta-pytorch/opacus#825",
    needs="heads=many",
)
class MergeNoTranspose(Attention):
    """The shape is right and the tokens are mixed."""

    def merge(self, x: Array) -> Array:
        """Read (H, L, D) as (L, H, D)."""
        n, h, length, width = x.shape
        return x.reshape(n, length, h * width)


@register_bug(
    "split-merge-no-transpose",
    2,
    "the heads are split and merged by reshapes without a transpose",
    wrong="x.reshape(N, H, T, D) ... y.reshape(N, L, H * D)",
    right=f"{SPLIT} ... {MERGE}",
    visible="more than one head and more than one token",
    remedy=f"split by {SPLIT}, merge by {MERGE}",
    needs="heads=many",
)
class NoTransposeAtAll(SplitNoTranspose, MergeNoTranspose):
    """Both reshapes bare."""


@register_bug(
    "merge-batch-head-swap",
    2,
    "the folded axis of batch and heads is unfolded in the wrong order",
    wrong="x.reshape(H, N, L, D) of an axis folded as (N, H)",
    right="x.reshape(N, H, L, D)",
    visible="more than one sample and more than one head",
    remedy="unfold the axis in the order in which it was folded, (N, H)",
    sources="gazelle93/Transformer-Various-Positional-Encoding#1 "
    "jadore801120/attention-is-all-you-need-pytorch#7",
    needs="heads=many",
)
class BatchHeadSwap(Attention):
    """Heads go to other samples."""

    def merge(self, x: Array) -> Array:
        """Unfold (N H) as (H, N)."""
        n, h, length, width = x.shape
        return super().merge(x.reshape(h, n, length, width).swapaxes(0, 1))


@register_bug(
    "attention-over-heads",
    2,
    "each position attends to its own heads, and to no other position",
    wrong="scores q k^T of (N, T, H, D): (N, T, H, H)",
    right="scores q k^T of (N, H, T, D): (N, H, L, S)",
    visible="always; unless L = S it crashes, and so do masks",
    remedy="swap the axes of heads and positions of q, k and v before the product, by "
    "transpose(1, 2), and again behind it",
)
class HeadsAttendToEachOther(Attention):
    """The axis of heads is where that of positions should be."""

    def scores(self, q: Array, k: Array) -> Array:
        """Return (N, T, H, H)."""
        if q.shape != k.shape:
            raise ValueError("L rows of q do not meet S rows of k")
        return super().scores(q.swapaxes(1, 2), k.swapaxes(1, 2))

    def mask_scores(self, scores: Array) -> Array:
        """Apply the causal rule to the heads; masks of L and S do not fit."""
        if self.problem.key_padding_mask is not None or self.problem.attn_mask is not None:
            raise ValueError("masks of L rows and S keys do not fit scores of H by H")
        earlier = np.tri(*scores.shape[-2:], dtype=np.bool_)
        return np.where(earlier, scores, -np.inf) if self.problem.is_causal else scores

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Mix the heads of each position."""
        return super().apply_weights(weights, v.swapaxes(1, 2)).swapaxes(1, 2)


@register_bug(
    "heads-interleaved",
    2,
    "head h owns the channels h, h + H, h + 2H and so on",
    wrong="x.reshape(N, T, D, H) in split and merge",
    right="x.reshape(N, T, H, D): head h owns channels h D to (h + 1) D",
    visible="more than one head and D > 1",
    remedy="put the head axis before the width: reshape(N, T, H, D)",
    needs="heads=many",
)
class HeadsInterleaved(Attention):
    """Channel c goes to head c mod H, and back."""

    def split(self, x: Array, heads: int) -> Array:
        n, t, width = x.shape
        return x.reshape(n, t, width // heads, heads).transpose(0, 3, 1, 2)

    def merge(self, x: Array) -> Array:
        """Put channel d of head h at d H + h."""
        n, h, length, width = x.shape
        return x.transpose(0, 2, 3, 1).reshape(n, length, h * width)


@register_bug(
    "merge-d-major",
    2,
    "the heads are merged with the width before the head",
    wrong="x.transpose(0, 2, 3, 1).reshape(N, L, D * H)",
    right=MERGE,
    visible="more than one head and D > 1; an output projection that is learned hides it",
    remedy=f"merge by {MERGE}",
    needs="heads=many",
)
class MergeWidthMajor(Attention):
    """Output channel d H + h."""

    merge = HeadsInterleaved.merge


@register_bug(
    "split-d-major",
    2,
    "the heads are split with the width before the head, and merged rightly",
    wrong="x.reshape(N, T, D, H)",
    right=SPLIT,
    visible="more than one head and D > 1",
    remedy=f"split by {SPLIT}",
    needs="heads=many",
)
class SplitWidthMajor(Attention):
    """Channel c goes to head c mod H; the merge is right."""

    split = HeadsInterleaved.split


@register_bug(
    "kv-len-from-query",
    2,
    "the number of queries is taken for the number of keys",
    wrong="for j in range(L)",
    right="for j in range(S)",
    visible="more keys than queries (fewer crash)",
    remedy="take S from key.shape and L from query.shape",
    sources="thu-ml/SageAttention#26 jax-ml/jax#24491",
    needs="inputs=cross/distinct",
)
class KeysFromQueries(Attention):
    """Keys beyond the L-th are never read."""

    def mask_scores(self, scores: Array) -> Array:
        masked = super().mask_scores(scores).copy()
        masked[..., self.case.queries : self.problem.key.shape[1]] = -np.inf
        return masked


register_bug(
    "head-stuck",
    2,
    "every head computes what head 0 computes",
    wrong="q[:, 0], k[:, 0], v[:, 0] in every turn of the loop",
    right="q[:, h], k[:, h], v[:, h]",
    visible="more than one head",
    remedy="index q, k and v by the head of the loop",
    needs="heads=many",
)(before("merge", lambda x: (np.repeat(x[:, :1], x.shape[1], axis=1),)))


register_bug(
    "heads-averaged",
    2,
    "all heads mix the values with the mean of their weights",
    wrong="mean over h of P_h, times v",
    right="P_h v_h for each head h",
    visible="more than one head",
    remedy="multiply the weights of each head by the values of that head; average only what is "
    "returned as weights",
    needs="heads=many",
)(before("apply_weights", lambda p, v: (p * 0 + p.mean(axis=1, keepdims=True), v)))
