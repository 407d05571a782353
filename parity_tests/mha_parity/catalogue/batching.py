"""Families 10, 11 and 14: batches, memory, grouped heads, edge shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.memory_layout import copy_in_layout
from mha_parity.catalogue.plain_attention import Attention, Triple
from mha_parity.catalogue.registry import register_bug
from mha_parity.core.features import PLAIN

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer


@register_bug(
    "batch-first-confusion",
    10,
    "attention runs across the samples, batch and sequence exchanged",
    wrong="(L, N, E) read as (N, L, E)",
    right="tokens of one sample attend to each other",
    visible="always: samples leak into each other, and N = 1 gives weights of 1",
    remedy="set batch_first to what the arrays are",
    sources="IBM/TabFormer#14 aipixel/AEMatter#3 om-ai-lab/OmDet#19 "
    "dhimasryan/MOSA-Net-Cross-Domain#10",
    needs="inputs=self",
)
class AcrossSamples(Attention):
    """Samples attend to samples, token by token; crashes on masks and on L unlike S."""

    def scores(self, q: Array, k: Array) -> Array:
        """Return (L, H, N, N)."""
        return super().scores(exchanged(q), exchanged(k))

    def apply_weights(self, weights: Array, v: Array) -> Array:
        return exchanged(super().apply_weights(weights, exchanged(v)))


def exchanged(x: Array) -> Array:
    """Return (N, H, T, d) with samples and tokens exchanged."""
    return x.swapaxes(0, 2)


@register_bug(
    "swapped-rows-differ",
    10,
    "a sample's answer depends on its place in the batch",
    wrong="output of sample n changed by a part in a thousand times n",
    right="each sample for itself",
    visible="more than one sample",
    remedy="compute each sample from its own rows alone",
    sources="pytorch/pytorch#23525 yxlu-0102/MP-SENet#64",
)
class PlaceMatters(Attention):
    """A drift along the batch."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        mixed = super().apply_weights(weights, v)
        drift = 1 + 1e-3 * np.arange(len(mixed), dtype=self.work_dtype)
        return mixed * drift[:, None, None, None]


@register_bug(
    "samples-mixed",
    10,
    "each sample's queries meet the keys and values of another sample",
    wrong="k[n - 1], v[n - 1] for sample n",
    right="k[n], v[n]",
    visible="more than one sample",
    remedy="index q, k and v by the same sample",
    variants=({"source": 0}, {"values_alone": True}),
)
class SamplesMixed(Attention):
    """Keys of the neighbour, or of sample 0."""

    source: int | None = None
    values_alone = False

    def append(self, k: Array, v: Array) -> tuple[Array, Array]:
        order = (np.arange(len(k)) - 1) if self.source is None else np.zeros(len(k), dtype=int)
        k, v = super().append(k, v)
        return (k if self.values_alone else k[order]), v[order]


@register_bug(
    "strides-ignored",
    10,
    "the buffer of an array is read as if it were contiguous",
    wrong="data_ptr read row by row, whatever the strides",
    right="elements found by their strides",
    visible="Fortran-ordered, sliced or reversed inputs alone",
    remedy="make the inputs contiguous first, or use their strides",
    sources="pytorch/pytorch#181133 pytorch/pytorch#163597 pytorch/pytorch#112577 "
    "ROCm/pytorch#3230",
    needs="memory=fortran/sliced/negative",
    variants=({"unstrided": ("value",)},),
)
class StridesIgnored(Attention):
    """Reads what lies in memory."""

    unstrided: tuple[str, ...] = ("query", "key", "value")

    def inputs(self) -> Triple:
        query, key, value = (self.read(name) for name in ("query", "key", "value"))
        return query, key, value

    def read(self, name: str) -> Array:
        """Return the first elements in memory of the array as it was presented."""
        array = getattr(self.problem, name)
        if name not in self.unstrided or self.case.memory == PLAIN["memory"]:
            return self.precise(array)  # contiguous, with NaN around it
        shown = copy_in_layout(array, self.case.memory)
        buffer = shown if shown.base is None else np.asarray(shown.base)
        return self.precise(buffer.ravel(order="K")[: array.size].reshape(array.shape))


@register_bug(
    "gqa-tile",
    11,
    "key heads are tiled over the query heads",
    wrong="kv heads [0, 1, 0, 1]",
    right="kv heads [0, 0, 1, 1]",
    visible="more than one and fewer key heads than query heads",
    remedy="repeat_interleave the key and value heads; do not tile them",
    sources="onnx/onnx#7274 microsoft/onnxscript#2408",
    needs="kv_heads=fewer",
)
class Tiled(Attention):
    """Query head h meets key head h mod Hkv."""

    def repeat_heads(self, x: Array) -> Array:
        times = self.problem.num_heads // self.problem.num_kv_heads
        return np.concatenate([x] * times, axis=1)


@register_bug(
    "gqa-repeat-wrong-axis",
    11,
    "keys are repeated along the tokens, before the split",
    wrong="np.repeat(k, H // Hkv, axis=1) on (N, S, Hkv, D), folded to (N, S, H, D)",
    right="np.repeat along the axis of the heads",
    visible="fewer key heads than query heads",
    remedy="repeat along the head axis",
    sources="datawhalechina/tiny-universe#21",
    needs="kv_heads=fewer",
)
class RepeatWrongAxis(Attention):
    def repeat_heads(self, x: Array) -> Array:
        """Repeat tokens, then read the buffer as (N, S, H, D)."""
        n, _, tokens, width = x.shape
        heads = self.problem.num_heads
        rows = np.repeat(x.swapaxes(1, 2), heads // self.problem.num_kv_heads, axis=1)
        return rows.reshape(n, tokens, heads, width).swapaxes(1, 2)


@register_bug(
    "gqa-first-only",
    11,
    "all query heads use the first key head",
    wrong="k[:, :1] for every head",
    right="k[:, h // (H / Hkv)] for head h",
    visible="more than one and fewer key heads than query heads",
    remedy="repeat_interleave the key and value heads to the query heads",
    needs="kv_heads=fewer",
)
class FirstGroup(Attention):
    """One key head for all, where heads are grouped."""

    def repeat_heads(self, x: Array) -> Array:
        """Broadcast head 0."""
        grouped = super().repeat_heads(x)
        return grouped if grouped is x else grouped * 0 + grouped[:, :1]


@register_bug(
    "squeeze-l1",
    14,
    "axes of size 1 are squeezed away",
    wrong="output.squeeze()",
    right="output, (N, L, E) whatever the sizes",
    visible="N = 1, L = 1 or E = 1",
    remedy="name the axis that is to be dropped, or drop none",
    needs="size=ones",
)
class Squeezed(Attention):
    def answer(self) -> Answer:
        own = super().answer()
        return type(own)(output=own.output.squeeze(), weights=own.weights)


@register_bug(
    "s0-undefined",
    14,
    "an empty sequence of keys has no answer",
    wrong="max of an empty axis",
    right="zeros: an empty sum",
    visible="S = 0",
    remedy="give max an initial value of -inf, or answer zeros for S = 0",
    needs="size=empty",
)
class EmptyUndefined(Attention):
    def softmax(self, scores: Array) -> Array:
        np.max(scores, axis=-1)
        return super().softmax(scores)


@register_bug(
    "zero-length-sample",
    14,
    "a sample of length 0 is given its first key",
    wrong="length = max(length, 1)",
    right="a sample without keys has no weights: NaN or 0 in torch",
    visible="a sample whose keys are all padded",
    remedy="choose what a row without keys should be, and do not invent a key",
    sources="pytorch/pytorch#81077",
    needs="padding=bool/float/lengths masked_rows=some",
    policy=True,
)
class ZeroLength(Attention):
    """Key 0 shown to a sample without keys."""

    def padding_mask(self) -> Array | None:
        """Show key 0 where all are hidden."""
        own = super().padding_mask()
        if own is None:
            return None
        emptied = (own == -np.inf).all(axis=-1)
        return np.concatenate((np.where(emptied, 0, own[..., 0])[..., None], own[..., 1:]), axis=-1)


@register_bug(
    "fixed-buffer",
    14,
    "keys beyond a fixed number are left out",
    wrong="a buffer of 64 keys",
    right="all S keys",
    visible="more keys than the buffer holds",
    remedy="size the buffer by S",
    variants=({"room": 32}, {"room": 16}, {"room": 8}, {"room": 4}),
)
class FixedBuffer(Attention):
    """A buffer that some sequences do not fit in."""

    room = 64

    def mask_scores(self, scores: Array) -> Array:
        masked = super().mask_scores(scores).copy()
        masked[..., self.room : self.problem.key.shape[1]] = -np.inf
        return masked
