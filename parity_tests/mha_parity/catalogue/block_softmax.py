"""Family 4, second part: what stable, online and blocked softmax get wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue.plain_attention import Attention
from mha_parity.catalogue.registry import register_bug

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

STABLE = "exp(z - m) / sum exp(z - m) with m the maximum of the row"


class _Shifted(Attention):
    """A softmax that subtracts something else than the maximum of the row.

    With ``narrow`` it computes in the dtype of the inputs, whose exp overflows past 11 in float16.
    """

    narrow = False

    def shift(self, scores: Array) -> Array | float:
        """Return what is subtracted."""
        raise NotImplementedError

    def softmax(self, scores: Array) -> Array:
        """Subtract the shift; right in exact arithmetic whatever it is."""
        scores = scores.astype(self.problem.dtype) if self.narrow else scores
        powers = self.exp(scores - scores.dtype.type(1) * self.shift(scores))
        return self.precise(powers / powers.sum(axis=-1, keepdims=True))


@register_bug(
    "softmax-no-max",
    4,
    "the maximum of the row is not subtracted before exp",
    wrong="exp(z) / sum exp(z)",
    right=STABLE,
    visible="logits past 88.7 (float32) or 709 (float64): infinity over infinity",
    remedy="subtract the maximum of each row before exp",
    sources="pytorch/executorch#18407",
    needs="regime=huge/very_negative/wide_range/peaky",
    variants=({"narrow": True},),
)
class NoMax(_Shifted):
    def shift(self, scores: Array) -> Array | float:  # noqa: ARG002  (a constant needs no scores)
        """Return 0."""
        return 0.0


@register_bug(
    "softmax-fixed-max",
    4,
    "a constant is subtracted in place of the maximum of the row",
    wrong="exp(z - 10) / sum exp(z - 10)",
    right=STABLE,
    visible="logits past 98, or a row all below -93 (float32)",
    remedy="subtract the maximum of each row",
    sources="HabanaAI/vllm-fork#275",
    needs="regime=huge/very_negative/wide_range/peaky",
)
class FixedMax(_Shifted):
    def shift(self, scores: Array) -> Array | float:  # noqa: ARG002  (a constant needs no scores)
        return 10.0


@register_bug(
    "softmax-max-from-zero",
    4,
    "the running maximum starts at 0",
    wrong="m = max(0, z_1, z_2, ...)",
    right="m = max(-inf, z_1, z_2, ...)",
    visible="a row whose logits all lie below about -90 (float32) or -700 (float64)",
    remedy="start the running maximum at -inf",
    sources="bytedance/lightseq#74 Dao-AILab/flash-attention#2082",
    needs="regime=very_negative/wide_range",
)
class MaxFromZero(_Shifted):
    def shift(self, scores: Array) -> Array | float:
        """Start at 0."""
        return np.asarray(np.max(scores, axis=-1, keepdims=True, initial=0))


@register_bug(
    "softmax-global-max",
    4,
    "one maximum over all rows, heads and samples is subtracted",
    wrong="z - z.max()",
    right="z - z.max(axis=-1, keepdims=True)",
    visible="a row whose maximum lies some 90 (float32) or 700 (float64) below the largest of all",
    remedy="take the maximum of each row: axis=-1, keepdims=True",
    needs="regime=wide_range/huge/very_negative",
)
class GlobalMax(_Shifted):
    def shift(self, scores: Array) -> Array | float:
        return np.asarray(np.max(scores, initial=-np.inf))


class _Blocked(Attention):
    """Treats the keys in blocks; ``size`` is that of a block."""

    size = 64

    def blocks(self, total: int) -> list[slice]:
        """Return the blocks of keys."""
        return [slice(i, min(i + self.size, total)) for i in range(0, total, self.size)]


SMALLER = tuple({"size": size} for size in (2, 3, 4, 5, 8, 16, 32))


@register_bug(
    "lse-base-merge",
    4,
    "blocks of keys are merged by a logarithm of another base",
    wrong="weight of a block: e^(log2 of its sum)",
    right="weight of a block: its sum, e^(ln of it)",
    visible="S larger than one block",
    remedy="agree on natural logarithms, or on base 2, between the kernel and the merge",
    sources="sgl-project/sglang#40903 sgl-project/sglang#35045 vllm-project/vllm#28840",
    needs="size=medium",
    variants=SMALLER,
)
class BaseMerge(_Blocked):
    """A base-2 logarithm read as a natural one."""

    def softmax(self, scores: Array) -> Array:
        parts, sizes = [], []
        for block in self.blocks(scores.shape[-1]):
            own = scores[..., block]
            top = np.max(own, axis=-1, keepdims=True)
            total = np.where(top == -np.inf, 0, np.exp(own - top).sum(axis=-1, keepdims=True))
            parts.append(np.where(top == -np.inf, 0, np.exp(own - top) / total))
            sizes.append((np.log(total) + top) * self.work_dtype.type(np.log2(np.e)))
        if not parts:
            return super().softmax(scores)
        shares = super().softmax(np.concatenate(sizes, axis=-1))
        return np.concatenate([p * shares[..., i, None] for i, p in enumerate(parts)], axis=-1)


@register_bug(
    "online-no-rescale",
    4,
    "the accumulator is not rescaled when the running maximum rises",
    wrong="acc += exp(z - m_new) v",
    right="acc = acc exp(m_old - m_new) + exp(z - m_new) v",
    visible="S larger than one block, rows whose maximum lies in a later block",
    remedy="multiply the accumulator by exp(m_old - m_new) with each new block",
    needs="size=medium",
    variants=(*SMALLER, {"size": 1}),
)
class NoRescale(_Blocked):
    """Earlier blocks keep the shift of their own time."""

    def softmax(self, scores: Array) -> Array:
        """Shift each block by the maximum so far, and divide by the right sum."""
        powers = [
            np.exp(scores[..., block] - self.top(scores[..., : block.stop]))
            for block in self.blocks(scores.shape[-1])
        ]
        top = self.top(scores)
        total = np.exp(scores - top).sum(axis=-1, keepdims=True)
        return np.asarray(np.concatenate([scores[..., :0], *powers], axis=-1) / total)

    def top(self, scores: Array) -> Array:
        """Return the maximum of each row, 0 where it sees no key yet."""
        top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
        return np.where(top == -np.inf, 0, top)


@register_bug(
    "online-nothing-rescaled",
    4,
    "neither accumulator nor sum is rescaled when the running maximum rises",
    wrong="acc += exp(z - m_new) v; sum += exp(z - m_new)",
    right="acc and sum are multiplied by exp(m_old - m_new) first",
    visible="S larger than one block, rows whose maximum lies in a later block",
    remedy="multiply accumulator and sum by exp(m_old - m_new) with each new block",
    needs="size=medium",
    variants=(*SMALLER, {"size": 1}),
)
class NothingRescaled(NoRescale):
    """Rows sum to 1 and early keys weigh too much."""

    def softmax(self, scores: Array) -> Array:
        weights = super().softmax(scores)
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


@register_bug(
    "online-inf-minus-inf",
    4,
    "a block without a visible key poisons its row",
    wrong="exp(-inf - -inf) = NaN when the first block of a row is hidden",
    right="a running maximum of -inf is treated as 0",
    visible="rows whose first block of keys is hidden",
    remedy="replace a maximum of -inf by 0 before subtracting it",
    sources="flashinfer-ai/flashinfer#4401 tracel-ai/burn#4694",
    needs="padding=bool/float attn=bool2d/float2d/bool3d/float3d",
    variants=({"size": 1}, {"size": 2}, {"size": 8}, {"size": 16}, {"size": 64}),
)
class InfMinusInf(_Blocked):
    """NaN from the first block on."""

    size = 4

    def softmax(self, scores: Array) -> Array:
        first = np.max(scores[..., : self.size], axis=-1, keepdims=True, initial=-np.inf)
        lost = (first == -np.inf) & (scores.shape[-1] > 0)
        return np.where(lost, self.work_dtype.type(np.nan), super().softmax(scores))


@register_bug(
    "tail-block-zero-keys",
    4,
    "keys are filled up to whole blocks with zeros that take part in the softmax",
    wrong="sum exp(z) + (missing keys) exp(0)",
    right="the filler keys are masked with -inf",
    visible="S that is not a multiple of the block; less so for longer S",
    remedy="mask the keys beyond S in the last block",
    sources="flashinfer-ai/flashinfer#5090 pytorch/pytorch#159247 pytorch/pytorch#169222",
    variants=({"size": 128}, {"size": 32}, {"size": 16}, {"size": 8}, {"size": 4}),
)
class TailZeroKeys(_Blocked):
    """Zero keys and zero values behind the last."""

    def softmax(self, scores: Array) -> Array:
        """Add one exp(0) to the sum for each filler key."""
        extra = -scores.shape[-1] % self.size
        filled = np.pad(scores, ((0, 0), (0, 0), (0, 0), (0, extra)))
        return super().softmax(filled)[..., : scores.shape[-1]]


@register_bug(
    "tail-block-dropped",
    4,
    "the keys of an unfinished last block are left out",
    wrong="for block in range(S // size)",
    right="for block in range(ceil(S / size)), the last one shorter",
    visible="S that is not a multiple of the block",
    remedy="round the number of blocks up, and mask what lies beyond S",
    needs="size=medium",
    variants=({"size": 2}, {"size": 3}, {"size": 4}, {"size": 8}, {"size": 16}, {"size": 32}),
)
class WholeBlocksAlone(_Blocked):
    """Whole blocks alone; keys fewer than a block are read as one."""

    def mask_scores(self, scores: Array) -> Array:
        masked = super().mask_scores(scores).copy()
        total = scores.shape[-1]
        if total > self.size:
            masked[..., total - total % self.size :] = -np.inf
        return masked


@register_bug(
    "query-tail-zero",
    4,
    "the rows of an unfinished last block of queries stay zero",
    wrong="for block in range(L // size)",
    right="for block in range(ceil(L / size)), the last one shorter",
    visible="L larger than the block and not a multiple of it",
    remedy="round the number of blocks up, and write the rows that exist",
    variants=({"size": 2}, {"size": 3}, {"size": 8}),
)
class QueryTailZero(_Blocked):
    size = 4

    def apply_weights(self, weights: Array, v: Array) -> Array:
        mixed = super().apply_weights(weights, v).copy()
        length = mixed.shape[2]
        if length > self.size:
            mixed[:, :, length - length % self.size :] = 0
        return mixed


@register_bug(
    "blocks-averaged",
    4,
    "each block of keys is normalised alone, and the blocks are averaged",
    wrong="mean over blocks of softmax(z_block) v_block",
    right="blocks weighed by their sums of exponentials",
    visible="S larger than one block",
    remedy="carry maximum and sum of each row from block to block",
    needs="size=medium",
    variants=SMALLER,
)
class BlocksAveraged(_Blocked):
    def softmax(self, scores: Array) -> Array:
        blocks = self.blocks(scores.shape[-1])
        own = [super(BlocksAveraged, self).softmax(scores[..., block]) for block in blocks]
        return np.concatenate([scores[..., :0], *own], axis=-1) / max(len(blocks), 1)
