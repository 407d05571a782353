"""Self-attention of tiny problems, where each call into NumPy costs as much as its arithmetic.

On folded weights every head has one more column. In the values it is 1 by its bias, so that the
product with the weights brings the row sums along; divided by itself it is 1 again, and meets the
output's bias in the output's weights. That leaves twelve calls, half a microsecond each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mha_numpy._products import BLAS_SPREADS_FROM

MOST_LOGITS = 4096
NORM_LIMIT = 60.0
"""exp of so much, and of its negative, is far from overflow and underflow in float32."""

Four = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


class Tiny:
    """The weights laid out with one more column a head.

    Takes what the folded weights are: in_weight (E, H, 3, D), query_bias (H, D),
    out_weight (E, E) as the product reads it, out_bias (E,).
    """

    def __init__(
        self,
        in_weight: NDArray[Any],
        query_bias: NDArray[Any],
        out_weight: NDArray[Any],
        out_bias: NDArray[Any],
    ) -> None:
        width, heads, _, head_dim = in_weight.shape
        self.num_heads, self.head_dim = heads, head_dim
        wide = np.zeros((width, 3, heads, head_dim + 1), in_weight.dtype)
        wide[..., :head_dim] = in_weight.swapaxes(1, 2)
        bias = np.zeros((3, heads, head_dim + 1), wide.dtype)
        bias[0, :, :head_dim] = query_bias
        bias[2, :, head_dim] = 1
        out = np.zeros((heads, head_dim + 1, width), wide.dtype)
        out[:, :head_dim] = out_weight.reshape(heads, head_dim, width)
        out[0, head_dim] = out_bias
        self.in_weight = wide.reshape(width, -1)
        self.out_weight = out.reshape(-1, width)
        self._bias = bias.reshape(1, -1)
        self._fitting: tuple[int, ...] = ()

    @staticmethod
    def worthwhile(width: int, num_heads: int) -> bool:
        """Whether problems of one row would fit."""
        return 3 * width * (width + num_heads) <= BLAS_SPREADS_FROM

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether, for x of that shape, products stay on one thread and exp is a small part.

        The last shape that did is known again at once.
        """
        if shape == self._fitting:
            return True
        n, length, _ = shape
        fitting = (
            length * self.in_weight.size <= BLAS_SPREADS_FROM
            and n * self.num_heads * length * length <= MOST_LOGITS
        )
        if fitting:
            self._fitting = shape
        return fitting

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the layer's output for x (N, L, E) that fits."""
        n, length, width = x.shape
        rows, columns, head_dim = n * length, self.head_dim + 1, self.head_dim
        if rows * self.in_weight.size <= BLAS_SPREADS_FROM:
            projected = x.reshape(rows, width).dot(self.in_weight)
        else:  # sample by sample
            projected = (x @ self.in_weight).reshape(rows, -1)
        bias = self._bias
        projected += bias if bias.shape[0] == rows else self._bias_of(rows)
        heads = projected.reshape(n, length, 3, self.num_heads, columns).transpose(2, 0, 3, 1, 4)
        logits = heads[0] @ heads[1].swapaxes(2, 3)
        # The Euclidean norm of all logits bounds each of them.
        if not np.vdot(logits, logits) <= NORM_LIMIT * NORM_LIMIT:
            logits -= np.maximum.reduce(logits, axis=-1, keepdims=True)
        np.exp(logits, logits)
        mixed = logits @ heads[2]
        merged = np.empty((n, length, self.num_heads, columns), mixed.dtype)
        np.divide(mixed, mixed[..., head_dim:], merged.transpose(0, 2, 1, 3))
        out: NDArray[Any] = merged.reshape(rows, -1).dot(self.out_weight)
        return out.reshape(n, length, width)

    def _bias_of(self, rows: int) -> NDArray[Any]:
        """Return the bias once a row: adding arrays of one shape is half as dear as broadcasting.

        It is kept for the next call; a thread that finds another's makes its own.
        """
        bias = np.repeat(self._bias[:1], rows, axis=0)
        self._bias = bias
        return bias
