"""Attention that returns its weights, by rows that fit the cache, side by side on the pool.

A block is some queries of one sample. Head by head, their logits against all keys go through
exp and the product with v while they are in the cache. Where the mean over the heads is wanted, it
is added up there, and the weights of all heads never exist: N L S numbers are held, not N H L S.
As in the streaming engine the row's maximum is taken only where the row sums show that exp cannot
do without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy._heads import Heads
from mha_numpy._streaming import limits_of, row_sums, scratch, write_logits
from mha_numpy._threads import get_num_threads, run, single_threaded_blas
from mha_numpy._tiles import Block, even_share, spans

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mha_numpy._masking import Masking

ROW_BYTES = 1024 * 1024
"""Logits of one head in one block."""
LEAST_ROWS = 64
"""With fewer rows a product spends more on packing the keys than on multiplying."""


def attend_weighted(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    masking: Masking,
    scale: float,
    *,
    average: bool,
    rows: int | None = None,
    threads: int | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return (heads_out, weights) of softmax(scale * q k^T + masks) v.

    Shapes as in `attend_streaming`; weights (N, H, L, S), or their mean over the heads (N, L, S)
    where `average`. Rows that see no key are NaN in both. There is at least one key. `rows`
    replaces the number of queries in a block. The result does not depend on `threads`.
    """
    n, heads, queries, _ = q.shape
    keys, width = v.shape[2:]
    heads_out = np.empty((n, queries, heads, width), q.dtype).transpose(0, 2, 1, 3)
    weights = np.empty((n, queries, keys) if average else (n, heads, queries, keys), q.dtype)
    problem = Heads.of(q, k, v, heads_out, masking, scale)
    if rows is None:
        rows = even_share(queries, max(ROW_BYTES // (keys * q.itemsize), LEAST_ROWS))
    pieces = [(sample, part) for sample in range(n) for part in spans(0, queries, rows)]

    def compute(index: int) -> None:
        sample, part = pieces[index]
        with np.errstate(all="ignore"):
            if average:
                _mean_of_heads(problem, sample, part, weights[sample, part])
            else:
                _every_head(problem, sample, part, weights[sample, :, part])

    with single_threaded_blas:
        run(compute, len(pieces), get_num_threads() if threads is None else threads)
    return heads_out, weights


def _mean_of_heads(problem: Heads, sample: int, queries: slice, mean: NDArray[Any]) -> None:
    """Compute the heads of some queries and write the mean of their weights, (L, S)."""
    heads = problem.q.shape[1] * problem.q.shape[2]
    for head in range(heads):
        cells = scratch((1, 1, 1, *mean.shape), mean.dtype)
        _attend_rows(problem, _block(problem, sample, head, queries), cells)
        if head:
            mean += cells[0, 0, 0]
        else:
            mean[...] = cells[0, 0, 0]
    mean /= heads


def _every_head(problem: Heads, sample: int, queries: slice, weights: NDArray[Any]) -> None:
    """Compute the heads of some queries in the memory of their weights, (H, L, S)."""
    for head, cells in enumerate(weights):
        _attend_rows(problem, _block(problem, sample, head, queries), cells[None, None, None])


def _block(problem: Heads, sample: int, head: int, queries: slice) -> Block:
    kv_head, member = divmod(head, problem.q.shape[2])
    return Block(
        slice(sample, sample + 1),
        slice(kv_head, kv_head + 1),
        slice(member, member + 1),
        queries,
    )


def _attend_rows(problem: Heads, block: Block, cells: NDArray[Any]) -> None:
    """Write the block's weights into cells and its mixture into the problem's out."""
    q = problem.q[(*block.heads, block.queries)] * problem.q.dtype.type(problem.scale)
    v = problem.v[block.batch, block.kv_heads]
    out = problem.out[(*block.heads, block.queries)]
    least, most = limits_of(cells.dtype)
    _exp_directly(problem, block, q, cells)
    total = row_sums(cells)
    trusted = bool(total.min() >= least and total.max() <= most)
    if trusted:
        np.divide(cells @ v, total[..., None], out=out)
        trusted = bool(np.isfinite(out).all())
    if not trusted:
        _exp_less_maximum(problem, block, q, cells)
        total = row_sums(cells)
        np.divide(cells @ v, total[..., None], out=out)
    cells /= total[..., None]


def _exp_directly(problem: Heads, block: Block, q: NDArray[Any], cells: NDArray[Any]) -> None:
    write_logits(problem, block, slice(0, cells.shape[-1]), q, cells)
    np.exp(cells, out=cells)
    for keys in _under_one_rule(problem):
        tile = cells[..., keys]
        for hidden in problem.hidden_tiles(block, keys):
            tile *= (~hidden).astype(cells.dtype)


def _exp_less_maximum(problem: Heads, block: Block, q: NDArray[Any], cells: NDArray[Any]) -> None:
    write_logits(problem, block, slice(0, cells.shape[-1]), q, cells)
    for keys in _under_one_rule(problem):
        tile = cells[..., keys]
        for hidden in problem.hidden_tiles(block, keys):
            tile += np.where(hidden, -np.inf, 0).astype(cells.dtype)
    cells -= np.maximum.reduce(cells, axis=-1, keepdims=True)
    np.exp(cells, out=cells)


def _under_one_rule(problem: Heads) -> list[slice]:
    """Return the keys that the causal rule reaches, and the appended ones."""
    keys = problem.k.shape[3]
    past = keys - problem.appended
    return [span for span in (slice(0, past), slice(past, keys)) if span.stop > span.start]
