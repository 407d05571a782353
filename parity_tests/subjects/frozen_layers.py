"""Layers that nothing can be set on, or that raise for names that they do not have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weight_dictionaries import attend, split


@dataclass(frozen=True, init=False)
class FrozenLayer:
    """Right: a layer that raises when an attribute is set."""

    wq: np.ndarray
    wk: np.ndarray
    wv: np.ndarray
    wo: np.ndarray
    num_heads: int

    def __init__(self, d_model, num_heads):
        object.__setattr__(self, "num_heads", num_heads)
        for name in ("wq", "wk", "wv", "wo"):
            object.__setattr__(self, name, np.zeros((d_model, d_model)))

    def __call__(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(x @ each, self.num_heads) for each in (self.wq, self.wk, self.wv))
        return attend(q, k, v) @ self.wo


class FrozenLayerUnscaled(FrozenLayer):
    """Wrong: its scores are not scaled."""

    def __call__(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(x @ each, self.num_heads) for each in (self.wq, self.wk, self.wv))
        return attend(q * np.sqrt(q.shape[-1]).astype(q.dtype), k, v) @ self.wo


class Answering:
    """Keeps its arrays in a dictionary, and raises KeyError for every other name."""

    def __init__(self):
        self.__dict__["_held"] = {}

    def __getattr__(self, name):
        """Return what is held under the name."""
        held = self.__dict__["_held"]
        return held[name] if name in held else self.__dict__[name]

    def __setattr__(self, name, value):
        """Hold a value under the name."""
        self._held[name] = value


class AnsweringLayer(Answering):
    """Right, and refused: it raises KeyError for names that it does not have."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.wq, self.wk, self.wv, self.wo = (np.zeros((d_model, d_model)) for _ in range(4))

    def __call__(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(x @ each, self.num_heads) for each in (self.wq, self.wk, self.wv))
        return attend(q, k, v) @ self.wo
