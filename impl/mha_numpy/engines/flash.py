"""Attention by tiles that fit the cache: the one kernel for long sequences, weights on request.

    scores = scale * q k^T + M        P = softmax(scores) over the keys        heads_out = P v

For a block of queries the keys come tile by tile: scores into scratch memory, E = exp(scores) in
place, row sums z += E 1, o += E v; and one division o / z at the end, on (L, Dv) numbers where the
weights would be (L, S). Tiles that the causal rule or padding hides wholly are not computed.

E is computed without the row's maximum. Where the row sums show that this overflowed or lost
digits (`softmax.trusted`), the block is computed again with it, in two passes over the keys.

Source: Dao, FlashAttention-2 (2023), section 3.1, without its running maximum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mha_numpy.engines.parallel import on_all_threads
from mha_numpy.engines.problem import Problem, scratch
from mha_numpy.engines.tiles import (
    HeadMasks,
    Task,
    Tiles,
    choose_tiles,
    cut_tasks,
    spans,
)
from mha_numpy.masks import NO_MASK, Masking
from mha_numpy.softmax import exponential, row_sums, trusted

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RowSums(NamedTuple):
    """What the weights are computed again from: E / total, E = exp(scores - shift), both (N, H, L).

    `shift` is in the unit of `softmax.exponential`.
    """

    shift: NDArray[Any]
    total: NDArray[Any]


def attend_flash(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    masking: Masking = NO_MASK,
    scale: float = 1.0,
    *,
    need_weights: bool = False,
    average_weights: bool = False,
    tiles: Tiles | None = None,
    threads: int | None = None,
    sums: RowSums | None = None,
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return (heads_out, weights) of softmax(scale * q k^T + M) v.

    q (N, H, L, D), k (N, Hkv, S, D), v (N, Hkv, S, Dv), all float32 or all float64, in any memory
    order; Hkv divides H and query head h reads key head h // (H // Hkv). heads_out (N, H, L, Dv)
    is laid out in memory as (N, L, H, Dv), so that merging the heads copies nothing. weights
    (N, H, L, S), or their mean over the heads (N, L, S) where `average_weights`; None unless
    `need_weights`.

    Rows that see no key are 0, or NaN where weights are needed. Keys that no query of a block may
    see (padding at either end, the future) are not read, so a NaN there does not spread; from a
    hidden key in between it does, by 0 * NaN, as everywhere in torch. The result does not depend
    on `threads`, bit for bit; `tiles` replaces the sizes that would be chosen. Where `sums` is
    given it is written into; a row that sees no key gets the shift 0 and the total 1.
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
        heads_in_all = n * key_heads
        tiles = choose_tiles(queries, keys, q.itemsize, heads_in_all, whole_rows=need_weights)
    problem = Problem(q, k, v, heads_out, masking, scale, tiles)
    tasks = cut_tasks(n, key_heads, queries, tiles.queries)
    if weights is not None and average_weights:
        runs = spans(0, queries, tiles.queries)
        tasks = [Task(sample, range(key_heads), run) for sample in range(n) for run in runs]
    on_all_threads(lambda i: _attend_task(problem, tasks[i], weights, sums), len(tasks), threads)
    return heads_out, weights


def _attend_task(
    problem: Problem, task: Task, weights: NDArray[Any] | None, sums: RowSums | None
) -> None:
    """Compute one task's rows of heads_out, of the weights and of the sums."""
    sample, group = task.sample, problem.group
    for key_head in task.key_heads:
        k, v = problem.keys(sample, key_head)
        for head in range(key_head * group, (key_head + 1) * group):
            masks = problem.masks(sample, head)
            for rows in spans(task.queries.start, task.queries.stop, problem.tiles.queries):
                place = sample, head, rows
                q, out = problem.queries(*place), problem.out[place]
                held = None
                if weights is not None:
                    shape = (rows.stop - rows.start, len(k))
                    held = weights[place] if weights.ndim == 4 else scratch(shape, q.dtype)
                shift, total = _attend_block(q, k, v, out, masks, rows, problem.tiles.keys, held)
                if sums is not None:
                    sums.shift[place], sums.total[place] = shift, total
                if weights is not None and weights.ndim == 3 and held is not None:
                    _add_to_mean(weights[sample, rows], held, head, problem.q.shape[1])


def _add_to_mean(mean: NDArray[Any], weights: NDArray[Any], head: int, heads: int) -> None:
    """Add one head's weights to the sum over the heads, and divide it after the last one."""
    if head:
        mean += weights
    else:
        mean[...] = weights
    if head == heads - 1:
        mean /= heads


def _attend_block(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    out: NDArray[Any],
    masks: HeadMasks,
    rows: slice,
    most_keys: int,
    held: NDArray[Any] | None,
) -> tuple[NDArray[Any] | float, NDArray[Any]]:
    """Write a block of heads_out, and its weights into `held` where given; return shift and z."""
    key_tiles = masks.key_tiles(rows, most_keys)
    shift, total, mixed = 0.0, *_pass(q, k, v, masks, rows, key_tiles, None, held)
    seen: NDArray[Any] | float = shift
    if not trusted(total, mixed):
        maxima = _maxima(q, k, masks, rows, key_tiles)
        seen = maxima[:, 0]
        total, mixed = _pass(q, k, v, masks, rows, key_tiles, maxima, held)
        total[total == 0] = 1 if held is None else np.nan
    np.divide(mixed, total, out=out)
    if held is not None:
        np.divide(held, total, out=held)
    return seen, total[:, 0]


def _pass(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    masks: HeadMasks,
    rows: slice,
    key_tiles: list[slice],
    shift: NDArray[Any] | None,
    held: NDArray[Any] | None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return z = E 1, (rows, 1), and E v, (rows, Dv), over all tiles; E stays in `held`."""
    total = np.zeros((len(q), 1), q.dtype)
    mixed = scratch((len(q), v.shape[1]), q.dtype, "mixed")
    mixed[...] = 0
    if held is not None and sum(keys.stop - keys.start for keys in key_tiles) < len(k):
        held[...] = 0
    for keys in key_tiles:
        shape = (len(q), keys.stop - keys.start)
        tile = scratch(shape, q.dtype) if held is None else held[:, keys]
        write_powers(q, k[keys], masks, rows, keys, shift, tile)
        total += row_sums(tile)
        mixed += np.matmul(tile, v[keys], out=scratch(mixed.shape, q.dtype, "product"))
    return total, mixed


def write_powers(
    q: NDArray[Any],
    k: NDArray[Any],
    masks: HeadMasks,
    rows: slice,
    keys: slice,
    shift: NDArray[Any] | None,
    tile: NDArray[Any],
) -> None:
    """Write E = exp(q k^T + M - shift) of one tile, 0 where it is hidden; q is scaled already."""
    np.matmul(q, k.T, out=tile)
    masks.add_bias(tile, rows, keys)
    hidden_tiles = masks.hidden_tiles(rows, keys)
    function = exponential(tile.dtype).function
    if shift is None:
        function(tile, out=tile)
        for hidden in hidden_tiles:
            tile *= (~hidden).astype(tile.dtype)
        return
    for hidden in hidden_tiles:
        tile += np.where(hidden, -np.inf, 0).astype(tile.dtype)
    tile -= shift
    function(tile, out=tile)


def _maxima(
    q: NDArray[Any], k: NDArray[Any], masks: HeadMasks, rows: slice, key_tiles: list[slice]
) -> NDArray[Any]:
    """Return the largest score of each row, (rows, 1), and 0 for a row that sees no key."""
    maxima = np.full((len(q), 1), -np.inf, q.dtype)
    for keys in key_tiles:
        tile = np.matmul(
            q, k[keys].T, out=scratch((len(q), keys.stop - keys.start), q.dtype, "max")
        )
        masks.add_bias(tile, rows, keys)
        for hidden in masks.hidden_tiles(rows, keys):
            tile += np.where(hidden, -np.inf, 0).astype(tile.dtype)
        np.maximum(maxima, np.maximum.reduce(tile, axis=1, keepdims=True), out=maxima)
    maxima[maxima == -np.inf] = 0
    return maxima
