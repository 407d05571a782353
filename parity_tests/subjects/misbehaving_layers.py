"""Layers that misbehave, each in one way."""

from __future__ import annotations

import time

import numpy as np

from keep_mask import Stacked
from mha_numpy import MultiheadAttention


class DropsAlways(MultiheadAttention):
    """Drops weights in eval mode too."""

    def eval(self):
        """Stay in training."""
        return self


class SeedsWhenBuilt(Stacked):
    """Seeds torch's global generator in its constructor, and leaves it alone in its calls."""

    def __init__(self, d_model, num_heads):
        import torch

        torch.manual_seed(0)
        super().__init__(d_model, num_heads)


class KeepsFirstWeights(MultiheadAttention):
    """Ignores every state dict but the first."""

    def load_state_dict(self, state_dict, strict=True):
        """Load once."""
        if getattr(self, "_loaded", False):
            return None
        object.__setattr__(self, "_loaded", True)
        return super().load_state_dict(state_dict, strict)


class SavesTransposed(MultiheadAttention):
    """Saves its output projection transposed."""

    def state_dict(self, *args, **options):
        """Return the weights, one of them transposed."""
        state = super().state_dict(*args, **options)
        return {**state, "out_proj.weight": state["out_proj.weight"].T}


class CachesProjections(Stacked):
    """Keeps the product of W_V and W_O of its first call."""

    def forward(self, X, mask=None):
        """Return what the first weights of the layer would give."""
        if not hasattr(self, "_first"):
            self._first = (self.W_Q, self.W_K, self.W_V, self.W_O)
        self.W_Q, self.W_K, self.W_V, self.W_O = self._first
        return super().forward(X, mask)


class HangsOnceBuilt:
    """Takes a size that is no layer's by its name, and gives no answer."""

    def __init__(self, dim, window_size, num_heads):
        self.w_q = self.w_k = self.w_v = self.w_o = np.zeros((dim, dim))

    def __call__(self, x):
        """Sleep."""
        time.sleep(60)
