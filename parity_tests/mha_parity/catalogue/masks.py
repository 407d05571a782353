"""Family 5, first part: masks read, placed or combined in another way than they were meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue.plain_attention import Attention, after
from mha_parity.catalogue.registry import register_bug

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

BOOLEAN = "padding=bool attn=bool2d/bool3d"
ANY = "padding=bool/float/lengths attn=bool2d/float2d/bool3d/float3d/causal"


@register_bug(
    "bool-inverted",
    5,
    "True in a boolean mask is read as: keep",
    wrong="hidden where the mask is False (the meaning of scaled_dot_product_attention)",
    right="hidden where the mask is True (the meaning of MultiheadAttention)",
    visible="any boolean mask",
    remedy="invert the boolean mask: ~mask",
    sources="rasbt/LLMs-from-scratch#1061 lucidrains/x-transformers#160 tensorflow/text#894 "
    "pytorch/pytorch#170415",
    needs="padding=bool/lengths attn=bool2d/bool3d",
    variants=({"padded": False}, {"attended": False}, {"together": True}),
)
class Inverted(Attention):
    """The other polarity; ``together``: of all boolean masks joined to one, the causal one too."""

    padded = True
    attended = True
    together = False

    def sum_masks(self, parts: list[Array]) -> Array:
        joined = super().sum_masks(parts)
        others = self.problem.key_padding_mask is not None or self.problem.attn_mask is not None
        return flipped(joined) if self.together and others and boolean(joined) else joined

    def padding_mask(self) -> Array | None:
        mask = self.problem.key_padding_mask
        invert = self.padded and not self.together and mask is not None and mask.dtype == np.bool_
        own = super().padding_mask()
        return flipped(own) if invert and own is not None else own

    def attn_mask(self) -> Array | None:
        mask = self.problem.attn_mask
        invert = self.attended and not self.together and mask is not None and mask.dtype == np.bool_
        own = super().attn_mask()
        return flipped(own) if invert and own is not None else own


def boolean(mask: Array) -> bool:
    """Return whether a mask that is added says nothing but hidden and seen."""
    return bool(((mask == 0) | (mask == -np.inf)).all())


def flipped(mask: Array) -> Array:
    """Return 0 for -inf and -inf for 0."""
    return np.asarray(np.where(mask == 0, mask.dtype.type(-np.inf), mask.dtype.type(0)))


@register_bug(
    "mask3d-tile-order",
    5,
    "the masks of samples and heads are tiled in the wrong order",
    wrong="block b of the mask meets sample b mod N",
    right="block b meets sample b // H and head b mod H",
    visible="several samples and heads, and masks that differ between samples",
    remedy="repeat_interleave(H), not repeat: the folded axis is (N, H)",
    sources="line/lighthouse#77 ArrowLuo/CLIP4Clip#22 lsdefine/attention-is-all-you-need-keras#36",
    needs="attn=bool3d/float3d heads=many",
    variants=({"padded": True},),
)
class TileOrder(Attention):
    """(H, N) in place of (N, H)."""

    padded = False

    def attn_mask(self) -> Array | None:
        """Unfold the mask as (H, N)."""
        own = super().attn_mask()
        return own if own is None or own.ndim < 4 else misfolded(own)

    def padding_mask(self) -> Array | None:
        """Repeat the padding for the heads in the wrong order, where it is folded."""
        own = super().padding_mask()
        if own is None or not self.padded:
            return own
        return misfolded(np.repeat(own, self.problem.num_heads, axis=1))


def misfolded(mask: Array) -> Array:
    """Return (N, H, ...) read from its own buffer as (H, N, ...)."""
    n, h = mask.shape[:2]
    return mask.reshape(h, n, *mask.shape[2:]).swapaxes(0, 1)


register_bug(
    "mask-batch-on-head-axis",
    5,
    "a mask per sample is broadcast along the heads",
    wrong="mask[None, :, None, :], (1, N, 1, S) against (N, H, L, S)",
    right="mask[:, None, None, :]",
    visible="padding that differs between samples; silent only where N = H, else it crashes",
    remedy="put the new axis behind the batch: mask[:, None, None, :]",
    sources="keras-team/keras-hub#783",
    needs="padding=bool/float/lengths",
)(after("padding_mask", lambda _, mask: mask.swapaxes(0, 1)))


@register_bug(
    "mask-first-sample-only",
    5,
    "the mask of sample 0 is used for all samples",
    wrong="mask[0]",
    right="mask[n] for sample n",
    visible="several samples with unlike masks",
    remedy="use each sample's own mask or length",
    sources="mlpack/mlpack#3969",
    needs="padding=bool/float/lengths attn=bool3d/float3d",
)
class FirstSample(Attention):
    def padding_mask(self) -> Array | None:
        own = super().padding_mask()
        return None if own is None else own[:1]

    def attn_mask(self) -> Array | None:
        own = super().attn_mask()
        return own if own is None or own.ndim < 4 else own[:1]


register_bug(
    "mask-first-head-only",
    5,
    "the mask of head 0 is used for all heads",
    wrong="mask.reshape(N, H, L, S)[:, :1]",
    right="mask.reshape(N, H, L, S)",
    visible="3-D masks that differ between heads",
    remedy="use all N * H blocks of the mask",
    needs="attn=bool3d/float3d heads=many",
)(after("attn_mask", lambda _, mask: mask if mask.ndim < 4 else mask[:, :1]))


@register_bug(
    "mask-ignored",
    5,
    "a mask is accepted and has no effect",
    wrong="the result of masked_fill is not used",
    right="masked scores go into the softmax",
    visible="any hidden key",
    remedy="use the masked scores (masked_fill returns a new tensor)",
    sources="lucidrains/flamingo-pytorch#10 jax-ml/jax#23349 facebookresearch/xformers#103",
    needs=ANY,
    aliases="mask-from-values causal-ignored",
    variants=({"ignored": ("padding",)}, {"ignored": ("attn",)}, {"ignored": ("padding", "attn")}),
)
class MaskIgnored(Attention):
    """Some masks or all do nothing."""

    ignored: tuple[str, ...] = ("padding", "attn", "causal")

    def padding_mask(self) -> Array | None:
        return None if "padding" in self.ignored else super().padding_mask()

    def attn_mask(self) -> Array | None:
        return None if "attn" in self.ignored else super().attn_mask()

    def causal_mask(self) -> Array | None:
        return None if "causal" in self.ignored else super().causal_mask()


@register_bug(
    "masks-last-wins",
    5,
    "a key that only one of two masks hides is seen",
    wrong="attn_mask replaces key_padding_mask (or a key must be hidden by both)",
    right="a key is hidden that either mask hides; float masks add up",
    visible="two masks given together",
    remedy="add the two masks, or combine boolean ones by OR",
    needs=ANY,
    variants=({"chosen": 0}, {"chosen": None}),
)
class LastWins(Attention):
    """One of the masks, or both by AND."""

    chosen: int | None = -1

    def sum_masks(self, parts: list[Array]) -> Array:
        if self.chosen is not None:
            return parts[self.chosen]
        largest = parts[0]
        for part in parts[1:]:
            largest = np.maximum(largest, part)
        return largest


register_bug(
    "mask-transposed",
    5,
    "attn_mask is applied transposed",
    wrong="scores + M^T",
    right="scores + M, M (L, S)",
    visible="L = S (else it crashes) and a mask that is not symmetric",
    remedy="leave the mask as (L, S): rows are queries",
    needs="attn=bool2d/float2d/bool3d/float3d",
)(after("attn_mask", lambda _, mask: mask.swapaxes(-1, -2)))


@register_bug(
    "mask-from-values",
    5,
    "padding is guessed from rows that sum to 0",
    wrong="hidden = key.sum(-1) == 0",
    right="hidden = key_padding_mask",
    visible="padding whose rows are not zero: it is not hidden",
    remedy="use the mask that is passed",
    sources="Kyubyong/transformer#69",
    needs="padding=bool/float/lengths",
    aliases="mask-ignored",
)
class FromValues(Attention):
    def padding_mask(self) -> Array | None:
        if self.problem.key_padding_mask is None:
            return None
        return self.additive(self.precise(self.problem.key).sum(axis=-1) == 0)[:, None, None, :]


@register_bug(
    "lengths-off-by-one",
    5,
    "valid lengths are counted one too far",
    wrong="hidden = arange(S) > length",
    right="hidden = arange(S) >= length",
    visible="valid lengths below S",
    remedy="the first hidden position is `length` itself: arange(S) >= length",
    needs="padding=lengths",
    variants=({"more": -1},),
)
class OffByOne(Attention):
    """One key more, or one fewer."""

    more = 1

    def padding_mask(self) -> Array | None:
        lengths = self.problem.lengths
        if lengths is None:
            return super().padding_mask()
        positions = np.arange(self.problem.key.shape[1])
        return self.additive(positions >= lengths[:, None] + self.more)[:, None, None, :]


register_bug(
    "padding-from-start",
    5,
    "padding is hidden at the other end of the sequence",
    wrong="hidden = the first S - length keys",
    right="hidden = the last S - length keys",
    visible="padding that is not symmetric",
    remedy="hide what the mask says, position by position",
    needs="padding=bool/float/lengths",
)(after("padding_mask", lambda _, mask: mask[..., ::-1]))
