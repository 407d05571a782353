"""Multi-head attention over padded batches, the padding given by valid lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy.masks import NO_MASK, Masking
from mha_numpy.textbook._heads import attend_slices
from mha_numpy.textbook._inputs import real_arrays, require_heads, require_size
from mha_numpy.textbook.lengths import hidden_keys
from mha_numpy.validation import check_options, quiet

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = ["MultiHeadAttention"]


class MultiHeadAttention:
    """Multi-head attention with valid lengths.

        Concat(head_1, ..., head_H) W_o + b_o
        head_h = softmax(Q_h K_h^T / sqrt(E / H)) V_h, over the first valid_lens keys only
        Q = queries W_q + b_q        K = keys W_k + b_k        V = values W_v + b_v

    Where it differs: `torch.nn.MultiheadAttention` keeps the transposes of W_q, W_k, W_v (stacked
    in `in_proj_weight`) and W_o (`out_proj.weight`), takes a boolean `key_padding_mask`, True =
    hidden, for lengths, and returns the weights as well. The document this form comes from takes
    `dropout` and never applies it, and its lengths are per sample only.

    Parameters
    ----------
    num_hiddens
        E, the width of the model.
    num_heads
        H; divides E.
    dropout
        probability p of dropping a weight, from 0 to 1; see `forward`.
    bias
        whether the biases are drawn; they are 0 otherwise.
    rng
        a generator, or the seed of one, for the weights: uniform in [0, 1), as in the source, which
        is far from what one would train with.

    Attributes
    ----------
    W_q, W_k, W_v, W_o
        weights, (E, E), applied as X @ W; set them as you like.
    b_q, b_k, b_v, b_o
        biases, (E,).

    Raises
    ------
    TypeError
        `num_heads` is no integer.
    ValueError
        `num_heads` does not divide `num_hiddens`, or `dropout` is no probability.
    """

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = False,
        *,
        rng: np.random.Generator | int | None = None,
    ) -> None:
        check_options("dropout", dropout)
        self.num_heads = require_heads("num_heads", num_heads, num_hiddens, "`num_hiddens`")
        self.num_hiddens = num_hiddens
        self.dropout = dropout
        source = np.random.default_rng(rng)
        square = (num_hiddens, num_hiddens)
        self.W_q, self.W_k, self.W_v, self.W_o = (source.random(square) for _ in range(4))
        self.b_q, self.b_k, self.b_v, self.b_o = (
            source.random(num_hiddens) if bias else np.zeros(num_hiddens) for _ in range(4)
        )

    @quiet
    def forward(
        self,
        queries: ArrayLike,
        keys: ArrayLike,
        values: ArrayLike,
        valid_lens: ArrayLike | None = None,
        *,
        rng: np.random.Generator | None = None,
    ) -> NDArray[Any]:
        """Return the output, (N, L, E).

        Parameters
        ----------
        queries, keys, values
            (N, L, E), (N, S, E) and (N, S, E).
        valid_lens
            integers from 0 to S: (N,), one length a sample, or (N, L), one a query. Keys at and
            beyond the length are hidden; None hides nothing. At length 0 nothing is left to attend
            to, and the output is NaN, as in the source and from `torch.nn.MultiheadAttention` with
            need_weights=True.
        rng
            draws which weights are dropped; the others are divided by 1 - p. Without a generator
            nothing is dropped, whatever `dropout` says: that is inference.

        Raises
        ------
        TypeError
            an array is not of real numbers, or `valid_lens` are not integers.
        ValueError
            shapes do not fit each other, or a length is out of range.
        """
        arrays, dtype = self._arrays(queries, keys, values)
        x_q, x_k, x_v, w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o = arrays
        merged, _ = attend_slices(
            x_q @ w_q + b_q,
            x_k @ w_k + b_k,
            x_v @ w_v + b_v,
            self.num_heads,
            _masking(valid_lens, x_q.shape[:2], x_k.shape[1]),
            dropout_p=self.dropout if rng is not None else 0.0,
            rng=rng,
        )
        output: NDArray[Any] = (merged @ w_o + b_o).astype(dtype, copy=False)
        return output

    def _arrays(
        self, queries: ArrayLike, keys: ArrayLike, values: ArrayLike
    ) -> tuple[list[NDArray[Any]], DTypeLike]:
        inputs = {"queries": queries, "keys": keys, "values": values}
        matrices = {f"W_{letter}": getattr(self, f"W_{letter}") for letter in "qkvo"}
        biases = {f"b_{letter}": getattr(self, f"b_{letter}") for letter in "qkvo"}
        axes = {
            **dict.fromkeys(inputs, "N L E"),
            **dict.fromkeys(matrices, "E E"),
            **dict.fromkeys(biases, "E"),
        }
        arrays, dtype = real_arrays(axes, **inputs, **matrices, **biases)
        q, k, v = arrays[:3]
        for name, array in (("queries", q), ("keys", k), ("values", v)):
            require_size(name, array, 0, q.shape[0], "the number of samples in `queries`")
            require_size(name, array, 2, self.num_hiddens, "`num_hiddens`")
        require_size("values", v, 1, k.shape[1], "the number of `keys`")
        for name, array in zip((*matrices, *biases), arrays[3:], strict=True):
            for axis in range(array.ndim):
                require_size(name, array, axis, self.num_hiddens, "`num_hiddens`")
        return arrays, dtype


def _masking(valid_lens: ArrayLike | None, queries: tuple[int, ...], num_keys: int) -> Masking:
    if valid_lens is None:
        return NO_MASK
    hidden = hidden_keys(valid_lens, num_keys)
    n, rows = queries
    if hidden.shape[0] != n or hidden.shape[2] not in (1, rows):
        raise ValueError(
            f"`valid_lens` have shape {np.shape(valid_lens)}, but should be ({n},), one length a "
            f"sample, or ({n}, {rows}), one a query; pass as many as `queries` has."
        )
    return Masking(hidden=(hidden,))
