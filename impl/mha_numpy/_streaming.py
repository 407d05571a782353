"""Attention by tiles that fit the cache: no array of L times S numbers at any time.

    logits = scale * q k^T + masks        P = softmax over the keys        heads_out = P v

For every block of queries the keys come tile by tile: logits into a scratch array, E = exp(logits)
in place, row sums z += E 1 by a product with ones, o += E v; and one division o / z at the end, on
(L, Dv) numbers where the weights would be (L, S).

E is taken without the row's maximum. Softmax is the same for any shift; the maximum only guards
against overflow and underflow, and whether it was needed shows afterwards in the row sums: a sum
between `Limits.least` and `Limits.most` and a finite result prove that no term overflowed and
that all that underflowed is far below a rounding of the sum. A block that fails the test is
computed again with the running maximum of every row. (The bound known before, |q| max|k| by Cauchy
and Schwarz, costs more than this test and rejects many a block that passes it.)
"""

from __future__ import annotations

import threading
from functools import cache, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mha_numpy._heads import Heads, split_heads
from mha_numpy._masking import NO_MASK, Masking
from mha_numpy._threads import get_num_threads, run, single_threaded_blas
from mha_numpy._tiles import Block, Tiles, choose_tiles, cut

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


class RowSums(NamedTuple):
    """What weights are computed again from: exp(logits - shift) / total, both (N, H, L)."""

    shift: NDArray[Any]
    total: NDArray[Any]


class Limits(NamedTuple):
    """Row sums of exp(logits) that prove the absence of overflow and of harmful underflow."""

    least: float
    most: float


def attend_streaming(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    masking: Masking = NO_MASK,
    scale: float = 1.0,
    *,
    tiles: Tiles | None = None,
    threads: int | None = None,
    sums: RowSums | None = None,
) -> NDArray[Any]:
    """Return softmax(scale * q k^T + masks) v, heads_out (N, H, L, Dv).

    q (N, H, L, D), k (N, Hkv, S, D), v (N, Hkv, S, Dv), all float32 or all float64, in any memory
    order; Hkv divides H and query head h reads key head h // (H // Hkv). The result is laid out in
    memory as (N, L, H, Dv), so that merging the heads costs nothing.

    Rows that see no key are 0. Keys that no query of a block may see (padding at either end, the
    future) are not read, so a NaN there does not spread; from a hidden key in between it does, by
    0 * NaN, as everywhere in torch. The result does not depend on `threads`, bit for bit;
    `tiles` replaces the sizes that would be chosen. Where `sums` is given it is written into, but
    not for problems without a key; a row that sees no key gets the shift 0 and the total 1.
    """
    n, heads, queries, _ = q.shape
    _, kv_heads, keys, width = v.shape
    merged = np.empty((n, queries, heads, width), q.dtype)
    heads_out = merged.transpose(0, 2, 1, 3)
    if not merged.size or not keys:
        merged[...] = 0
        return heads_out
    problem = Heads.of(q, k, v, heads_out, masking, scale)
    if tiles is None:
        tiles = choose_tiles(n * heads, queries, keys, q.itemsize)
    blocks = cut(n, kv_heads, heads // kv_heads, queries, tiles)
    threads = get_num_threads() if threads is None else threads
    kept = None if sums is None else RowSums(*(split_heads(each, kv_heads) for each in sums))
    with single_threaded_blas:
        run(lambda i: _attend_block(problem, blocks[i], tiles.keys, kept), len(blocks), threads)
    return heads_out


def _attend_block(problem: Heads, block: Block, most_keys: int, sums: RowSums | None) -> None:
    """Compute one block of heads_out, directly where that holds, else with the maximum."""
    q = problem.q[(*block.heads, block.queries)] * problem.q.dtype.type(problem.scale)
    key_tiles = problem.key_tiles(block, most_keys)
    out = problem.out[(*block.heads, block.queries)]
    with np.errstate(all="ignore"):
        shift: Any = 0
        total = _directly(problem, block, key_tiles, q, out)
        if total is None:
            shift, total = _with_maximum(problem, block, key_tiles, q, out)
    if sums is not None:
        sums.shift[(*block.heads, block.queries)] = shift
        sums.total[(*block.heads, block.queries)] = total


def _directly(
    problem: Heads, block: Block, key_tiles: list[slice], q: NDArray[Any], out: NDArray[Any]
) -> NDArray[Any] | None:
    """Write exp(logits) v / sum exp(logits) into out; return the sums, or None if in doubt."""
    least, most = limits_of(q.dtype)
    total: Any = 0
    mixed = None
    for keys in key_tiles:
        cells = scratch((*q.shape[:-1], keys.stop - keys.start), q.dtype)
        write_logits(problem, block, keys, q, cells)
        np.exp(cells, out=cells)
        for hidden in problem.hidden_tiles(block, keys):
            cells *= (~hidden).astype(cells.dtype)
        total = total + row_sums(cells)
        if not np.maximum.reduce(total, axis=None) <= most:
            return None
        product = cells @ problem.v[block.batch, block.kv_heads, :, keys]
        mixed = product if mixed is None else np.add(mixed, product, out=mixed)
    if mixed is None or not np.minimum.reduce(total, axis=None) >= least:
        return None
    np.divide(mixed, total[..., None], out=out)
    return total if np.isfinite(out).all() else None


def _with_maximum(
    problem: Heads, block: Block, key_tiles: list[slice], q: NDArray[Any], out: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Write the block's result into out, all logits taken less their row's maximum so far.

    Returns the maxima (0 for rows that see no key) and the sums.
    """
    peak = np.full(q.shape[:-1], -np.inf, q.dtype)
    total: Any = np.zeros(q.shape[:-1], q.dtype)
    mixed: Any = 0
    for keys in key_tiles:
        cells = scratch((*q.shape[:-1], keys.stop - keys.start), q.dtype)
        write_logits(problem, block, keys, q, cells)
        for hidden in problem.hidden_tiles(block, keys):
            cells += np.where(hidden, -np.inf, 0).astype(cells.dtype)
        before, peak = peak, np.maximum(peak, np.maximum.reduce(cells, axis=-1))
        # A row that has seen nothing yet has the maximum -inf; less 0, its cells stay -inf.
        shift = np.where(peak == -np.inf, 0, peak)
        cells -= shift[..., None]
        np.exp(cells, out=cells)
        shrink = np.exp(before - shift)
        total = total * shrink + row_sums(cells)
        mixed = mixed * shrink[..., None] + cells @ problem.v[block.batch, block.kv_heads, :, keys]
    total[total == 0] = 1
    np.divide(mixed, total[..., None], out=out)
    return np.where(peak == -np.inf, 0, peak).astype(q.dtype, copy=False), total


def write_logits(
    problem: Heads, block: Block, keys: slice, q: NDArray[Any], cells: NDArray[Any]
) -> None:
    """Write q k^T + bias of one tile into cells, q scaled already."""
    k = problem.k[block.batch, block.kv_heads, :, keys]
    np.matmul(q, k.swapaxes(-1, -2), out=cells)
    for bias in problem.bias_tiles(block, keys):
        cells += bias


def row_sums(cells: NDArray[Any]) -> NDArray[Any]:
    """Return the sums over the last axis: BLAS's product with ones takes a third of the time."""
    keys = cells.shape[-1]
    sums: NDArray[Any] = cells.reshape(-1, keys) @ _ones(keys, cells.dtype)
    return sums.reshape(cells.shape[:-1])


_own = threading.local()


def scratch(shape: tuple[int, ...], dtype: DTypeLike, name: str = "logits") -> NDArray[Any]:
    """Return an array of this thread's scratch memory, contiguous, its contents left over.

    Each name has memory of its own. It is kept: a fresh half megabyte costs more in page faults
    than a tile's exp.
    """
    size = prod(shape)
    held: dict[Any, NDArray[Any]] = _own.__dict__
    key = (name, dtype)
    if key not in held or held[key].size < size:
        held[key] = np.empty(size, dtype)
    return held[key][:size].reshape(shape)


@lru_cache(maxsize=64)
def _ones(keys: int, dtype: DTypeLike) -> NDArray[Any]:
    return np.ones(keys, dtype)


@cache
def limits_of(dtype: np.dtype[Any]) -> Limits:
    """Return the row sums to trust: for float32 between 5e-7 and 1e23, for float64 1e-51 and 1e184.

    Above `most` too little room is left for a product with large values; below `least` terms
    that matter, or their products with small values, come near the subnormal numbers.
    """
    numbers = np.finfo(dtype)
    return Limits(float(numbers.tiny) ** (1 / 6), float(numbers.max) ** 0.6)
