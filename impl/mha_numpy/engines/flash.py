"""Attention by tiles that fit the cache: the one kernel for long sequences, weights on request.

For a block of queries the keys come tile by tile: scores into scratch memory, E = exp(scores) in
place, row sums z += E 1, o += E v; and one division o / z at the end, on (L, Dv) numbers where the
weights would be (L, S). Tiles that the causal rule or padding hides wholly are not computed.

E is computed without the row's maximum. Where the row sums show that this overflowed or lost
digits (`softmax.sums_are_safe`), the block is computed again with it, in two passes over the keys.

Source: Dao, FlashAttention-2 (2023), section 3.1, without its running maximum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mha_numpy.engines.blocks import Block, TiledCall, scratch
from mha_numpy.engines.threads import on_all_threads
from mha_numpy.engines.tiles import LEAST_ROWS, Task, Tiles, choose_tiles, cut_tasks, slices
from mha_numpy.masks import NO_MASK, Masking
from mha_numpy.softmax import exponential, row_sums, sums_are_safe

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mha_numpy.dtypes import Array


class RowSums(NamedTuple):
    """Shift and total of each row, (N, H, L): the weights are exp(scores - shift) / total.

    `shift` is in the unit of `softmax.exponential`. `shifted`: whether the row needs it, which may
    be 0: without, what is hidden may overflow, and 0 * inf is NaN.
    """

    shift: Array
    total: Array
    shifted: NDArray[np.bool_]


def attend_flash(
    q: Array,
    k: Array,
    v: Array,
    masking: Masking = NO_MASK,
    scale: float = 1.0,
    *,
    need_weights: bool = False,
    average_weights: bool = False,
    tiles: Tiles | None = None,
    sums: RowSums | None = None,
) -> tuple[Array, Array | None]:
    """Return (heads_out, weights), arguments and results as in `attention.attend`.

    Rows that see no key are 0, or NaN where weights are needed. Keys that no query of a block may
    see (padding at either end, the future) are not read, so a NaN there does not spread; from a
    hidden key in between it does, by 0 * NaN, as everywhere in torch. `tiles` replaces the sizes
    that would be chosen. `sums` is written into; a row that sees no key gets the total 1 (or NaN).
    """
    n, heads, queries, _ = q.shape
    _, key_heads, keys, width = v.shape
    merged = np.empty((n, queries, heads, width), q.dtype)
    heads_out = merged.transpose(0, 2, 1, 3)
    shape = (n, queries, keys) if average_weights else (n, heads, queries, keys)
    weights = np.empty(shape, q.dtype) if need_weights else None
    if not merged.size or not keys:
        merged[...] = 0
        return heads_out, weights
    if tiles is None:
        sizes = queries, keys, q.itemsize, 2 * n if average_weights else n * key_heads
        least = 4 * LEAST_ROWS if average_weights else LEAST_ROWS
        tiles = choose_tiles(*sizes, held=need_weights, least_rows=least)
    problem = TiledCall(q, k, v, heads_out, masking, scale, tiles, exponential(q.dtype, masking))
    tasks = cut_tasks(n, key_heads, queries, tiles.queries, whole_heads=not average_weights)
    on_all_threads(lambda i: _attend_task(problem, tasks[i], weights, sums), len(tasks))
    return heads_out, weights


def _attend_task(
    problem: TiledCall, task: Task, weights: Array | None, sums: RowSums | None
) -> None:
    """Compute one task's rows of heads_out, of the weights and of the sums."""
    sample, key_heads, run = task
    for key_head in key_heads:
        k, v = problem.keys(sample, key_head)
        for head in problem.query_heads(key_head):
            for rows in slices(run.start, run.stop, problem.tiles.queries):
                block = Block(problem, (sample, head, rows), k, held=weights is not None)
                total = _attend_block(block, v, problem.out[block.place], weights)
                if sums is not None:
                    sums.total[block.place] = total[:, 0]
                    if block.shift is not None:
                        sums.shift[block.place] = block.shift[:, 0]
                        sums.shifted[block.place] = True


def _attend_block(block: Block, v: Array, out: Array, weights: Array | None) -> Array:
    """Write a block of heads_out, and its weights where they are needed; return z."""
    total, mixed = _pass(block, v)
    if not sums_are_safe(total, mixed):
        block.shift = block.maxima()
        total, mixed = _pass(block, v)
        total[total == 0] = 1 if weights is None else np.nan
    np.divide(mixed, total, out=out)
    if weights is not None:
        _write_weights(block, total, weights)
    return total


def _pass(block: Block, v: Array) -> tuple[Array, Array]:
    """Return z = E 1, (rows, 1), and E v, (rows, Dv), over all tiles."""
    q = block.q
    total = np.zeros((len(q), 1), q.dtype)
    mixed = scratch((len(q), v.shape[1]), q.dtype, "mixed")
    mixed[...] = 0
    for keys in block.key_tiles:
        powers = block.powers(keys)
        total += row_sums(powers)
        mixed += np.matmul(powers, v[keys], out=scratch(mixed.shape, q.dtype, "product"))
    return total, mixed


def _write_weights(block: Block, total: Array, weights: Array) -> None:
    """Write E / z from the held tiles, or, for weights (N, L, S), add it to the mean over heads."""
    sample, head, rows = block.place
    averaged = weights.ndim == 3
    target = weights[sample, rows] if averaged else weights[block.place]
    first = head == 0 or not averaged
    if first and sum(keys.stop - keys.start for keys in block.key_tiles) < target.shape[1]:
        target[...] = 0
    factor = 1 / (total * block.num_heads if averaged else total)
    for keys in block.key_tiles:
        tile, part = block.tile(keys), target[:, keys]
        np.multiply(tile, factor, out=part if first else tile)
        if not first:
            np.add(part, tile, out=part)
    target[np.isnan(total[:, 0])] = np.nan
