"""Self-attention without masks on weights that were folded once: the ways by size.

* tiny: see `_tiny`;
* by samples: each thread takes whole samples, from the first product to the last;
* by heads: few rows, so each thread takes some of the heads, and their outputs are added up;
* in stages: products and attention one after the other, each spread over the threads.

In all but the last the threads meet once, at the end. How the work is cut depends on sizes alone,
so the result does not depend on the number of threads.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy._products import affine
from mha_numpy._shares import cut_heads, cut_samples, share, summed
from mha_numpy._softmax import is_bounded, row_sums
from mha_numpy._streaming import attend_streaming
from mha_numpy._tiny import Tiny

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mha_numpy._projections import Projections

HELD_LOGITS = 65_536
"""A piece of at most so many logits holds them all: a quarter of a megabyte, which stays cached."""


class Folded:
    """A layer's weights, the columns of a head's q, k and v side by side.

    in_weight (E, 3E) and out_weight (E, E) lie as the products read them, x @ in_weight.
    """

    def __init__(self, parameters: Projections, num_heads: int) -> None:
        weight, out_weight = parameters.in_proj_weight, parameters.out_proj.weight
        assert weight is not None  # noqa: S101 (the caller has looked; this tells the type checker)
        dtype, width = weight.dtype, weight.shape[1]
        head_dim = width // num_heads
        self.width, self.num_heads, self.head_dim = width, num_heads, head_dim
        scale = 1 / math.sqrt(head_dim)
        in_weight = np.empty((width, num_heads, 3, head_dim), dtype)
        in_weight[...] = weight.reshape(3, num_heads, head_dim, width).transpose(3, 1, 0, 2)
        in_weight[:, :, 0] *= scale
        self.in_weight = in_weight.reshape(width, 3 * width)
        self.out_weight = np.ascontiguousarray(out_weight.T)
        zeros = np.zeros(width, dtype)
        bias = parameters.in_proj_bias
        query_bias, value_bias = (zeros, zeros) if bias is None else (bias[:width], bias[-width:])
        self.query_bias = (query_bias * scale).astype(dtype).reshape(num_heads, head_dim)
        in_bias = np.zeros((num_heads, 3, head_dim), dtype)
        in_bias[:, 0] = self.query_bias
        self.in_bias = in_bias.reshape(-1)
        out_bias = zeros if parameters.out_proj.bias is None else parameters.out_proj.bias
        self.out_bias = out_bias + out_weight @ value_bias
        folded = (in_weight, self.query_bias, self.out_weight, self.out_bias)
        self._tiny = Tiny(*folded) if Tiny.worthwhile(width, num_heads) else None

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the layer's output for x (N, L, E)."""
        tiny = self._tiny
        if tiny is not None and tiny.fits(x.shape):
            return tiny(x)
        n, length, _ = x.shape
        samples = cut_samples(n, length, self._multiplications(n, length))
        if samples:
            return self._by_samples(x, samples)
        heads = cut_heads(self.num_heads, n * length, self._multiplications(n, length))
        return self._by_heads(x, heads) if heads else self._in_stages(x)

    def _by_samples(self, x: NDArray[Any], pieces: list[slice]) -> NDArray[Any]:
        out = np.empty(x.shape, x.dtype)
        every_head = slice(0, self.num_heads)

        def compute(index: int) -> None:
            piece = pieces[index]
            rows = out[piece].reshape(-1, self.width)
            self._heads(x[piece], every_head, rows)
            rows += self.out_bias

        share(compute, len(pieces))
        return out

    def _by_heads(self, x: NDArray[Any], pieces: list[slice]) -> NDArray[Any]:
        n, length, width = x.shape
        parts = np.empty((len(pieces), n * length, width), x.dtype)
        share(lambda index: self._heads(x, pieces[index], parts[index]), len(pieces))
        out = summed(parts)
        out += self.out_bias
        return out.reshape(n, length, width)

    def _in_stages(self, x: NDArray[Any]) -> NDArray[Any]:
        n, length, width = x.shape
        q, k, v = self._split(affine(x.reshape(-1, width), self.in_weight.T, self.in_bias), n)
        merged = attend_streaming(q, k, v).swapaxes(1, 2).reshape(-1, width)
        return affine(merged, self.out_weight.T, self.out_bias).reshape(n, length, width)

    def _multiplications(self, n: int, length: int) -> int:
        multiplications: int = n * length * self.width * (4 * self.width + 2 * length)
        return multiplications

    def _heads(self, x: NDArray[Any], heads: slice, out: NDArray[Any]) -> None:
        """Write what some heads give to the output of some samples, on this thread alone."""
        n, length, width = x.shape
        columns = slice(heads.start * self.head_dim, heads.stop * self.head_dim)
        of_heads = slice(3 * columns.start, 3 * columns.stop)
        projected = x.reshape(-1, width) @ self.in_weight[:, of_heads]
        q, k, v = self._split(projected, n)
        q += self.query_bias[heads, None]
        if n * q.shape[1] * length * length <= HELD_LOGITS:
            mixed = attend_held(q, k, v)
        else:
            mixed = attend_streaming(q, k, v, threads=1)
        merged = mixed.swapaxes(1, 2).reshape(n * length, -1)
        np.matmul(merged, self.out_weight[columns], out=out)

    def _split(
        self, projected: NDArray[Any], n: int
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return q, k, v (N, H, L, D) of the heads that were projected: views."""
        heads = projected.shape[-1] // (3 * self.head_dim)
        q, k, v = projected.reshape(n, -1, heads, 3, self.head_dim).transpose(3, 0, 2, 1, 4)
        return q, k, v


def attend_held(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any]) -> NDArray[Any]:
    """Return softmax(q k^T) v (N, H, L, D) over memory laid out as (N, L, H, D), all logits held.

    Divided is after the product with v, where there are fewer numbers in most cases.
    """
    logits = q @ k.swapaxes(2, 3)
    if not is_bounded(logits):
        logits -= np.maximum.reduce(logits, axis=-1, keepdims=True)
    np.exp(logits, out=logits)
    sums = row_sums(logits)
    n, heads, length, head_dim = q.shape
    out = np.empty((n, length, heads, head_dim), q.dtype).transpose(0, 2, 1, 3)
    np.matmul(logits, v, out=out)
    out /= sums
    return out
