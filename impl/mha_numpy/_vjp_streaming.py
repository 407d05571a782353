"""The way back through attention by tiles, with the weights computed again: nothing is L times S.

The forward pass keeps a shift and a sum for every row, so that a tile of weights is

    P = exp(logits - shift) / total

The division goes onto the cotangent, (L, Dv) numbers where the weights would be (L, S), and the
row's level rowsum(P * dP) = dO . o onto it as one more column, which meets a column of ones beside
v. With G = [dO, -dO . o] / total and E = exp(logits - shift), two passes over a tile are left:

    dv += E^T G     dS = E * (G [v, 1]^T)     dq += scale * dS k     dk += dS^T (scale * q)

A piece of work is some key heads (with all query heads that read them) and a run of queries: it
owns its rows of dq, and its heads of dk and dv. Where there are few heads, or a float mask that
heads share, the queries are split in a few parts, each with dk and dv of its own, added up at the
end. The cut depends on sizes alone, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mha_numpy._heads import Heads, part, split_heads
from mha_numpy._streaming import RowSums, attend_streaming, scratch, write_logits
from mha_numpy._threads import get_num_threads, run, single_threaded_blas
from mha_numpy._tiles import LEAST_BLOCKS, Block, Tiles, choose_tiles, even_share, spans
from mha_numpy._vjp_targets import HeadGradients, Pull, sum_to

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mha_numpy._masking import Masking

TILE_KEYS = 256
"""Keys of a tile. The sums for dk and dv are added to once a tile, so many queries and few keys
are best: 512 x 256 float32 of 64...512 x 128...1024, by 2 to 15 %."""
FARTHEST_SUM = 2.0**30
"""Sums of exp(logits) between this and its inverse need no shift: a cotangent divided by them
stays far from overflow and underflow."""


class Piece(NamedTuple):
    """Some key heads of some samples, and a run of queries."""

    batch: slice
    kv_heads: slice
    queries: slice
    part: int
    """Which of the parts the queries are."""


class Held(NamedTuple):
    """Weights that need no recomputation, (N, H, L, S), and their cotangent, if there is one."""

    weights: NDArray[Any]
    cotangent: NDArray[Any] | None
    """Broadcasts to (N, H, L, S)."""

    def split(self, groups: int) -> Held:
        """Return both with the heads' axis split in two."""
        d_weights = None if self.cotangent is None else split_heads(self.cotangent, groups)
        return Held(split_heads(self.weights, groups), d_weights)


@dataclass(frozen=True, slots=True)
class Backward:
    """A problem with all that its way back needs, the heads' axis split in two."""

    problem: Heads
    shift: NDArray[Any]
    total: NDArray[Any]
    d_out: NDArray[Any]
    d_q: NDArray[Any]
    d_k: NDArray[Any]
    """(parts, N, G, S, D)"""
    d_v: NDArray[Any]
    """(parts, N, G, S, Dv)"""
    d_bias: tuple[tuple[NDArray[Any], ...], ...]
    """The float masks' gradients, for every part."""
    held: Held | None


def attend_streaming_vjp(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    masking: Masking,
    scale: float,
    *,
    tiles: Tiles | None = None,
    threads: int | None = None,
) -> tuple[NDArray[Any], Pull]:
    """Return (heads_out, pull); arguments and heads_out as in `attend_streaming`.

    `pull` takes no cotangent of weights, since there are none. `tiles` are those of the way back.
    """
    n, heads, queries, _ = q.shape
    keys = k.shape[2]
    sums = RowSums(np.zeros(q.shape[:3], q.dtype), np.ones(q.shape[:3], q.dtype))
    heads_out = attend_streaming(q, k, v, masking, scale, threads=threads, sums=sums)
    problem = Heads.of(q, k, v, heads_out, masking, scale)
    if tiles is None and queries and keys:
        tiles = choose_tiles(n * heads, queries, keys, q.itemsize, wide=TILE_KEYS)

    def pull(d_heads: NDArray[Any], _: NDArray[Any] | None, into: HeadGradients) -> None:
        if tiles is None or not heads_out.size:
            for target in into[:3]:
                target[...] = 0
            return
        pull_back(problem, sums, d_heads, into, tiles, threads)

    return heads_out, pull


def pull_back(
    problem: Heads,
    sums: RowSums,
    d_heads: NDArray[Any],
    into: HeadGradients,
    tiles: Tiles,
    threads: int | None,
    held: Held | None = None,
) -> None:
    """Write all gradients, piece by piece on the pool."""
    groups = problem.k.shape[1]
    jobs, parts = _cut(problem, tiles)
    d_k, d_v = (
        target[None] if parts == 1 else np.empty((parts, *target.shape), target.dtype)
        for target in (into.k, into.v)
    )
    d_bias = [_own_bias(into.bias, index) for index in range(parts)]
    shift, total, d_out, d_q = (split_heads(each, groups) for each in (*sums, d_heads, into.q))
    backward = Backward(
        problem,
        shift,
        total,
        d_out,
        d_q,
        d_k,
        d_v,
        tuple(tuple(split_heads(each, groups) for each in masks) for masks in d_bias),
        None if held is None else held.split(groups),
    )
    with single_threaded_blas:
        threads = get_num_threads() if threads is None else threads
        run(lambda i: _pull_pieces(backward, jobs[i], tiles), len(jobs), threads)
    if parts > 1:
        np.add.reduce(d_k, axis=0, out=into.k)
        np.add.reduce(d_v, axis=0, out=into.v)
        for own in d_bias[1:]:
            for target, array in zip(into.bias, own, strict=True):
                if array is not target:
                    np.add(target, array, out=target)


def _own_bias(targets: tuple[NDArray[Any], ...], index: int) -> tuple[NDArray[Any], ...]:
    """Return where one part adds gradients of float masks: rows of its own need no copy."""
    return tuple(
        target if target.shape[2] > 1 or not index else np.zeros_like(target) for target in targets
    )


def _cut(problem: Heads, tiles: Tiles) -> tuple[list[list[Piece]], int]:
    """Return the jobs, each some pieces that go one after the other, and the number of parts."""
    n, groups, _, queries, _ = problem.q.shape
    of_heads = min(tiles.matrices, groups)
    of_batch = min(max(tiles.matrices // groups, 1), n)
    heads = list(product(spans(0, n, of_batch), spans(0, groups, of_heads)))
    parts = [slice(0, queries)]
    if problem.bias or len(heads) < LEAST_BLOCKS:
        parts = spans(0, queries, even_share(queries, -(-queries // LEAST_BLOCKS)))
    by_part = [[Piece(*head, run, index) for head in heads] for index, run in enumerate(parts)]
    if problem.bias:
        return by_part, len(parts)
    return [[piece] for pieces in by_part for piece in pieces], len(parts)


def _pull_pieces(backward: Backward, pieces: list[Piece], tiles: Tiles) -> None:
    with np.errstate(all="ignore"):
        for piece in pieces:
            _pull_piece(backward, piece, tiles)


def _pull_piece(backward: Backward, piece: Piece, tiles: Tiles) -> None:
    """Write the piece's rows of dq and its part of dk and dv."""
    problem = backward.problem
    of_heads = piece.batch, piece.kv_heads
    dtype = problem.q.dtype
    v = problem.v[of_heads]
    ones_beside = scratch((*v.shape[:-1], v.shape[-1] + 1), dtype, "v")
    ones_beside[..., :-1], ones_beside[..., -1] = v, 1
    d_k = scratch(problem.k[of_heads].shape, dtype, "d_k")
    d_v = scratch(v.shape, dtype, "d_v")
    d_k[...] = 0
    d_v[...] = 0
    queries = spans(piece.queries.start, piece.queries.stop, tiles.queries)
    for member, rows in product(range(problem.q.shape[2]), queries):
        block = Block(*of_heads, slice(member, member + 1), rows)
        _pull_block(backward, block, piece.part, tiles.keys, ones_beside, d_k, d_v)
    backward.d_k[(piece.part, *of_heads)] = d_k[:, :, 0]
    backward.d_v[(piece.part, *of_heads)] = d_v[:, :, 0]


def _pull_block(
    backward: Backward,
    block: Block,
    index: int,
    most_keys: int,
    v: NDArray[Any],
    d_k: NDArray[Any],
    d_v: NDArray[Any],
) -> None:
    """Write the block's dq and add its part of dk and dv, all keys tile by tile."""
    problem = backward.problem
    place = (*block.heads, block.queries)
    shift, cotangent = _levelled(backward, block)
    q = problem.q[place] * problem.q.dtype.type(problem.scale)
    d_q = scratch(q.shape, q.dtype, "d_q")
    d_q[...] = 0
    for keys in problem.key_tiles(block, most_keys):
        shape = (*q.shape[:-1], keys.stop - keys.start)
        if backward.held is None:
            weights = scratch(shape, q.dtype)
            _weigh_again(problem, block, keys, q, shift, weights)
        else:
            weights = part(backward.held.weights, block, keys)
        _add_product(d_v[..., keys, :], weights.swapaxes(-1, -2), cotangent[..., :-1])
        d_logits = scratch(shape, q.dtype, "d_logits")
        np.matmul(cotangent, v[..., keys, :].swapaxes(-1, -2), out=d_logits)
        if backward.held is not None and backward.held.cotangent is not None:
            d_logits += part(backward.held.cotangent, block, keys)
        d_logits *= weights
        _add_product(d_k[..., keys, :], d_logits.swapaxes(-1, -2), q)
        _add_product(d_q, d_logits, problem.k[block.batch, block.kv_heads, :, keys])
        for target in backward.d_bias[index]:
            own = part(target, block, keys)
            own += sum_to(d_logits, own.shape)
    np.multiply(d_q, problem.scale, out=backward.d_q[place])


def _levelled(backward: Backward, block: Block) -> tuple[NDArray[Any] | None, NDArray[Any]]:
    """Return the rows' shift, None where all are 0, and G = [dO, -dO . o] / total.

    A cotangent of the weights adds rowsum(P * dP) of its own to the level dO . o.
    """
    place = (*block.heads, block.queries)
    d_out, out = backward.d_out[place], backward.problem.out[place]
    shift, total = backward.shift[place], backward.total[place]
    if total.max() > FARTHEST_SUM or total.min() < 1 / FARTHEST_SUM:
        # The shift takes over from the sum, which keeps what rounding the shift leaves to it.
        log_sum = np.log(total.astype(np.float64)) + shift
        shift = log_sum.astype(total.dtype)
        total = np.exp(log_sum - shift).astype(total.dtype)
    cotangent = scratch((*d_out.shape[:-1], d_out.shape[-1] + 1), d_out.dtype, "cotangent")
    np.divide(d_out, total[..., None], out=cotangent[..., :-1])
    level = np.vecdot(d_out, out)
    if backward.held is not None and backward.held.cotangent is not None:
        weights, d_weights = backward.held.weights, backward.held.cotangent
        every = slice(None)
        level += np.vecdot(part(weights, block, every), part(d_weights, block, every))
    np.divide(-level, total, out=cotangent[..., -1])
    return (shift if shift.any() else None), cotangent


def _weigh_again(
    problem: Heads,
    block: Block,
    keys: slice,
    q: NDArray[Any],
    shift: NDArray[Any] | None,
    cells: NDArray[Any],
) -> None:
    """Write E = exp(logits - shift) of one tile, 0 where it is hidden, as it was forwards."""
    write_logits(problem, block, keys, q, cells)
    hidden_tiles = problem.hidden_tiles(block, keys)
    if shift is None:
        np.exp(cells, out=cells)
        for hidden in hidden_tiles:
            cells *= (~hidden).astype(cells.dtype)
        return
    for hidden in hidden_tiles:
        cells += np.where(hidden, -np.inf, 0).astype(cells.dtype)
    cells -= shift[..., None]
    np.exp(cells, out=cells)


def _add_product(target: NDArray[Any], left: NDArray[Any], right: NDArray[Any]) -> None:
    """Add left @ right to target."""
    target += np.matmul(left, right, out=scratch(target.shape, target.dtype, "product"))
