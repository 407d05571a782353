"""Legitimate orders: the same attention in the problem's own dtype, in ways that all are right.

What they differ in is what libraries differ in: where the scale is applied, exp or exp2, the order
of every sum, online softmax over blocks of keys, when the weights are normalised, packed or
per-head projections. How far they stray from the reference is what torch-like arithmetic does to
this very problem: the order spread by which candidates are judged.

float16 and bfloat16 are simulated in float32 as kernels do it: sums in float32, and results rounded
to the dtype after every operation, after every stage, or at the ends only.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from mha_parity.core.arrays import merge_heads, split_heads

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem

Sums = Literal["blas", "sequential", "pairwise", "blocked"]
Rounding = Literal["steps", "stages", "ends"]
BLOCK = 8  # terms of a blocked sum
ELEMENTS = 2**15  # of the terms of a sequential sum that are in memory at a time
LOG2_E = math.log2(math.e)
K = 4.0  # how much more than the worst order is allowed; see ``calibrate``


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOrder:
    """One way through the computation.

    ``keys``: keys in a block of the online softmax; 0 takes all at once. ``rounding`` matters to
    16-bit dtypes alone. ``narrow`` sums in the dtype itself where kernels sum in float32.
    """

    scale_at: Literal["query", "key", "both", "late"] = "query"
    base2: bool = False
    sums: Sums = "blas"
    projection: Sums = "blas"
    per_head: bool = False
    normalise: Literal["before", "after"] = "before"
    keys: int = 0
    rounding: Rounding = "stages"
    narrow: bool = False


# The first is torch's own composite path; the next ones differ from it in as much as they can.
EVAL_ORDERS: tuple[EvalOrder, ...] = (
    EvalOrder(),
    EvalOrder(scale_at="late", base2=True, sums="pairwise", projection="blocked", per_head=True,
          normalise="after", rounding="steps"),
    EvalOrder(scale_at="key", sums="sequential", projection="sequential", keys=5, normalise="after",
          rounding="ends"),
    EvalOrder(scale_at="both", sums="blas", projection="pairwise", rounding="steps"),
    EvalOrder(scale_at="query", base2=True, sums="blocked", per_head=True, keys=16,
    normalise="after"), EvalOrder(scale_at="late", sums="sequential", projection="blocked",
    normalise="before", rounding="ends"),
    EvalOrder(scale_at="key", base2=True, sums="pairwise", projection="sequential", per_head=True,
          rounding="stages"),
    EvalOrder(scale_at="late", sums="blas", keys=16, normalise="after", rounding="steps"),
)  # fmt: skip

# Sums in 16 bits throughout: slower kernels do it, and plain loops over arrays of that dtype.
NARROW = EvalOrder(scale_at="late", sums="sequential", projection="sequential", rounding="steps",
               narrow=True)  # fmt: skip


class Arithmetic:
    """Products and roundings of one order in one dtype."""

    def __init__(self, dtype: np.dtype[np.generic], order: EvalOrder) -> None:
        """Choose how to sum, and what to round when."""
        self.dtype = dtype
        self.half = dtype.itemsize == 2
        self.work: type[np.float64 | np.float32] = np.float64 if dtype == np.float64 else np.float32
        self._levels = {"steps": 3, "stages": 2, "ends": 1}[order.rounding] if self.half else 0
        self._narrow = order.narrow and self.half

    def step(self, array: Array) -> Array:
        """Round after an elementary operation."""
        return self._rounded(array) if self._levels >= 3 else array

    def stage(self, array: Array) -> Array:
        """Round what one stage hands to the next."""
        return self._rounded(array) if self._levels >= 2 else array

    def end(self, array: Array) -> Array:
        """Round a projection or the answer."""
        return self._rounded(array) if self._levels >= 1 else array

    def _rounded(self, array: Array) -> Array:
        return array.astype(self.dtype).astype(np.float32)

    def product(self, left: Array, right: Array, sums: Sums) -> Array:
        """Return left @ right^T, (..., m, n) by (..., p, n), summed over n in the given order."""
        terms = left.shape[-1]
        if sums == "blas" or not terms:
            return np.asarray(np.matmul(left, right.swapaxes(-1, -2)))
        if sums == "pairwise":
            return np.asarray((left[..., :, None, :] * right[..., None, :, :]).sum(axis=-1))
        size = BLOCK if sums == "blocked" else 1
        if size == 1:
            return self._one_by_one(left, right)
        total = np.matmul(left[..., :size], right[..., :size].swapaxes(-1, -2))
        for start in range(size, terms, size):
            part = slice(start, start + size)
            total += np.matmul(left[..., part], right[..., part].swapaxes(-1, -2))
            total = self._if_narrow(total)
        return np.asarray(total)

    def _one_by_one(self, left: Array, right: Array) -> Array:
        """Return the product with one term added after the other, some at a time in one array."""
        rows, columns = left.swapaxes(-1, -2)[..., None], right.swapaxes(-1, -2)[..., None, :]
        size = math.prod(left.shape[:-1]) * right.shape[-2]
        at_a_time = max(ELEMENTS // max(size, 1), 1)
        total: Array | None = None
        for start in range(0, left.shape[-1], at_a_time):
            part = slice(start, start + at_a_time)
            terms = np.multiply(rows[..., part, :, :], columns[..., part, :, :], order="C")
            total = self._in_sequence(self._if_narrow(terms), total)
        return np.asarray(total)

    def _in_sequence(self, terms: Array, total: Array | None) -> Array:
        """Return ``total`` and the terms, (..., n, m, p), added up from the first to the last."""
        if self._narrow:
            for place in range(terms.shape[-3]):
                term = terms[..., place, :, :]
                total = term if total is None else self._rounded(total + term)
            return np.asarray(total)
        if total is not None:
            terms[..., 0, :, :] += total
        # NumPy adds over an axis in its order, but over the one that is last in memory in pairs.
        if terms.shape[-2] * terms.shape[-1] == 1:
            return np.asarray(terms.cumsum(axis=-3)[..., -1, :, :])
        return np.asarray(np.add.reduce(terms, axis=-3))

    def _if_narrow(self, array: Array) -> Array:
        return self._rounded(array) if self._narrow else array

    def sum(self, array: Array, sums: Sums) -> Array:
        """Return the sum over the last axis, kept as an axis of one."""
        if sums == "sequential" and self._narrow:
            ones = np.ones((*array.shape[:-2], 1, array.shape[-1]), self.work)
            return self.product(array, ones, sums)
        if sums == "sequential" and array.shape[-1]:
            return np.asarray(np.cumsum(array, axis=-1)[..., -1:])
        return np.asarray(array.sum(axis=-1, keepdims=True))


class Prepared:
    """A problem's arrays in the dtype to compute in, made once for all orders."""

    def __init__(self, problem: Problem) -> None:
        """Widen 16-bit arrays, and write all masks as one to be added."""
        self.problem = problem
        work = np.float64 if problem.dtype == np.float64 else np.float32
        names = ("query", "key", "value", "w_q", "w_k", "w_v", "b_q", "b_k", "b_v", "bias_k",
                 "bias_v", "w_out", "b_out")  # fmt: skip
        found = {name: getattr(problem, name) for name in names}
        self.arrays: dict[str, Array | None] = {
            n: None if a is None else a.astype(work) for n, a in found.items()
        }
        unmasked = (
            problem.key_padding_mask is None and problem.attn_mask is None and not problem.is_causal
        )
        self.mask = None if unmasked else _mask(problem).astype(work)

    def of_sample(self, sample: int) -> Prepared:
        """Return the same with one sample alone: no order's answer to it depends on the others."""
        alone, part = copy.copy(self), slice(sample, sample + 1)
        alone.arrays = self.arrays | {name: self[name][part] for name in ("query", "key", "value")}
        alone.mask = None if self.mask is None else self.mask[part]
        return alone

    def __getitem__(self, name: str) -> Array:
        """Return an array that is there."""
        array = self.arrays[name]
        if array is None:
            raise KeyError(name)
        return array


def _mask(problem: Problem) -> Array:
    rounded = problem.additive().astype(problem.dtype).astype(np.float64)
    return np.asarray(np.where(problem.hidden(), -np.inf, rounded))


def attend_in_order(prepared: Prepared, order: EvalOrder) -> tuple[Array, Array]:
    """Return output (N, L, H Dv) and weights (N, H, L, S') computed in one order."""
    problem = prepared.problem
    arithmetic = Arithmetic(problem.dtype, order)
    with np.errstate(all="ignore"):
        _, _, _, weights, heads = forward_in_order(prepared, order, arithmetic)
        output = merge_heads(heads)
        if problem.w_out is not None:
            bias = prepared.arrays["b_out"]
            output = arithmetic.product(output, prepared["w_out"], order.projection)
            output = arithmetic.end(output if bias is None else arithmetic.step(output) + bias)
        return output, weights


def forward_in_order(
    prepared: Prepared, order: EvalOrder, arithmetic: Arithmetic
) -> tuple[Array, Array, Array, Array, Array]:
    """Return q, k, v, weights and heads, (N, H, ...) each."""
    q, k, v = _projected(prepared, order, arithmetic)
    logits = _logits(q, k, prepared, order, arithmetic)
    return q, k, v, *_mixed(logits, v, order, arithmetic)


def _projected(
    prepared: Prepared, order: EvalOrder, arithmetic: Arithmetic
) -> tuple[Array, Array, Array]:
    """Return q, k, v (N, H, ..., D), with the appended keys, one key head a query head."""
    problem = prepared.problem
    counts = (problem.num_heads, problem.num_kv_heads, problem.num_kv_heads)
    q, k, v = (
        _heads(prepared, which, count, order, arithmetic)
        for which, count in zip("qkv", counts, strict=True)
    )
    if problem.bias_k is not None:
        k, v = (_with_row(rows, prepared[f"bias_{w}"]) for rows, w in ((k, "k"), (v, "v")))
    if problem.add_zero_attn:
        zero = np.zeros(problem.case.embed_dim, arithmetic.work)
        k, v = _with_row(k, zero), _with_row(v, zero)
    group = problem.num_heads // problem.num_kv_heads
    if group > 1:
        k, v = (np.repeat(rows, group, axis=1) for rows in (k, v))
    return q, k, v


def _with_row(heads: Array, row: Array) -> Array:
    """Append one more key, given as a row over all heads."""
    samples, count, _, width = heads.shape
    added = np.broadcast_to(row.reshape(1, count, 1, width), (samples, count, 1, width))
    return np.concatenate((heads, added), axis=2)


def _heads(
    prepared: Prepared, which: str, count: int, order: EvalOrder, arithmetic: Arithmetic
) -> Array:
    """Return one projection split into heads."""
    rows = prepared[{"q": "query", "k": "key", "v": "value"}[which]]
    weight, bias = prepared.arrays[f"w_{which}"], prepared.arrays[f"b_{which}"]
    if weight is None:
        return split_heads(rows, count)
    if order.per_head:
        parts = weight.reshape(count, -1, weight.shape[-1])
        heads = arithmetic.product(rows[:, None], parts[None], order.projection)
        if bias is not None:
            heads = arithmetic.step(heads) + bias.reshape(1, count, 1, -1)
        return arithmetic.end(heads)
    product = arithmetic.product(rows, weight, order.projection)
    if bias is not None:
        product = arithmetic.step(product) + bias
    return split_heads(arithmetic.end(product), count)


def _logits(
    q: Array, k: Array, prepared: Prepared, order: EvalOrder, arithmetic: Arithmetic
) -> Array:
    """Return the masked logits; in units of log 2 where the order wants powers of 2."""
    scale = arithmetic.work(prepared.problem.scale)
    if order.scale_at == "both":
        root = arithmetic.work(math.sqrt(abs(prepared.problem.scale)))
        q, k = arithmetic.step(q * root), arithmetic.step(k * np.copysign(root, scale))
    elif order.scale_at == "query":
        q = arithmetic.stage(q * scale)
    elif order.scale_at == "key":
        k = arithmetic.stage(k * scale)
    logits = arithmetic.stage(arithmetic.product(q, k, order.sums))
    if order.scale_at == "late":
        logits = arithmetic.step(logits * scale)
    if prepared.mask is not None:
        logits = arithmetic.stage(logits + prepared.mask)
    if order.base2:
        logits = logits * arithmetic.work(LOG2_E)
    return logits


def _mixed(
    logits: Array, v: Array, order: EvalOrder, arithmetic: Arithmetic
) -> tuple[Array, Array]:
    """Return weights and heads from the logits."""
    power = np.exp2 if order.base2 else np.exp
    if not logits.shape[-1]:
        return logits, np.zeros((*logits.shape[:-1], v.shape[-1]), logits.dtype)
    if order.keys:
        return _online(logits, v, order, arithmetic)
    highest = logits.max(axis=-1, keepdims=True)
    powers = arithmetic.step(power(arithmetic.step(logits - highest)))
    total = arithmetic.step(arithmetic.sum(powers, order.sums))
    weights = arithmetic.stage(powers / total)
    columns = v.swapaxes(-1, -2)
    if order.normalise == "before":
        return weights, arithmetic.end(arithmetic.product(weights, columns, order.sums))
    mixed = arithmetic.step(arithmetic.product(arithmetic.stage(powers), columns, order.sums))
    return weights, arithmetic.end(mixed / total)


def _online(
    logits: Array, v: Array, order: EvalOrder, arithmetic: Arithmetic
) -> tuple[Array, Array]:
    """Return weights and heads by online softmax over blocks of keys."""
    power = np.exp2 if order.base2 else np.exp
    shape = (*logits.shape[:-1], 1)
    highest = np.full(shape, -np.inf, logits.dtype)
    total = np.zeros(shape, logits.dtype)
    mixed = np.zeros((*logits.shape[:-1], v.shape[-1]), logits.dtype)
    for start in range(0, logits.shape[-1], order.keys):
        part = slice(start, start + order.keys)
        block = logits[..., part]
        higher = np.maximum(highest, block.max(axis=-1, keepdims=True))
        pivot = np.where(np.isneginf(higher), 0, higher)
        powers = arithmetic.stage(power(arithmetic.step(block - pivot)))
        rescale = power(np.where(np.isneginf(highest), -np.inf, highest - pivot))
        added = arithmetic.product(powers, v[..., part, :].swapaxes(-1, -2), order.sums)
        total = total * rescale + arithmetic.sum(powers, order.sums)
        mixed = arithmetic.step(mixed * rescale + added)
        highest = higher
    weights = power(logits - np.where(np.isneginf(highest), 0, highest)) / total
    return arithmetic.end(weights), arithmetic.end(mixed / total)
