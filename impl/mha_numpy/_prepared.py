"""A layer for inference, its weights prepared once.

What is folded away: the scale goes into the query's weights; the key bias is dropped, since it
adds the same number to all logits of a row and cancels in the softmax; the value bias goes behind
the attention and into the output's bias, since the weights of a row sum to 1. All weights are
stored the way the product reads them.

Each of these needs rows that see a key, and no appended keys. So the fast ways are for
self-attention with no mask or the causal one; every other call takes the layer's ordinary way.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy._errstate import quiet
from mha_numpy._layer import Options, layer_forward
from mha_numpy._materialised import attend
from mha_numpy._products import BLAS_SPREADS_FROM, affine
from mha_numpy._streaming import attend_streaming
from mha_numpy._threads import get_num_threads, run, single_threaded_blas
from mha_numpy._tiles import spans

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from mha_numpy._projections import Projections

PIECE_ROWS = 512
LEAST_PIECES = 4
LARGEST_LENGTH = 1024
"""Up to this length whole samples are one thread's work, from the first product to the last."""
TINY_LOGITS = 4096
NORM_LIMIT = 60.0
"""exp of so much, and of its negative, is far from overflow and underflow in float32."""


class PreparedAttention:
    """What `MultiheadAttention.prepare()` returns: the layer's function for inference.

    Parameters
    ----------
    parameters : Projections
        The layer's parameters, float32 or float64, one width; copied, so that later changes to
        the layer do not reach here.
    num_heads : int
        Number H of heads.
    batch_first : bool
        Sequences are (N, L, E) and not (L, N, E).
    add_zero_attn : bool
        As in the layer.
    """

    def __init__(
        self,
        parameters: Projections,
        num_heads: int,
        widths: tuple[int, int, int],
        *,
        batch_first: bool,
        add_zero_attn: bool,
    ) -> None:
        self._parameters = parameters.astype(parameters.out_proj.weight.dtype)
        self._widths = widths
        self._options = Options(
            num_heads, add_zero_attn, batch_first, need_weights=False, engine="auto"
        )
        self._dtype = self._parameters.out_proj.weight.dtype
        packed = self._parameters.in_proj_weight is not None
        plain = packed and self._parameters.bias_k is None and not add_zero_attn
        self._folded = (
            _Folded(self._parameters, num_heads)
            if plain and self._dtype in {np.dtype(np.float32), np.dtype(np.float64)}
            else None
        )

    @quiet
    def __call__(
        self,
        query: ArrayLike,
        key: ArrayLike,
        value: ArrayLike,
        key_padding_mask: ArrayLike | None = None,
        attn_mask: ArrayLike | None = None,
        is_causal: bool = False,
    ) -> NDArray[Any]:
        """Return the output alone, as the layer does with need_weights=False and no dropout.

        Shapes, masks, dtypes and refusals are those of `MultiheadAttention.forward`.
        """
        folded = self._folded
        if (
            folded is not None
            and query is key is value
            and key_padding_mask is None
            and attn_mask is None
            and not is_causal
            and type(query) is np.ndarray
            and query.ndim == 3
            and query.dtype == self._dtype
            and query.shape[2] == folded.width
            and query.size
        ):
            return folded.self_attention(query, self._options.batch_first)
        options = self._options._replace(
            key_padding_mask=key_padding_mask, attn_mask=attn_mask, is_causal=is_causal
        )
        return layer_forward(query, key, value, self._parameters, self._widths, options)[0]


class _Folded:
    """Self-attention without masks on folded weights.

    For tiny problems, where each call into NumPy counts, every head has one more column. In the
    values it is 1 by its bias, so that the product with the weights brings the row sums along;
    divided by itself it is 1 again, and meets the output's bias in the output's weights.
    """

    def __init__(self, parameters: Projections, num_heads: int) -> None:
        weight, out_weight = parameters.in_proj_weight, parameters.out_proj.weight
        assert weight is not None  # noqa: S101 (the caller has looked; this tells the type checker)
        width = weight.shape[1]
        head_dim = width // num_heads
        scale = 1 / math.sqrt(head_dim)
        in_weight = weight.copy()
        in_weight[:width] *= scale
        zeros = np.zeros(width, weight.dtype)
        bias = parameters.in_proj_bias
        query_bias, value_bias = (
            (zeros, zeros) if bias is None else (bias[:width], bias[2 * width :])
        )
        out_bias = zeros if parameters.out_proj.bias is None else parameters.out_proj.bias
        self.width, self.num_heads, self.head_dim = width, num_heads, head_dim
        # Stored transposed, so that .T, which `affine` takes, lies in C order.
        self.in_weight = np.asfortranarray(in_weight)
        self.in_bias = np.concatenate([query_bias * scale, zeros, zeros]).astype(weight.dtype)
        self.out_weight = np.asfortranarray(out_weight)
        self.out_bias = out_bias + out_weight @ value_bias
        self._widen()

    def _widen(self) -> None:
        """Lay the weights out with one more column a head, for tiny problems."""
        heads, head_dim, width = self.num_heads, self.head_dim, self.width
        wide = np.zeros((width, 3, heads, head_dim + 1), self.in_weight.dtype)
        wide[..., :head_dim] = self.in_weight.T.reshape(width, 3, heads, head_dim)
        bias = np.zeros((3, heads, head_dim + 1), wide.dtype)
        bias[..., :head_dim] = self.in_bias.reshape(3, heads, head_dim)
        bias[2, :, head_dim] = 1
        out = np.zeros((heads, head_dim + 1, width), wide.dtype)
        out[:, :head_dim] = self.out_weight.T.reshape(heads, head_dim, width)
        out[0, head_dim] = self.out_bias
        self.wide_in = wide.reshape(width, -1)
        self.wide_bias = bias.reshape(-1)
        self.wide_out = out.reshape(-1, width)

    def self_attention(self, x: NDArray[Any], batch_first: bool) -> NDArray[Any]:
        """Return the layer's output for x (N, L, E), or (L, N, E)."""
        if not batch_first:
            return self._batch_first(x.swapaxes(0, 1)).swapaxes(0, 1)
        return self._batch_first(x)

    def _batch_first(self, x: NDArray[Any]) -> NDArray[Any]:
        n, length, width = x.shape
        if (
            length * width * self.wide_bias.size <= BLAS_SPREADS_FROM
            and n * self.num_heads * length * length <= TINY_LOGITS
        ):
            return self._tiny(x, n, length)
        if n >= LEAST_PIECES and length <= LARGEST_LENGTH:
            return self._by_samples(x, n, length)
        q, k, v = self._split(affine(x.reshape(-1, width), self.in_weight, self.in_bias), n)
        merged = attend_streaming(q, k, v).swapaxes(1, 2).reshape(-1, width)
        return affine(merged, self.out_weight, self.out_bias).reshape(n, length, width)

    def _tiny(self, x: NDArray[Any], n: int, length: int) -> NDArray[Any]:
        """Compute small products only, each on one thread, in as few calls as it takes."""
        projected = x @ self.wide_in
        projected += self.wide_bias
        columns = self.head_dim + 1
        q, k, v = projected.reshape(n, length, 3, self.num_heads, columns).transpose(2, 0, 3, 1, 4)
        logits = q @ k.swapaxes(2, 3)
        flat = logits.reshape(-1)
        # The Euclidean norm of all logits bounds each of them.
        if not flat.dot(flat) <= NORM_LIMIT * NORM_LIMIT:
            logits -= np.maximum.reduce(logits, axis=-1, keepdims=True)
        np.exp(logits, logits)
        mixed = logits @ v
        mixed = mixed / mixed[..., self.head_dim :]
        merged = mixed.transpose(0, 2, 1, 3).reshape(n, length, -1)
        out: NDArray[Any] = merged @ self.wide_out
        return out

    def _by_samples(self, x: NDArray[Any], n: int, length: int) -> NDArray[Any]:
        """Give whole samples to the threads, which meet only at the end."""
        out = np.empty(x.shape, x.dtype)
        step = min(max(PIECE_ROWS // length, 1), n // LEAST_PIECES)
        pieces = spans(0, n, step)

        def compute(index: int) -> None:
            with np.errstate(all="ignore"):
                self._samples(x[pieces[index]], out[pieces[index]])

        with single_threaded_blas:
            run(compute, len(pieces), get_num_threads())
        return out

    def _samples(self, x: NDArray[Any], out: NDArray[Any]) -> None:
        """Write the output of some samples, on this thread alone."""
        n, length, width = x.shape
        projected = x.reshape(-1, width) @ self.in_weight.T
        projected += self.in_bias
        q, k, v = self._split(projected, n)
        if n * self.num_heads * length * length <= 8 * TINY_LOGITS:
            heads_out = attend(q, k, v)[0]
        else:
            heads_out = attend_streaming(q, k, v, threads=1)
        merged = heads_out.swapaxes(1, 2).reshape(-1, width)
        rows = out.reshape(-1, width)
        np.matmul(merged, self.out_weight.T, out=rows)
        rows += self.out_bias

    def _split(
        self, projected: NDArray[Any], n: int
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return q, k, v (N, H, L, D), views of (N*L, 3E)."""
        heads = projected.reshape(n, -1, 3, self.num_heads, self.head_dim)
        q, k, v = heads.transpose(2, 0, 3, 1, 4)
        return q, k, v
