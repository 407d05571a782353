"""Functions beside which another one of the module computes their gradients."""

import numpy as np
import torch


def _weights(q, k, bias=None):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    scores = scores if bias is None else scores + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _gradients(grad, q, k, v, weights):
    """Return the gradients of q, k and v, (N, H, L, D), and of the scores."""
    scale = np.sqrt(q.shape[-1]).astype(q.dtype)
    of_weights = grad @ v.swapaxes(-1, -2)
    of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdims=True))
    dq, dk = of_scores @ k / scale, of_scores.swapaxes(-1, -2) @ q / scale
    return dq, dk, weights.swapaxes(-1, -2) @ grad, of_scores


def attention_forward(q, k, v):
    """Right: what is kept comes beside the output. Arrays are (N, H, L, D)."""
    weights = _weights(q, k)
    return weights @ v, {"q": q, "k": k, "v": v, "weights": weights}


def attention_backward(dout, cache):
    dq, dk, dv, _ = _gradients(dout, cache["q"], cache["k"], cache["v"], cache["weights"])
    return dk, dv, dq


def flash_fwd(Q, K, V):
    """Wrong: its backward function leaves out what the sum of a row's weights takes back."""
    scores = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1]).astype(Q.dtype)
    top = scores.max(-1, keepdims=True)
    lse = top + np.log(np.exp(scores - top).sum(-1, keepdims=True))
    return np.exp(scores - lse) @ V, lse


def flash_bwd(Q, K, V, O, lse, dO):
    scale = np.sqrt(Q.shape[-1]).astype(Q.dtype)
    weights = np.exp(Q @ K.swapaxes(-1, -2) / scale - lse)
    of_scores = weights * (dO @ V.swapaxes(-1, -2))
    return of_scores @ K / scale, of_scores.swapaxes(-1, -2) @ Q / scale, weights.swapaxes(-1, -2) @ dO


def _heads(rows, num_heads):
    return rows.reshape(*rows.shape[:2], num_heads, -1).swapaxes(1, 2)


def projected(x, w_q, w_k, w_v, w_o, num_heads):
    """Right: weights are applied as X @ W, and their gradients come by name. Rows are (N, L, E)."""
    q, k, v = (_heads(x @ w, num_heads) for w in (w_q, w_k, w_v))
    weights = _weights(q, k)
    merged = (weights @ v).swapaxes(1, 2).reshape(x.shape)
    return merged @ w_o, (q, k, v, weights, merged)


def _of_projected(grad_output, x, w_q, w_k, w_v, w_o, num_heads, saved):
    q, k, v, weights, merged = saved
    found = _gradients(_heads(grad_output @ w_o.T, num_heads), q, k, v, weights)[:3]
    grads = {"w_o": np.einsum("nle,nlf->ef", merged, grad_output), "x": np.zeros_like(x)}
    for name, w, heads in zip(("w_q", "w_k", "w_v"), (w_q, w_k, w_v), found, strict=True):
        rows = heads.swapaxes(1, 2).reshape(x.shape)
        grads[name] = np.einsum("nle,nlf->ef", x, rows)
        grads["x"] += rows @ w.T
    return grads


def projected_backward(grad_output, x, w_q, w_k, w_v, w_o, num_heads, saved):
    return {f"d{n}": g for n, g in _of_projected(grad_output, x, w_q, w_k, w_v, w_o, num_heads, saved).items()}


def biased(q, k, v, bias=None):
    """Wrong: the gradient of what is added is scaled as that of a query is."""
    weights = _weights(q, k, bias)
    return weights @ v, (q, k, v, weights, None if bias is None else bias.shape)


def biased_backward(dout, saved):
    q, k, v, weights, shape = saved
    dq, dk, dv, of_scores = _gradients(dout, q, k, v, weights)
    dbias = None
    if shape is not None:
        dbias = of_scores / np.sqrt(q.shape[-1]).astype(q.dtype)
        dbias = dbias.sum(tuple(range(dbias.ndim - len(shape))))
        short = tuple(axis for axis, size in enumerate(shape) if size != dbias.shape[axis])
        dbias = dbias.sum(short, keepdims=True)
    return dq, dk, dv, dbias


def unbiased(q, k, v, bias=None):
    """Right: its backward function has no gradient of what is added."""
    return biased(q, k, v, bias)


def unbiased_backward(dout, saved):
    return biased_backward(dout, saved)[:3]


def by_torch(query, key, value):
    """Wrong: its backward function does not scale; autograd, which follows this one, would."""
    weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1)
    return weights @ value


def by_torch_backward(grad_out, query, key, value):
    with torch.no_grad():
        weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1)
        of_weights = grad_out @ value.mT
        of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdim=True))
        return of_scores @ key, of_scores.mT @ query, weights.mT @ grad_out


def of_strangers(q, k, v):
    """Right: what its backward function takes is unknown, so that it is not asked."""
    return _weights(q, k) @ v


def of_strangers_backward(dout, steps, rate):
    return dout, steps, rate


def scaled(q, k, v, scale=None):
    """Wrong: its backward function scales by 1/sqrt(D), whatever scale is given."""
    default = np.sqrt(q.shape[-1]).astype(q.dtype)
    given = q if scale is None else q * default * np.asarray(scale, q.dtype)
    weights = _weights(given, k)
    return weights @ v, (q, k, v, weights)


def scaled_backward(dout, saved):
    return _gradients(dout, *saved)[:3]


def averaged(q, k, v, bias=None):
    """Wrong: the gradient of what is added is averaged where it is broadcast."""
    return biased(q, k, v, bias)


def averaged_backward(dout, saved):
    q, k, v, weights, shape = saved
    dq, dk, dv, of_scores = _gradients(dout, q, k, v, weights)
    if shape is None:
        return dq, dk, dv, None
    dbias = of_scores.mean(tuple(range(of_scores.ndim - len(shape))))
    short = tuple(axis for axis, size in enumerate(shape) if size != dbias.shape[axis])
    dbias = dbias.mean(short, keepdims=True)
    return dq, dk, dv, dbias


NUM_HEADS = 12


def of_module(x, w_q, w_k, w_v, w_o):
    """Right: it reads the number of heads of its module, and so does its backward function."""
    return projected(x, w_q, w_k, w_v, w_o, NUM_HEADS)


def of_module_backward(grad_output, x, w_q, w_k, w_v, w_o, saved):
    return projected_backward(grad_output, x, w_q, w_k, w_v, w_o, NUM_HEADS, saved)
