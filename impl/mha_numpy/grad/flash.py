"""Backward pass through flash, with the weights computed again tile by tile: nothing is L times S.

The forward pass keeps a shift and a sum for every row, so that a tile of weights is

    P = E / total        E = exp(scores - shift)

The division goes onto the cotangent, (L, Dv) numbers where the weights would be (L, S), and the
row's level rowsum(P * dP) = dO . o onto it as one more column, which meets a column of ones next
to v. With G = [dO, -level] / total, two passes over a tile are left:

    dv += E^T G     dS = E * (G [v, 1]^T)     dq += scale * dS k     dk += dS^T (scale * q)

A cotangent W of the weights adds W / total to G [v, 1]^T, and rowsum(P * W) to the level.

A task is a run of queries of one key head, with all query heads that read it: it owns its rows of
dq, and its part of dk and dv. Where there are few heads, or a float mask that heads share, the
queries are split into runs, each with dk, dv and d_mask of its own, added up at the end.

Source: Dao, FlashAttention-2 (2023), section 3.1, for the recomputation by tiles.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mha_numpy.engines.blocks import Block, TiledCall, scratch
from mha_numpy.engines.flash import RowSums, attend_flash
from mha_numpy.engines.threads import on_all_threads
from mha_numpy.engines.tiles import (
    LEAST_TASKS,
    LEAST_TILE_BYTES,
    Tiles,
    choose_tiles,
    even_length,
    mask_part,
    of_head,
    slices,
)
from mha_numpy.grad.targets import HeadGradients, Pull, sum_to
from mha_numpy.softmax import exponential

if TYPE_CHECKING:
    from mha_numpy.dtypes import Array
    from mha_numpy.masks import Masking

TILE_KEYS, TILE_BYTES = 256, LEAST_TILE_BYTES
"""Two tiles, E and dS, lie in the cache at a time. The sums for dk and dv are added to once a tile:
many queries and few keys are best, 512 x 256 float32 of 64...1024 x 128...1024, by 2 to 15 %."""
FARTHEST_SUM = 2.0**30
"""Sums of E between this and its inverse need no shift: a cotangent divided by them stays far
from overflow and underflow."""


class Backward(NamedTuple):
    """One pull: the problem, the sums of its rows, and the cotangents of heads_out and weights."""

    problem: TiledCall
    sums: RowSums
    d_out: Array
    d_weights: tuple[Array, ...]
    """One that broadcasts to (N, H, L, S), or none."""


def attend_flash_vjp(
    q: Array,
    k: Array,
    v: Array,
    masking: Masking,
    scale: float,
    *,
    need_weights: bool = False,
    tiles: Tiles | None = None,
) -> tuple[Array, Array | None, Pull]:
    """Return (heads_out, weights, pull), 0 in rows that see no key; shapes as in `attend_flash`.

    `pull` does not read the weights. `tiles` are those of the backward pass.
    """
    rows, keys = q.shape[:3], k.shape[2]
    sums = RowSums(np.zeros(rows, q.dtype), np.ones(rows, q.dtype), np.zeros(rows, np.bool_))
    heads_out, weights = attend_flash(q, k, v, masking, scale, need_weights=need_weights, sums=sums)
    if weights is not None:
        unseen = np.broadcast_to(masking.unseen(rows[2], keys, q.dtype), rows)
        heads_out[unseen] = weights[unseen] = 0
        sums.total[unseen] = 1
    if tiles is None:
        sizes = q.shape[2], keys, q.itemsize, len(k) * k.shape[1]
        tiles = choose_tiles(*sizes, most_keys=TILE_KEYS, most_bytes=TILE_BYTES)
    problem = TiledCall(q, k, v, heads_out, masking, scale, tiles, exponential(q.dtype, masking))

    def pull(d_heads: Array, d_weights: Array | None, into: HeadGradients) -> None:
        if not heads_out.size or not keys:
            for target in into[:3]:
                target[...] = 0
            return
        of_weights = () if d_weights is None else (d_weights,)
        _pull_back(Backward(problem, sums, d_heads, of_weights), into)

    return heads_out, weights, pull


def _pull_back(backward: Backward, into: HeadGradients) -> None:
    """Write all gradients: runs of queries of key heads on the pool, then the sums of the runs."""
    problem = backward.problem
    heads = list(product(*map(range, problem.k.shape[:2])))
    queries = problem.q.shape[2]
    split = problem.masking.bias or len(heads) < LEAST_TASKS
    length = even_length(queries, -(-queries // LEAST_TASKS)) if split else queries
    runs = slices(0, queries, length)
    targets = into.k, into.v, *into.bias
    # A mask with a row for each query holds the parts of all runs by itself.
    shared = [len(runs), len(runs), *(len(runs) if own.shape[2] == 1 else 1 for own in into.bias)]
    parts = [
        target[None] if count == 1 else np.zeros((count, *target.shape), target.dtype)
        for target, count in zip(targets, shared, strict=True)
    ]
    # Heads may share a float mask: one thread adds to its gradient for all of them.
    groups = [heads] if problem.masking.bias else [[head] for head in heads]
    tasks = list(product(range(len(runs)), groups))

    def compute(task: int) -> None:
        index, group = tasks[task]
        k, v, *bias = (part[index % len(part)] for part in parts)
        own = HeadGradients(into.q, k, v, tuple(bias))
        for sample, head in group:
            _pull_task(backward, own, runs[index], sample, head)

    on_all_threads(compute, len(tasks))
    for target, part in zip(targets, parts, strict=True):
        if len(part) > 1:
            np.add.reduce(part, axis=0, out=target)


def _pull_task(
    backward: Backward, into: HeadGradients, run: slice, sample: int, key_head: int
) -> None:
    """Write the task's rows of dq and its part of dk and dv."""
    problem = backward.problem
    k, v = problem.keys(sample, key_head)
    v_and_ones = scratch((len(v), v.shape[1] + 1), v.dtype, "v and ones")
    v_and_ones[:, :-1], v_and_ones[:, -1] = v, 1
    d_k, d_v = scratch(k.shape, k.dtype, "d_k"), scratch(v.shape, v.dtype, "d_v")
    d_k[...] = 0
    d_v[...] = 0
    for head in problem.query_heads(key_head):
        for rows in slices(run.start, run.stop, problem.tiles.queries):
            block = Block(problem, (sample, head, rows), k)
            # Its rows may meet future keys that no block of the forward pass met, and overflow.
            block.overwrites = problem.masking.causal
            _pull_block(backward, block, v_and_ones, d_k, d_v, into)
    # The scaled queries that met dS have the unit of exp in them.
    np.divide(d_k, problem.exp.unit, out=into.k[sample, key_head])
    into.v[sample, key_head] = d_v


def _pull_block(
    backward: Backward, block: Block, v_and_ones: Array, d_k: Array, d_v: Array, into: HeadGradients
) -> None:
    """Write the block's dq, and add its part of dk, dv and the float masks' gradients."""
    q, k, (sample, head, rows) = block.q, block.k, block.place
    d_weights, d_bias = (of_head(each, sample, head) for each in (backward.d_weights, into.bias))
    block.shift, total = _shift_and_total(backward, block)
    cotangent = _cotangent(backward, block, d_weights, total)
    d_q = scratch(q.shape, q.dtype, "d_q")
    d_q[...] = 0
    for keys in block.key_tiles:
        powers = block.powers(keys)
        _add_product(d_v[keys], powers.T, cotangent[:, :-1])
        d_scores = scratch(powers.shape, powers.dtype, "d_scores")
        np.matmul(cotangent, v_and_ones[keys].T, out=d_scores)
        for given in d_weights:
            d_scores += mask_part(given, rows, keys) / total
        d_scores *= powers
        _add_product(d_k[keys], d_scores.T, q)
        _add_product(d_q, d_scores, k[keys])
        for target in d_bias:
            own = mask_part(target, rows, keys)
            own += sum_to(d_scores, own.shape)
    np.multiply(d_q, backward.problem.scale, out=into.q[block.place])


def _shift_and_total(backward: Backward, block: Block) -> tuple[Array | None, Array]:
    """Return the rows' shift, None where none needs it, and their sums, each (rows, 1)."""
    shift, total, shifted = (of_rows[block.place][:, None] for of_rows in backward.sums)
    if total.max() > FARTHEST_SUM or total.min() < 1 / FARTHEST_SUM:
        # The shift takes over from the sum, which keeps what rounding the shift leaves to it.
        unit = backward.problem.exp.unit
        log_sum = np.log(total.astype(np.float64)) * unit + shift
        shift = log_sum.astype(total.dtype)
        return shift, np.exp((log_sum - shift) / unit).astype(total.dtype)
    return (shift if shifted.any() else None), total


def _cotangent(
    backward: Backward, block: Block, d_weights: tuple[Array, ...], total: Array
) -> Array:
    """Return G = [dO, -level] / total, in scratch memory."""
    d_out, out = backward.d_out[block.place], backward.problem.out[block.place]
    level = np.vecdot(d_out, out)[:, None]
    for given in d_weights:
        for keys in block.key_tiles:
            part = mask_part(given, block.rows, keys)
            level += np.vecdot(block.powers(keys), part)[:, None] / total
    cotangent = scratch((len(d_out), d_out.shape[1] + 1), d_out.dtype, "cotangent")
    np.divide(d_out, total, out=cotangent[:, :-1])
    np.divide(-level, total, out=cotangent[:, -1:])
    return cotangent


def _add_product(target: Array, left: Array, right: Array) -> None:
    """Add left @ right to target."""
    target += np.matmul(left, right, out=scratch(target.shape, target.dtype, "product"))
