"""Layers whose keys and values are made of a context that may have a width of its own."""

import torch
from torch import nn

__all__ = [
    "Ignored", "OfKeysAndValues", "Own", "Packed", "Required", "ScaledByContext", "ScaledByRequired",
    "SplitByContext",
]  # fmt: skip


class Own(nn.Module):
    """Right: the context's width is that of the input of keys and values, and nothing else."""

    def __init__(self, dim, heads, context_dim=None):
        super().__init__()
        self.heads, self.dim, self.context_dim = heads, dim, context_dim or dim
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(self.context_dim, dim, bias=False)
        self.to_v = nn.Linear(self.context_dim, dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def scale(self):
        """Return what the scores are multiplied by."""
        return (self.dim / self.heads) ** -0.5

    def keys_and_values(self, context):
        """Return both, (N, S, E)."""
        return self.to_k(context), self.to_v(context)

    def forward(self, x, context=None):
        """Return (N, L, E)."""
        rows = (self.to_q(x), *self.keys_and_values(x if context is None else context))
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in rows)
        heads = (q @ k.mT * self.scale()).softmax(-1) @ v
        return self.to_out(heads.transpose(1, 2).flatten(2))


class ScaledByContext(Own):
    """Wrong: the scores are divided by the root of the context's width by head."""

    def scale(self):
        """Return the wrong scale, which is right where the widths are equal."""
        return (self.context_dim / self.heads) ** -0.5


class Packed(Own):
    """Right: one matrix for keys and values."""

    def __init__(self, dim, heads, context_dim=None):
        super().__init__(dim, heads, context_dim)
        del self.to_k, self.to_v
        self.to_kv = nn.Linear(self.context_dim, 2 * dim, bias=False)

    def keys_and_values(self, context):
        """Return both, (N, S, E)."""
        return self.to_kv(context).chunk(2, dim=-1)


class SplitByContext(Packed):
    """Wrong: of the rows of both, keys are as many as the context is wide, and values the last."""

    def keys_and_values(self, context):
        """Return both, (N, S, E); keys have zeros where the context is narrower."""
        both = self.to_kv(context)
        missing = (0, self.dim - self.context_dim)
        keys = nn.functional.pad(both[..., : self.context_dim], missing)
        return keys, both[..., self.dim :]


class OfKeysAndValues(Own):
    """Right: torch's two names, each for one of the matrices."""

    def __init__(self, embed_dim, num_heads, kdim=None, vdim=None):
        super().__init__(embed_dim, num_heads)
        self.to_k = nn.Linear(kdim or embed_dim, embed_dim, bias=False)
        self.to_v = nn.Linear(vdim or embed_dim, embed_dim, bias=False)


class Ignored(Own):
    """Right of equal widths: the width of the context is never read."""

    def __init__(self, dim, heads, context_dim=None):
        del context_dim
        super().__init__(dim, heads)


class Required(Own):
    """Right: the width has a name that says little, and no default."""

    def __init__(self, d_model, n_heads, d_memory):
        super().__init__(d_model, n_heads, d_memory)


class ScaledByRequired(Required):
    """Wrong as `ScaledByContext` is."""

    def scale(self):
        """Return the wrong scale, which is right where the widths are equal."""
        return (self.to_k.in_features / self.heads) ** -0.5
