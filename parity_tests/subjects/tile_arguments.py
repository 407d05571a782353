"""Functions of heads that are cut into tiles, and most take their sizes, in NumPy."""

from __future__ import annotations

import numpy as np


def _tile(query, keys, values, hidden, total):
    """Add the part of a tile of keys to the maximum, the sum and the output so far."""
    top, norm, mixed = total
    scores = query @ keys.swapaxes(-1, -2) / np.sqrt(query.shape[-1]).astype(query.dtype)
    scores = np.where(hidden, -np.inf, scores).astype(query.dtype)
    higher = np.maximum(top, scores.max(-1, keepdims=True))
    old, new = np.exp(top - higher), np.exp(scores - higher)
    return higher, norm * old + new.sum(-1, keepdims=True), mixed * old + new @ values


def _attend(query, key, value, causal, block_q, block_k, last_row=True):
    """Return (N, H, L, Dv); ``last_row``: tiles of keys are skipped by the last row of queries."""
    rows, keys = query.shape[2], key.shape[2]
    out = np.empty((*query.shape[:3], value.shape[-1]), query.dtype)
    for first in range(0, rows, block_q):
        of = np.arange(first, min(first + block_q, rows))
        total = (
            np.full((*query.shape[:2], len(of), 1), -np.inf, query.dtype),
            np.zeros((*query.shape[:2], len(of), 1), query.dtype),
            np.zeros((*query.shape[:2], len(of), value.shape[-1]), query.dtype),
        )
        for start in range(0, keys, block_k):
            if causal and start > (of[-1] if last_row else first):
                break
            seen = np.arange(start, min(start + block_k, keys))
            hidden = causal & (seen > of[:, None])
            total = _tile(query[:, :, of], key[:, :, seen], value[:, :, seen], hidden, total)
        out[:, :, of] = total[2] / total[1]
    return out


def by_blocks(query, key, value, causal=False, block_q=16, block_k=16):
    return _attend(query, key, value, causal, block_q, block_k)


def skipped_by_the_first_row(query, key, value, causal=False, block_q=16, block_k=16):
    """Wrong where tiles of queries are larger than those of keys: by default they are alike."""
    return _attend(query, key, value, causal, block_q, block_k, last_row=False)


def of_vectors(query, key, value, causal=False, block_q=64, block_k=64):
    """Right: it has tiles of 16 rows and their multiples alone."""
    if block_q % 16 or block_k % 16:
        raise ValueError("tiles should be of a multiple of 16 rows")
    return _attend(query, key, value, causal, block_q, block_k)


def in_chunks(query, key, value, chunk_size=None):
    """Right: rows of queries are computed in parts, all at once by default."""
    size = chunk_size or query.shape[2]
    return _attend(query, key, value, False, size, key.shape[2])


def whole_chunks(query, key, value, chunk_size=None):
    """Wrong: rows behind the last whole chunk are 0."""
    size = chunk_size or query.shape[2]
    out = _attend(query, key, value, False, size, key.shape[2])
    out[:, :, query.shape[2] // size * size :] = 0
    return out


def within_chunks(query, key, value, chunk_size=None):
    """Right: queries see the keys of their own chunk, all keys by default."""
    if chunk_size is None:
        return _attend(query, key, value, False, query.shape[2], key.shape[2])
    cuts = range(0, query.shape[2], chunk_size)
    parts = ([each[:, :, at : at + chunk_size] for each in (query, key, value)] for at in cuts)
    return np.concatenate([in_chunks(*each) for each in parts], axis=2)


def within_blocks(query, key, value, local_blocks=64, block=64):
    """Right: queries see as many keys as that many blocks have, more than any case."""
    rows, keys = np.arange(query.shape[2])[:, None], np.arange(key.shape[2])
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]).astype(query.dtype)
    scores = np.where(abs(rows - keys) < local_blocks * block, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value


def in_float32(query, key, value, causal=False, block_q=16, block_k=16):
    """Wrong: float64 has half of its digits, whatever the tiles."""
    narrow = (each.astype(np.float32) for each in (query, key, value))
    return _attend(*narrow, causal, block_q, block_k).astype(query.dtype)


def _with_weights(query, key, value, return_weights, rescaled):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]).astype(query.dtype)
    powers, top = np.zeros_like(scores), np.full((*scores.shape[:-1], 1), -np.inf, query.dtype)
    for start in range(0, scores.shape[-1], 16):
        tile = slice(start, start + 16)
        higher = np.maximum(top, scores[..., tile].max(-1, keepdims=True))
        powers[..., :start] *= np.exp(top - higher) if rescaled else 1
        powers[..., tile] = np.exp(scores[..., tile] - higher)
        top = higher
    weights = np.exp(scores - top)
    norm = weights.sum(-1, keepdims=True)
    output = weights / norm @ value
    return (output, powers / norm) if return_weights else output


def with_weights(query, key, value, return_weights=False):
    return _with_weights(query, key, value, return_weights, rescaled=True)


def with_stale_weights(query, key, value, return_weights=False):
    """Wrong: the returned weights of a tile keep its own maximum; the output is right."""
    return _with_weights(query, key, value, return_weights, rescaled=False)


def of_required_blocks(query, key, value, block_q, block_k):
    return _attend(query, key, value, False, block_q, block_k)


def of_letters(Q, K, V, Br, Bc):
    return _attend(Q, K, V, False, Br, Bc)


def of_chunks(q, k, v, chunk: int):
    return _attend(q, k, v, False, chunk, chunk)


def some_heads_at_a_time(q, k, v, head_chunk):
    parts = (slice(first, first + head_chunk) for first in range(0, q.shape[1], head_chunk))
    return np.concatenate([_attend(q[:, at], k[:, at], v[:, at], False, 16, 16) for at in parts], 1)


def within_required_blocks(q, k, v, block_size: int):
    """Right of blocks: a row sees the keys of its own one."""
    out = np.empty((*q.shape[:3], v.shape[-1]), q.dtype)
    for first in range(0, q.shape[2], block_size):
        at = slice(first, first + block_size)
        out[:, :, at] = _attend(q[:, :, at], k[:, :, at], v[:, :, at], False, 16, 16)
    return out


def not_rescaled(q, k, v, block_k: int):
    """Wrong: each tile has a maximum of its own."""
    mixed, norm = 0.0, 0.0
    for first in range(0, k.shape[2], block_k):
        scores = q @ k[:, :, first : first + block_k].swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        exp = np.exp(scores - scores.max(-1, keepdims=True)).astype(q.dtype)
        mixed = mixed + exp @ v[:, :, first : first + block_k]
        norm = norm + exp.sum(-1, keepdims=True)
    return mixed / norm


def heads_left_out(q, k, v, heads_per_pass=4):
    """Wrong: heads beyond a multiple of those of one pass stay 0."""
    out = np.zeros((*q.shape[:3], v.shape[-1]), q.dtype)
    for each in range(q.shape[1] // heads_per_pass or 1):
        at = slice(each * heads_per_pass, (each + 1) * heads_per_pass)
        out[:, at] = _attend(q[:, at], k[:, at], v[:, at], False, 16, 16)
    return out


n_heads = 4


def heads_of_module_left_out(q, k, v):
    """Wrong: the number of its module is that of one pass."""
    return heads_left_out(q, k, v, n_heads)


def _of_splits(q, k, v, num_splits):
    """Return outputs and log-sum-exps of each part of the keys, each of one key or more."""
    for at in np.array_split(np.arange(k.shape[2]), num_splits):
        scores = q @ k[:, :, at].swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        top = scores.max(-1, keepdims=True)
        exp = np.exp(scores - top)
        total = exp.sum(-1, keepdims=True)
        yield exp @ v[:, :, at] / total, top + np.log(total)


def in_splits(q, k, v, num_splits):
    outputs, logs = map(np.stack, zip(*_of_splits(q, k, v, num_splits), strict=True))
    shares = np.exp(logs - logs.max(0))
    return (shares / shares.sum(0) * outputs).sum(0).astype(q.dtype)


def mean_of_splits(q, k, v, num_splits):
    """Wrong: parts count alike, whatever their sums are."""
    return np.mean([output for output, _ in _of_splits(q, k, v, num_splits)], axis=0).astype(q.dtype)
