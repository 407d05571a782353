"""Functions of inputs and weights, and classes of NumPy's arrays, in the styles of tutorials."""

from __future__ import annotations

import numpy as np


def attend(q, k, v):
    """Return softmax(q k^T / sqrt(D)) v."""
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def split(x, heads):
    """Return (..., L, E) as (..., H, L, D)."""
    return np.swapaxes(x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads), -2, -3)


def merge(x):
    """Return (..., H, L, D) as (..., L, E)."""
    x = np.swapaxes(x, -2, -3)
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def all_seven(Q, K, V, W_q, W_k, W_v, W_o, num_heads):  # noqa: N803  (as textbooks have them)
    """Return (N, L, E)."""
    rows = (split(x @ w, num_heads) for x, w in ((Q, W_q), (K, W_k), (V, W_v)))
    return merge(attend(*rows)) @ W_o


def of_annotated_sizes(x, w_q, w_k, w_v, w_o, head_dim: int, n_heads: int):
    """Return (N, L, E); the first number is the width of a head."""
    shape = (*x.shape[:2], n_heads, head_dim)
    q, k, v = (np.swapaxes((x @ w).reshape(shape), 1, 2) for w in (w_q, w_k, w_v))
    return merge(attend(q, k, v)) @ w_o


def packed(x, W, NH, Wp):  # noqa: N803
    """Return (L, E) of one matrix for q, k and v."""
    return merge(attend(*(split(each, NH) for each in np.split(x @ W, 3, axis=-1)))) @ Wp


def lists(x, Wqs, Wks, Wvs, Wp):  # noqa: N803
    """Return (L, E) of a matrix for each head."""
    heads = [attend(x @ q, x @ k, x @ v) for q, k, v in zip(Wqs, Wks, Wvs, strict=True)]
    return np.concatenate(heads, axis=-1) @ Wp


def lists_crossed(x, Wqs, Wks, Wvs, Wp):  # noqa: N803
    """Return (L, E), wrong: queries by the matrices of the keys."""
    return lists(x, Wks, Wqs, Wvs, Wp)


def dicts(x, c_attn, c_proj, n_head):
    """Return (L, E) of weights and biases by name."""
    rows = np.split(x @ c_attn["w"] + c_attn["b"], 3, axis=-1)
    return merge(attend(*(split(each, n_head) for each in rows))) @ c_proj["w"] + c_proj["b"]


def in_pairs(q, k, v, params, n_heads):
    """Return (N, L, E) of a tuple of pairs, each a weight and a bias."""
    lin_q, lin_k, lin_v, lin_o = params
    rows = (split(x @ w + b, n_heads) for x, (w, b) in ((q, lin_q), (k, lin_k), (v, lin_v)))
    return merge(attend(*rows)) @ lin_o[0] + lin_o[1]


def in_pairs_crossed(q, k, v, params, n_heads):
    """Return (N, L, E), wrong: keys by the pair of the queries."""
    lin_q, lin_k, lin_v, lin_o = params
    return in_pairs(q, k, v, (lin_k, lin_q, lin_v, lin_o), n_heads)


def transposed_pairs(x, q_proj, k_proj, v_proj, o_proj, num_heads):
    """Return (N, L, E) of pairs whose weights are (out, in)."""
    rows = (split(x @ w.T + b, num_heads) for w, b in (q_proj, k_proj, v_proj))
    return merge(attend(*rows)) @ o_proj[0].T + o_proj[1]


def stacked(x, w_in, b_in, w_out, b_out, num_heads):
    """Return (N, L, E) of matrices and biases stacked along an axis of q, k and v."""
    rows = (split(x @ w.T + b, num_heads) for w, b in zip(w_in, b_in, strict=True))
    return merge(attend(*rows)) @ w_out.T + b_out


def stacked_crossed(x, w_in, b_in, w_out, b_out, num_heads):
    """Return (N, L, E), wrong: the bias of the values is that of the keys."""
    return stacked(x, w_in, b_in[[0, 1, 1]], w_out, b_out, num_heads)


def keys_first(x, Wk, Wq, Wv):  # noqa: N803
    """Return (L, E), by matrices in another order."""
    return attend(x @ Wq, x @ Wk, x @ Wv)


def transposed(x, Wq, Wk, Wv):  # noqa: N803
    """Return (L, E), by matrices as torch keeps them."""
    return attend(x @ Wq.T, x @ Wk.T, x @ Wv.T)


def output_transposed(x, Wq, Wk, Wv, Wo, num_heads, causal=False):  # noqa: N803
    """Return (N, L, E), wrong: the output matrix is applied transposed, the others are not."""
    _, length, _ = x.shape
    q, k, v = (split(x @ w, num_heads) for w in (Wq, Wk, Wv))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return merge(weights / weights.sum(axis=-1, keepdims=True) @ v) @ Wo.T


def tiled(Q, K, V, n_heads, tile=64):  # noqa: N803
    """Return (N, L, E) of projected rows."""
    del tile
    return merge(attend(*(split(each, n_heads) for each in (Q, K, V))))


def columns(x, Wk, Wq, Wv, Bk, Bq, Bv):  # noqa: N803
    """Return (E, L): tokens are columns."""
    q, k, v = Wq @ x + Bq[:, None], Wk @ x + Bk[:, None], Wv @ x + Bv[:, None]
    return attend(q.T, k.T, v.T).T


def columns_of_biases(x, Wk, Wq, Wv, Bk, Bq, Bv):  # noqa: N803
    """Return (E, L): biases are columns (E, 1)."""
    return columns(x, Wk, Wq, Wv, Bk[:, 0], Bq[:, 0], Bv[:, 0])


def dicts_of_a_decoder(x, c_attn, c_proj, n_head):
    """Return (L, E) of weights and biases by name, causal."""
    rows = np.split(x @ c_attn["w"] + c_attn["b"], 3, axis=-1)
    q, k, v = (split(each, n_head) for each in rows)
    later = np.where(np.tri(len(x), dtype=bool), 0.0, -np.inf)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + later
    odds = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
    return merge(odds / odds.sum(-1, keepdims=True) @ v) @ c_proj["w"] + c_proj["b"]


def two_swapped(x, Wqkv, Wo, H):  # noqa: N803
    """Return (L, E), wrong: the packed matrix says q, k, v and is read q, v, k."""
    q, v, k = np.split(x @ Wqkv, 3, axis=-1)
    return merge(attend(split(q, H), split(k, H), split(v, H))) @ Wo


class ByName:
    """Weights and biases in dicts."""

    def __init__(self, d_model, num_heads, rng=None):
        rng = rng or np.random.default_rng(3)
        self.num_heads = num_heads
        self.W = {name: rng.random((d_model, d_model)) for name in ("q", "k", "v", "o")}
        self.b = {name: np.zeros(d_model) for name in ("q", "k", "v", "o")}

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(x @ self.W[n] + self.b[n], self.num_heads) for n in "qkv")
        return merge(attend(q, k, v)) @ self.W["o"] + self.b["o"]


class GivenWeights:
    """Its constructor takes the matrices."""

    def __init__(self, w_q, w_k, w_v, w_o, heads):
        self.w_q, self.w_k, self.w_v, self.w_o = w_q, w_k, w_v, w_o
        self.heads = heads

    def forward(self, q, k, v):
        """Return (N, L, E)."""
        rows = (split(x @ w, self.heads) for x, w in ((q, self.w_q), (k, self.w_k), (v, self.w_v)))
        return merge(attend(*rows)) @ self.w_o


class Downloads:
    """Fetches its weights."""

    def __init__(self, d_model, num_heads):
        import socket

        socket.create_connection(("127.0.0.1", 9))

    def forward(self, x):
        """Return the input."""
        return x


def torchs_rows(x, in_proj_weight, in_proj_bias, out_weight, out_bias, num_heads):
    """Right: all rows of q, then all of k, then all of v."""
    q, k, v = np.split(x @ in_proj_weight.T + in_proj_bias, 3, axis=-1)
    heads = attend(*(split(rows, num_heads) for rows in (q, k, v)))
    return merge(heads) @ out_weight.T + out_bias


def rows_head_by_head(x, in_proj_weight, in_proj_bias, out_weight, out_bias, num_heads):
    """Wrong by torch's name of the weights: the rows of q, k and v of a head lie together."""
    rows = split(x @ in_proj_weight.T + in_proj_bias, num_heads)
    return merge(attend(*np.split(rows, 3, axis=-1))) @ out_weight.T + out_bias


def own_rows_head_by_head(x, w_qkv, b_qkv, w_out, b_out, num_heads):
    """Right by a name of its own: the rows of q, k and v of a head lie together."""
    return rows_head_by_head(x, w_qkv, b_qkv, w_out, b_out, num_heads)


def objects(x, c_attn, c_proj, n_head):
    """Right: a weight `w` and a bias `b` are attributes of what is passed."""
    return dicts(x, {"w": c_attn.w, "b": c_attn.b}, {"w": c_proj.w, "b": c_proj.b}, n_head)


def heads_by_name(query_heads, key_heads, value_heads):
    """Right: (N, L, H, D); the names are those of inputs, and no numbers of heads."""
    rows = (each.swapaxes(1, 2) for each in (query_heads, key_heads, value_heads))
    return attend(*rows).swapaxes(1, 2)


def by_blocks(q, k, v, block_size: int = 128):
    """Wrong: (N, H, L, D); a row of zeros behind the keys is seen, whose score is 0."""
    pad = [(0, 0)] * (k.ndim - 2) + [(0, 1), (0, 0)]
    k, v = np.pad(k, pad), np.pad(v, pad)
    scores = q @ np.swapaxes(k, -1, -2) / q.dtype.type(q.shape[-1]) ** 0.5
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    blocks = range(0, k.shape[-2], block_size)
    rows = sum(powers[..., b : b + block_size] @ v[..., b : b + block_size, :] for b in blocks)
    return rows / powers.sum(axis=-1, keepdims=True)
