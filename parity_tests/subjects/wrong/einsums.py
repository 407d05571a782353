"""Wrong on purpose, written with einsum: f(X, Wq, Wk, Wv, H) with weights applied as X @ W."""

from __future__ import annotations

import numpy as np

EXPECTED = {
    "merged_badly": "merge-no-transpose",
    "both_reshaped": "split-merge-no-transpose",
    "split_badly": "split-no-transpose",
    "swapped_blocks": "qkv-order-kqv",
    "keys_for_values": "qkv-order-qvk",
    "heads_compete": "softmax-head-axis",
    "one_big_softmax": "softmax-joint-heads",
    "scaled_late": "scale-after-softmax",
    "by_heads": "scale-num-heads",
    "by_length": "scale-seqlen",
    "powers_of_two": "softmax-base2",
    "raw_values": "projection-skipped",
    "twice": "softmax-twice",
    "one_head": "single-head",
    "blended": "heads-averaged",
    "with_residual": "residual-added",
    "turning": "rotary-applied",
}


def project(X, W, H):
    """(T, E) to (H, T, D)."""
    return np.einsum("te,ehd->htd", X, W.reshape(W.shape[0], H, -1))


def softmax(z, axis=-1):
    e = np.exp(z - z.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def logits(q, k):
    return np.einsum("hid,hjd->hij", q, k) / np.sqrt(q.shape[-1])


def join(P, v):
    return np.einsum("hij,hjd->ihd", P, v).reshape(v.shape[1], -1)


def qkv(X, Wq, Wk, Wv, H):
    return project(X, Wq, H), project(X, Wk, H), project(X, Wv, H)


def merged_badly(X, Wq, Wk, Wv, H):
    q, k, v = qkv(X, Wq, Wk, Wv, H)
    return np.einsum("hij,hjd->hid", softmax(logits(q, k)), v).reshape(len(X), -1)


def split_badly(X, Wq, Wk, Wv, H):
    q, k, v = (np.einsum("te,ef->tf", X, W).reshape(H, len(X), -1) for W in (Wq, Wk, Wv))
    return join(softmax(logits(q, k)), v)


def both_reshaped(X, Wq, Wk, Wv, H):
    q, k, v = (np.einsum("te,ef->tf", X, W).reshape(H, len(X), -1) for W in (Wq, Wk, Wv))
    return np.einsum("hij,hjd->hid", softmax(logits(q, k)), v).reshape(len(X), -1)


def swapped_blocks(X, Wq, Wk, Wv, H):
    k, q, v = qkv(X, Wq, Wk, Wv, H)
    return join(softmax(logits(q, k)), v)


def keys_for_values(X, Wq, Wk, Wv, H):
    q, v, k = qkv(X, Wq, Wk, Wv, H)
    return join(softmax(logits(q, k)), v)


def heads_compete(X, Wq, Wk, Wv, H):
    q, k, v = qkv(X, Wq, Wk, Wv, H)
    return join(softmax(logits(q, k), axis=0), v)


def one_big_softmax(X, Wq, Wk, Wv, H):
    q, k, v = qkv(X, Wq, Wk, Wv, H)
    z = np.einsum("hij->ihj", logits(q, k))
    P = softmax(z.reshape(len(X), -1)).reshape(z.shape)
    return join(np.einsum("ihj->hij", P), v)


def scaled_late(X, Wq, Wk, Wv, H):
    q, k, v = qkv(X, Wq, Wk, Wv, H)
    return join(softmax(np.einsum("hid,hjd->hij", q, k)) / np.sqrt(q.shape[-1]), v)


def by_heads(X, Wq, Wk, Wv, H):
    q, k, v = qkv(X, Wq, Wk, Wv, H)
    return join(softmax(np.einsum("hid,hjd->hij", q, k) / H**0.5), v)


def by_length(X, Wq, Wk, Wv, H):
    q, k, v = qkv(X, Wq, Wk, Wv, H)
    z = np.einsum("hid,hjd->hij", q, k)
    return join(softmax(z / np.sqrt(z.shape[-1])), v)


def powers_of_two(X, Wq, Wk, Wv, H):
    q, k, v = qkv(X, Wq, Wk, Wv, H)
    z = logits(q, k)
    e = 2.0 ** (z - z.max(-1, keepdims=True))
    return join(e / e.sum(-1, keepdims=True), v)


def raw_values(X, Wq, Wk, Wv, H):
    q, k, _ = qkv(X, Wq, Wk, Wv, H)
    return join(softmax(logits(q, k)), np.einsum("thd->htd", X.reshape(len(X), H, -1)))


def twice(X, Wq, Wk, Wv, H):
    q, k, v = qkv(X, Wq, Wk, Wv, H)
    return join(softmax(softmax(logits(q, k))), v)


def one_head(X, Wq, Wk, Wv, H):
    q, k, v = (np.einsum("te,ef->tf", X, W) for W in (Wq, Wk, Wv))
    P = softmax(np.einsum("if,jf->ij", q, k) / np.sqrt(q.shape[-1]))
    return np.einsum("ij,jf->if", P, v)


def blended(X, Wq, Wk, Wv, H):
    q, k, v = qkv(X, Wq, Wk, Wv, H)
    P = softmax(logits(q, k))
    return np.einsum("ij,hjd->ihd", np.einsum("hij->ij", P) / H, v).reshape(len(X), -1)


def with_residual(X, Wq, Wk, Wv, H):
    q, k, v = qkv(X, Wq, Wk, Wv, H)
    return X + join(softmax(logits(q, k)), v)


def turning(X, Wq, Wk, Wv, H):
    q, k, v = qkv(X, Wq, Wk, Wv, H)

    def turned(x):
        half = x.shape[-1] // 2
        theta = np.outer(np.arange(x.shape[1]), 10000.0 ** (-np.arange(half) / max(half, 1)))
        z = (x[..., :half] + 1j * x[..., half : 2 * half]) * np.exp(1j * theta)
        return np.concatenate([z.real, z.imag, x[..., 2 * half :]], -1).astype(x.dtype)

    return join(softmax(logits(turned(q), turned(k))), v)
