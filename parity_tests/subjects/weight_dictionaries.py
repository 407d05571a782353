"""Functions that take all weights in a dictionary and read them by name, or in a tuple."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


def attend(q, k, v):
    """Return softmax(q k^T / sqrt(D)) v of arrays (N, H, L, D), merged to (N, L, E)."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    exp = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = (exp / exp.sum(-1, keepdims=True) @ v).swapaxes(1, 2)
    return mixed.reshape(*mixed.shape[:2], -1)


def split(rows, heads):
    """Return (N, L, E) as (N, H, L, D)."""
    return rows.reshape(*rows.shape[:2], heads, rows.shape[-1] // heads).swapaxes(1, 2)


def flat(params, x, num_heads):
    """Right: four arrays, X @ W."""
    q, k, v = (split(x @ params[name], num_heads) for name in ("wq", "wk", "wv"))
    return attend(q, k, v) @ params["wo"]


def biased(query, key, value, params, num_heads):
    """Right: four arrays and their biases, and inputs of their own."""
    q = split(query @ params["W_q"] + params["b_q"], num_heads)
    k = split(key @ params["W_k"] + params["b_k"], num_heads)
    v = split(value @ params["W_v"] + params["b_v"], num_heads)
    return attend(q, k, v) @ params["W_o"] + params["b_o"]


def dense(layer, x):
    """Return a Linear of a dictionary."""
    return x @ layer["kernel"] + layer["bias"]


def nested(params, x, num_heads):
    """Right: a dictionary of weight and bias for each Linear, one of which is packed."""
    rows = np.split(dense(params["qkv"], x), 3, axis=-1)
    return dense(params["out"], attend(*(split(each, num_heads) for each in rows)))


def nested_unsaid(params, x, num_heads):
    """Right: of the output's projection the key says that it is one, and no more."""
    rows = np.split(dense(params["qkv"], x), 3, axis=-1)
    return dense(params["proj"], attend(*(split(each, num_heads) for each in rows)))


def within_another(params, x, num_heads):
    """Right: the dictionary of the attention is one of several in that of a whole model."""
    return nested(params["attn"], x, num_heads)


def of_a_stack(params, x, num_heads):
    """Right, and reads its weights under the names of a whole stack."""
    return nested(params["layers"]["first"], x, num_heads)


def within_another_crossed(params, x, num_heads):
    """Wrong: the packed rows are read as k, q, v."""
    own = params["attn"]
    k, q, v = np.split(dense(own["qkv"], x), 3, axis=-1)
    return dense(own["out"], attend(*(split(each, num_heads) for each in (q, k, v))))


def without_output(x, params, num_heads):
    """Right: the heads are merged, and `out` is the name of something else."""
    q, k, v = (split(x @ params[name].T, num_heads) for name in ("wq", "wk", "wv"))
    return {"out": attend(q, k, v)}


def with_heads(params, x):
    """Right: the number of heads stands among the weights."""
    q, k, v = (split(x @ params[name], params["n_heads"]) for name in ("Wq", "Wk", "Wv"))
    return attend(q, k, v) @ params["Wo"]


def by_letter(x, w, num_heads):
    """Right: `w["q"]` and the others, of which one function reads the letter that it gets."""

    def project(name):
        return split(x @ w[name], num_heads)

    return attend(project("q"), project("k"), project("v")) @ w["o"]


def by_letter_crossed(x, w, num_heads):
    """Wrong: queries and keys by the weights of each other."""

    def project(name):
        return split(x @ w[name], num_heads)

    return attend(project("k"), project("q"), project("v")) @ w["o"]


def in_a_tuple(params, x, num_heads):
    """Right: four arrays in the order of the names."""
    w_k, w_q, w_v, w_o = params
    q, k, v = (split(x @ w, num_heads) for w in (w_q, w_k, w_v))
    return attend(q, k, v) @ w_o


def heads_behind_inputs(params, x):
    """Right: (E, H, D) for q, k, v with biases (H, D), and (H, D, E) for the output."""
    rows = "nle,ehd->nhld"
    q = np.einsum(rows, x, params["wq"]) + params["bq"][:, None]
    k = np.einsum(rows, x, params["wk"]) + params["bk"][:, None]
    v = np.einsum(rows, x, params["wv"]) + params["bv"][:, None]
    return attend(q, k, v) @ params["wo"].reshape(-1, x.shape[-1]) + params["bo"]


def heads_behind_inputs_crossed(params, x):
    """Wrong: the bias of the keys is added to the queries, and that of the queries to the keys."""
    rows = "nle,ehd->nhld"
    q = np.einsum(rows, x, params["wq"]) + params["bk"][:, None]
    k = np.einsum(rows, x, params["wk"]) + params["bq"][:, None]
    v = np.einsum(rows, x, params["wv"]) + params["bv"][:, None]
    return attend(q, k, v) @ params["wo"].reshape(-1, x.shape[-1]) + params["bo"]


def doubled_heads(params, x):
    """Wrong: cuts twice as many heads as `n_heads` says."""
    heads = 2 * params["n_heads"]
    q, k, v = (split(x @ params[name], heads) for name in ("Wq", "Wk", "Wv"))
    return attend(q, k, v) @ params["Wo"]


def in_a_tuple_crossed(params, x, num_heads):
    """Wrong: takes keys as values, and values as keys."""
    w_q, w_k, w_v, w_o = params
    q, k, v = (split(x @ w, num_heads) for w in (w_q, w_v, w_k))
    return attend(q, k, v) @ w_o


def crossed(params, x, num_heads):
    """Wrong: takes keys as values, and values as keys."""
    q, k, v = (split(x @ params[name], num_heads) for name in ("wq", "wk", "wv"))
    return attend(q, v, k) @ params["wo"]


def doubled(params, x, num_heads):
    """Wrong: its scores are twice as large."""
    rows = np.split(dense(params["qkv"], x), 3, axis=-1)
    q, k, v = (split(each, num_heads) for each in rows)
    return dense(params["out"], attend(2 * q, k, v))


def affine(x, params, name):
    """Return a Linear of a state dict, whose keys are put together."""
    rows = x @ params[f"{name}.weight"].T
    bias = params.get(f"{name}.bias")
    return rows if bias is None else rows + bias


def of_a_state(params, x, context=None, n_heads=1):
    """Right: weights (out, in) and biases by their names in a state dict."""
    rows = (x, x if context is None else context)
    named = (("Wq", rows[0]), ("Wk", rows[1]), ("Wv", rows[1]))
    q, k, v = (split(affine(each, params, name), n_heads) for name, each in named)
    return affine(attend(q, k, v), params, "Wo")


def of_a_state_crossed(params, x, context=None, n_heads=1):
    """Wrong: takes keys as values, and values as keys."""
    rows = (x, x if context is None else context)
    named = (("Wq", rows[0]), ("Wv", rows[1]), ("Wk", rows[1]))
    q, k, v = (split(affine(each, params, name), n_heads) for name, each in named)
    return affine(attend(q, k, v), params, "Wo")


def configured(cfg, attn_params, x):
    """Right: the sizes are attributes of an object, and the weights (in, out) in a dictionary."""
    q, k, v = (split(x @ attn_params[name], cfg.n_heads) for name in ("W_q", "W_k", "W_v"))
    return attend(q, k, v) @ attn_params["W_o"]


def configured_by_width(cfg, attn_params, x):
    """Wrong: the scores are divided by the root of the whole width."""
    q, k, v = (split(x @ attn_params[name], cfg.n_heads) for name in ("W_q", "W_k", "W_v"))
    return attend(q / np.sqrt(cfg.n_heads), k, v) @ attn_params["W_o"]


class Kept:
    """Right: the constructor keeps a dictionary of weights (in, out), and `lengths` (N,) hide."""

    def __init__(self, params, num_heads):
        self.p = params
        self.num_heads = num_heads
        self.scratch = {}

    def _projected(self, rows, which):
        return split(rows @ self.p["w" + which] + self.p["b" + which], self.num_heads)

    def __call__(self, x, context):
        """Return (N, L, E); the last scores are kept."""
        q, k, v = (self._projected(*each) for each in ((x, "q"), (context, "k"), (context, "v")))
        self.scratch["scores"] = q @ k.swapaxes(-1, -2)
        return attend(q, k, v) @ self.p["wo"] + self.p["bo"]


class KeptCrossed(Kept):
    """Wrong: the keys have the projection of the values, and these that of the keys."""

    def _projected(self, rows, which):
        return super()._projected(rows, {"k": "v", "v": "k"}.get(which, which))


class KeptWithoutBiases:
    """Right: biases are optional, of one packed array of weights (in, out)."""

    def __init__(self, weights, n_heads):
        self.weights, self.n_heads = weights, n_heads

    def _scaled(self, q):
        return q

    def __call__(self, x):
        """Return (N, L, E)."""
        rows = x @ self.weights["qkv"]
        if "b_qkv" in self.weights:
            rows = rows + self.weights["b_qkv"]
        q, k, v = (split(each, self.n_heads) for each in np.split(rows, 3, axis=-1))
        output = attend(self._scaled(q), k, v) @ self.weights["out"]
        bias = self.weights.get("b_out")
        return output if bias is None else output + bias


class KeptUnscaled(KeptWithoutBiases):
    """Wrong: the scores are not divided by the root of the width of a head."""

    def _scaled(self, q):
        return q * np.sqrt(q.shape[-1])


class KeptInside:
    """Reads names that mean no projection: it cannot be built."""

    def __init__(self, params, num_heads):
        self.table, self.num_heads = params["table"], num_heads

    def __call__(self, x):
        """Return (N, L, E)."""
        return x @ self.table


class Matrices(NamedTuple):
    """Kernels (in, heads, d) and (heads, d, out), biases (heads, d) and (out,)."""

    wq: Any
    wk: Any
    wv: Any
    bq: Any
    bk: Any
    bv: Any
    wo: Any
    bo: Any


def of_record(p: Matrices, xq, xk=None, xv=None):
    """Right: a named tuple, whose fields are the weights."""
    xk = xq if xk is None else xk
    rows = (xq, p.wq, p.bq), (xk, p.wk, p.bk), (xk if xv is None else xv, p.wv, p.bv)
    q, k, v = (np.einsum("nle,ehd->nhld", x, w) + b[:, None] for x, w, b in rows)
    mixed = attend(q, k, v).reshape(*xq.shape[:2], *p.wo.shape[:2])
    return np.einsum("nlhd,hde->nle", mixed, p.wo) + p.bo


def of_record_crossed(p: Matrices, xq, xk=None, xv=None):
    """Wrong on purpose: keys and values have each other's matrices."""
    return of_record(p._replace(wk=p.wv, wv=p.wk), xq, xk, xv)


@dataclass
class Projections:
    """Matrices (in, out)."""

    w_q: Any
    w_k: Any
    w_v: Any
    w_o: Any


def of_dataclass(params: Projections, x, num_heads):
    """Right: a dataclass."""
    q, k, v = (split(x @ each, num_heads) for each in (params.w_q, params.w_k, params.w_v))
    return attend(q, k, v) @ params.w_o


def of_torchs_state(sd, num_heads, query, key, value):
    """Right: arrays by the names of torch's layer, rows before samples."""
    width = query.shape[-1]
    biases = sd.get("in_proj_bias", np.zeros(3 * width)).reshape(3, width)
    matrices = zip(sd["in_proj_weight"].reshape(3, width, width), biases, strict=True)
    rows = zip((query, key, value), matrices, strict=True)
    q, k, v = (split((x @ w.T + b).swapaxes(0, 1), num_heads) for x, (w, b) in rows)
    out = attend(q, k, v).swapaxes(0, 1)
    return out @ sd["out_proj.weight"].T + sd.get("out_proj.bias", 0.0)


def of_torchs_state_crossed(sd, num_heads, query, key, value):
    """Wrong on purpose: keys and values have each other's matrices."""
    q, k, v = np.split(sd["in_proj_weight"], 3)
    crossed = {**sd, "in_proj_weight": np.concatenate([q, v, k])}
    return of_torchs_state(crossed, num_heads, query, key, value)
