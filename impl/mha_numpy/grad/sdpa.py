"""scaled_dot_product_attention and its vector-Jacobian product."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mha_numpy.call import CallOptions
from mha_numpy.dtypes import Array, to_array
from mha_numpy.grad.targets import HeadGradients, Pull, sum_to, to_cotangent, zeros_for
from mha_numpy.sdpa import HeadsCall, check_heads
from mha_numpy.validation import quiet

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    Gradients = dict[str, Array]


@quiet
def scaled_dot_product_attention_vjp(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    rng: np.random.Generator | None = None,
    engine: str = "auto",
    precise: bool = False,
) -> tuple[Array, Callable[[ArrayLike], Gradients]]:
    """Return (output, pull): the attention, and its vector-Jacobian product.

    `pull(cotangent)`, cotangent shaped as output, returns the gradients of sum(cotangent * output)
    under "query", "key", "value" and, where that is of floating point, "attn_mask".

    Formula
        P = softmax(scale * query key^T + mask), output = P value; for the cotangent G
        d_value = P^T G, dS = P * (G value^T - rowsum(G * output)), d_query = scale * dS key,
        d_key = scale * dS^T query, d_mask = dS, each summed over what was broadcast.

    Shapes, masks, options and refusals are those of `scaled_dot_product_attention`; each gradient
    has the shape and dtype of its argument. `pull` raises TypeError for a cotangent of another
    dtype than output, and ValueError for one of another shape.

    Notes
    -----
    `pull` may be called any number of times. It drops the weights that were dropped, and reads the
    arrays given here: leave them as they are until then. A row that sees no key is 0 and adds 0 to
    all gradients. "flash" never holds the weights: it keeps two numbers for every row, and `pull`
    computes the weights again tile by tile.
    """
    # Here, because most of those who import the package never go back.
    from mha_numpy.grad.heads import attend_heads_vjp

    asked = attn_mask, is_causal, scale, enable_gqa, precise
    options = CallOptions(need_weights=False, dropout_p=dropout_p, rng=rng, engine=engine)
    call = check_heads((query, key, value), asked, options)
    given = {"query": query, "key": key, "value": value, "attn_mask": attn_mask}
    arrays = {name: to_array(each, name) for name, each in given.items() if each is not None}
    heads_out, _, pull_heads = attend_heads_vjp(call.heads, call.engine)
    shape = heads_out.shape
    output = heads_out.reshape(*call.lead, *shape[2:]).astype(call.dtype)

    @quiet
    def pull(cotangent: ArrayLike) -> Gradients:
        d_output = to_cotangent(cotangent, "cotangent", "output", output.shape, call.dtype)
        d_heads = d_output.astype(call.heads.q.dtype, copy=False).reshape(shape)
        return _gradients(call, pull_heads, d_heads, arrays)

    return output, pull


def _gradients(call: HeadsCall, pull: Pull, d_heads: Array, arrays: dict[str, Array]) -> Gradients:
    """Return the gradients by the names of the arrays as they were given, in their shapes."""
    working = call.heads.q.dtype
    q, k, v = (np.empty(each.shape, working) for each in call.heads[:3])
    found = HeadGradients(q, k, v, zeros_for(call.heads.masking, working))
    pull(d_heads, None, found)
    gradients = {
        name: _as_given(gradient, call.lead, arrays[name].shape)
        for name, gradient in (("query", q), ("key", k), ("value", v))
    }
    if found.bias:
        gradients["attn_mask"] = _mask_as_given(found.bias[0], call, arrays["attn_mask"].shape)
    return {name: each.astype(arrays[name].dtype, copy=False) for name, each in gradients.items()}


def _as_given(gradient: Array, lead: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Return (N, H, length, width) summed to the shape of the argument it belongs to.

    Heads that were repeated, because key and value have unlike numbers of them, are added up.
    """
    _, heads, *tail = gradient.shape
    full = gradient.reshape(*lead[:-1], heads, *tail) if lead else gradient.reshape(tail)
    if len(shape) > 2 and shape[-3] not in {1, heads}:
        groups = full.reshape(*full.shape[:-3], shape[-3], heads // shape[-3], *tail)
        full = np.add.reduce(groups, axis=-3)
    return sum_to(full, shape)


def _mask_as_given(gradient: Array, call: HeadsCall, shape: tuple[int, ...]) -> Array:
    """Return the gradient of a float mask in the mask's own shape."""
    if gradient.size == math.prod(shape):
        return gradient.reshape(shape)
    return sum_to(gradient.reshape(*call.lead[:-1], *gradient.shape[1:]), shape)
