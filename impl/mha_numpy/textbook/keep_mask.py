"""Multi-head self-attention with a keep-mask: 0 = hidden, 1 = visible; looped and batched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy.masks import NO_MASK, Masking
from mha_numpy.textbook._heads import attend_slices
from mha_numpy.textbook._inputs import real_arrays, require_heads, require_size
from mha_numpy.validation import quiet

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["EfficientMultiHeadAttention", "MultiHeadAttention"]


class MultiHeadAttention:
    """Multi-head self-attention of one sequence, one head after the other.

        output = Concat(head_1, ..., head_H) W_O
        head_h = softmax(Q_h K_h^T / sqrt(E / H)) V_h, hidden keys left out
        Q = X W_Q        K = X W_K        V = X W_V

    Where it differs: the boolean masks of `torch.nn.MultiheadAttention` are True where a key is
    hidden, the opposite of a keep-mask; torch keeps the transposes of the weights, and averages
    those it returns over the heads by default. The document this form comes from hides with -1e9,
    so that a query with every key hidden attends to all alike; here it gets NaN.

    Parameters
    ----------
    d_model
        E, the width of the model.
    num_heads
        H; divides E.
    rng
        a generator, or the seed of one, for the weights: normal with standard deviation 0.1.

    Attributes
    ----------
    W_Q, W_K, W_V, W_O
        weights, (E, E), applied as X @ W; set them as you like.

    Raises
    ------
    TypeError
        `num_heads` is no integer.
    ValueError
        `num_heads` does not divide `d_model`.
    """

    def __init__(
        self, d_model: int, num_heads: int, *, rng: np.random.Generator | int | None = None
    ) -> None:
        self.num_heads = require_heads("num_heads", num_heads, d_model, "`d_model`")
        self.d_model = d_model
        source = np.random.default_rng(rng)
        self.W_Q, self.W_K, self.W_V, self.W_O = (
            0.1 * source.standard_normal((d_model, d_model)) for _ in range(4)
        )

    @quiet
    def forward(
        self, X: ArrayLike, mask: ArrayLike | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return (output, weights of each head), (L, E) and (H, L, L).

        Parameters
        ----------
        X
            (L, E), one sequence.
        mask
            booleans, or numbers that are all 0 or 1; 0 or False hides a key from a query. Of any
            shape that broadcasts to (H, L, L): (L, L) for all heads, (L,) for all queries. None
            hides nothing.

        Raises
        ------
        TypeError
            an array is not of real numbers.
        ValueError
            shapes do not fit each other, or `mask` holds anything but 0 and 1.
        """
        matrices = {f"W_{letter}": getattr(self, f"W_{letter}") for letter in "QKVO"}
        axes = {"X": "L E", **dict.fromkeys(matrices, "E E")}
        arrays, dtype = real_arrays(axes, X=X, **matrices)
        for name, array in zip(axes, arrays, strict=True):
            require_size(name, array, 1, self.d_model, "`d_model`")
            if name != "X":
                require_size(name, array, 0, self.d_model, "`d_model`")
        x, w_q, w_k, w_v, w_o = arrays
        masking = _masking(mask, (self.num_heads, x.shape[0], x.shape[0]))
        merged, weights = self._heads(x @ w_q, x @ w_k, x @ w_v, masking)
        return (merged @ w_o).astype(dtype, copy=False), weights.astype(dtype, copy=False)

    def _heads(
        self, Q: NDArray[Any], K: NDArray[Any], V: NDArray[Any], masking: Masking
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return (merged, weights), (L, E) and (H, L, L), of projected arrays (L, E)."""
        outputs, weights = [], []
        slices = (np.split(array, self.num_heads, axis=1) for array in (Q, K, V))
        for head, (q, k, v) in enumerate(zip(*slices, strict=True)):
            seen = Masking(hidden=tuple(hidden[:, head : head + 1] for hidden in masking.hidden))
            output, weight = attend_slices(q[None], k[None], v[None], 1, seen)
            outputs.append(output[0])
            weights.append(weight[0, 0])
        return np.concatenate(outputs, axis=1), np.stack(weights)


class EfficientMultiHeadAttention(MultiHeadAttention):
    """The same as `MultiHeadAttention`, all heads at once."""

    def _heads(
        self, Q: NDArray[Any], K: NDArray[Any], V: NDArray[Any], masking: Masking
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        merged, weights = attend_slices(Q[None], K[None], V[None], self.num_heads, masking)
        return merged[0], weights[0]


def _masking(mask: ArrayLike | None, shape: tuple[int, int, int]) -> Masking:
    """Return the masking of a keep-mask, its one array of shape (1, H, L, L)."""
    if mask is None:
        return NO_MASK
    keep = np.asarray(mask)
    hidden = keep == 0
    if not np.all(hidden | (keep == 1)):
        other = keep[~(hidden | (keep == 1))].flat[0]
        raise ValueError(
            f"`mask` holds {other}, but a keep-mask holds 0, hidden, and 1, visible, alone; "
            "pass `mask == 0` for a mask that is added to the logits."
        )
    try:
        return Masking(hidden=(np.broadcast_to(hidden, shape)[None],))
    except ValueError:
        raise ValueError(
            f"`mask` has shape {keep.shape}, but should broadcast to {shape}, heads, queries and "
            "keys; leave the axes out that it has not."
        ) from None
