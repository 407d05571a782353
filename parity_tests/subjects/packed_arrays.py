"""NumPy classes whose constructor takes the packed matrix (3E, E), and which keep it as it is."""

from __future__ import annotations

import numpy as np


class TorchsNames:
    """Right: the names and shapes are those of torch's state."""

    order = "qkv"

    def __init__(self, in_proj_weight, in_proj_bias, out_weight, out_bias, num_heads):
        self.w_in, self.b_in = in_proj_weight, in_proj_bias
        self.w_out, self.b_out = out_weight, out_bias
        self.num_heads = num_heads

    def __call__(self, query, key, value, mask=None):
        """Return (N, L, E); True of a mask (N, H, L, S) keeps."""
        n, _, width = query.shape
        matrices = [self.w_in[i * width : (i + 1) * width] for i in range(3)]
        biases = dict(zip(self.order, np.split(self.b_in, 3), strict=True))
        q, k, v = (
            (rows @ matrix.T + biases[name])
            .reshape(n, -1, self.num_heads, width // self.num_heads)
            .transpose(0, 2, 1, 3)
            for name, rows, matrix in zip("qkv", (query, key, value), matrices, strict=True)
        )
        scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]).astype(q.dtype)
        scores = scores if mask is None else np.where(mask, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out = weights / weights.sum(axis=-1, keepdims=True) @ v
        return out.transpose(0, 2, 1, 3).reshape(query.shape) @ self.w_out.T + self.b_out


class OtherNames(TorchsNames):
    """Right: the same by names that say nothing of the order of the axes."""

    def __init__(self, qkv_weight, qkv_bias, out_weight, out_bias, num_heads):
        super().__init__(qkv_weight, qkv_bias, out_weight, out_bias, num_heads)


class BiasesExchanged(TorchsNames):
    """Wrong: the biases of q and k are exchanged."""

    order = "kqv"
