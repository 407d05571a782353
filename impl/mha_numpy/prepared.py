"""A layer for inference with its weights laid out once, for problems of a few thousand scores.

There a call into NumPy costs as much as its arithmetic: the layer makes thirty, this one twelve.
The scale goes into the query's weights; the key's bias is dropped, since it adds the same number to
all scores of a row; the value's bias goes into the output's, since the weights of a row sum to 1.
Every head has one more column: in the values it is 1 by its bias, so that the product with the
weights gives the row sums too; divided by itself it is 1 again, and meets the output's bias.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mha_numpy.engines.threads import BLAS_SPREADS_FROM
from mha_numpy.multihead import multi_head_attention
from mha_numpy.softmax import exponential
from mha_numpy.validation import quiet

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from mha_numpy.call import CallOptions
    from mha_numpy.dtypes import Array
    from mha_numpy.projections import Projections

MOST_SCORES = 4096
NORM_LIMIT = 60.0  # exp of 60 is far from overflow and underflow in float32


class PreparedAttention:
    """The function of a layer on copies of its weights; only small self-attention is special."""

    def __init__(self, own: Projections, options: CallOptions) -> None:
        self._parameters = own = own.astype(own.out_proj.weight.dtype)
        self._options = options._replace(need_weights=False, dropout_p=0.0)
        weight, self._width, (width, _, _) = own.in_proj_weight, 0, own.widths
        small = 3 * width * (width + options.num_heads) <= BLAS_SPREADS_FROM
        more = options.add_zero_attn or options.precise or options.engine == "flash"
        if weight is None or own.bias_k is not None or more or not small or weight.itemsize < 4:
            return
        if own.in_proj_bias is not None and not np.isfinite(own.in_proj_bias).all():
            return  # the key's bias, which the softmax does not see, is left out below
        self._width, heads, self._dtype = width, options.num_heads, weight.dtype
        self._shape = 3, heads, width // heads + 1
        self._exp, unit = exponential(weight.dtype)
        bias = np.zeros(len(weight), weight.dtype) if own.in_proj_bias is None else own.in_proj_bias
        in_weight = np.zeros((*self._shape, width), weight.dtype)
        in_weight[..., :-1, :] = weight.reshape(3, heads, -1, width)
        in_bias = np.zeros(self._shape, weight.dtype)
        in_bias[0, :, :-1] = bias[:width].reshape(heads, -1)
        in_bias[2, :, -1] = 1
        for part in in_weight, in_bias:
            part[0] *= unit / math.sqrt(width // heads)
        out_weight, out_bias = own.out_proj
        out = np.zeros((*self._shape[1:], width), weight.dtype)
        out[:, :-1] = out_weight.T.reshape(heads, -1, width)
        out[0, -1] = out_weight @ bias[-width:] + (0 if out_bias is None else out_bias)
        self._in_weight = np.ascontiguousarray(in_weight.reshape(-1, width).T)
        self._in_bias, self._out_weight = in_bias.reshape(-1), out.reshape(-1, width)

    @quiet
    def __call__(
        self,
        query: ArrayLike,
        key: ArrayLike,
        value: ArrayLike,
        key_padding_mask: ArrayLike | None = None,
        attn_mask: ArrayLike | None = None,
        is_causal: bool = False,
    ) -> Array:
        """Return the output alone, as `MultiheadAttention.forward` without weights and dropout."""
        plain = key_padding_mask is attn_mask is None and query is key is value and not is_causal
        if plain and type(query) is np.ndarray and query.ndim == 3:
            x = query if self._options.batch_first else query.swapaxes(0, 1)
            if self._fits(x):
                return self._short(x) if x is query else self._short(x).swapaxes(0, 1)
        options = self._options._replace(
            key_padding_mask=key_padding_mask, attn_mask=attn_mask, is_causal=is_causal
        )
        return multi_head_attention((query, key, value), self._parameters, options)[0]

    def _fits(self, x: Array) -> bool:
        """Whether the short way takes x (N, L, E): its width, dtype, and number of scores."""
        n, length, width = x.shape
        if width != self._width or x.dtype != self._dtype or not x.size:
            return False
        few = n * self._shape[1] * length * length <= MOST_SCORES
        return bool(few and length * self._in_weight.size <= BLAS_SPREADS_FROM)

    def _short(self, x: Array) -> Array:
        """Return the layer's output for x (N, L, E)."""
        n, length, width = x.shape
        projected = x @ self._in_weight  # sample by sample: BLAS then stays on this thread
        projected += self._in_bias
        q, k, v = projected.reshape(n, length, *self._shape).transpose(2, 0, 3, 1, 4)
        scores = q @ k.swapaxes(2, 3)
        if not np.vdot(scores, scores) <= NORM_LIMIT * NORM_LIMIT:  # their norm bounds each score
            scores -= np.maximum.reduce(scores, axis=-1, keepdims=True)
        self._exp(scores, scores)
        mixed = scores @ v
        merged = np.empty((n, length, *self._shape[1:]), mixed.dtype)
        np.divide(mixed, mixed[..., -1:], merged.transpose(0, 2, 1, 3))
        out: Array = merged.reshape(n * length, -1).dot(self._out_weight)
        return out.reshape(n, length, width)
