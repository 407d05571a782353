"""Masks behind ``**kwargs``: passed on to a method or a function, read by name, or not followed."""

from __future__ import annotations

import torch
from torch import nn


class Layer(nn.Module):
    """Four Linears; a mask is added to the scores."""

    sign = 1

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def attend(self, q, k, v, score_mask=None, keep_mask=None):
        """Return (N, L, E)."""
        rows = ((self.q_proj, q), (self.k_proj, k), (self.v_proj, v))
        q, k, v = (p(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p, x in rows)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if score_mask is not None:
            scores = scores + self.sign * score_mask
        if keep_mask is not None:
            scores = scores.masked_fill(~keep_mask[:, None, None], -torch.inf)
        return self.out_proj((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


class PassedOn(Layer):
    """Right: all go to a method of the class above."""

    def forward(self, q, k, v, **kwargs):
        """Return (N, L, E)."""
        return self.attend(q, k, v, **kwargs)


class PassedOnSubtracted(PassedOn):
    """Wrong: what should be added to the scores is subtracted."""

    sign = -1


class PassedUp(PassedOn):
    """Right: all go to the method that this one stands for, with the inputs."""

    def forward(self, *args, **kwargs):
        """Return (N, L, E)."""
        return super().forward(*args, **kwargs)


class PassedUpSubtracted(PassedUp):
    """Wrong: what should be added to the scores is subtracted."""

    sign = -1


class ReadByName(Layer):
    """Right: one is read by its name."""

    def forward(self, q, k, v, **kwargs):
        """Return (N, L, E)."""
        return self.attend(q, k, v, score_mask=kwargs.get("mask"))


class ReadByNameSubtracted(ReadByName):
    """Wrong: what should be added to the scores is subtracted."""

    sign = -1


class Held(nn.Module):
    """Right: all go to a layer that the constructor makes."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.inner = PassedOn(embed_dim, num_heads)

    def forward(self, q, k, v, **kwargs):
        """Return (N, L, E)."""
        return self.inner(q, k, v, **kwargs)


class HeldSubtracted(Held):
    """Wrong: its layer subtracts what should be added to the scores."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.inner = PassedOnSubtracted(embed_dim, num_heads)


class NotFollowed(PassedOnSubtracted):
    """Wrong behind names that no source says: no run may be green."""

    def forward(self, q, k, v, **kwargs):
        """Return (N, L, E)."""
        known = {name: kwargs[name] for name in sorted(kwargs)}
        return self.attend(q, k, v, **known)


class Swallowed(Layer):
    """Right: it takes more and reads none of it."""

    def forward(self, q, k, v, **kwargs):
        """Return (N, L, E)."""
        return self.attend(q, k, v)


class Refused(Layer):
    """Right: it refuses what it does not know."""

    def forward(self, q, k, v, **kwargs):
        """Return (N, L, E)."""
        if kwargs:
            raise TypeError(f"got {sorted(kwargs)}, but should get three inputs alone")
        return self.attend(q, k, v)


def attended(q, k, v, mask=None, sign=1):
    """Return (N, H, L, D)."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return (scores if mask is None else scores + sign * mask).softmax(dim=-1) @ v


def passed_on(q, k, v, **kwargs):
    """Right: all go to a function."""
    return attended(q, k, v, **kwargs)


def passed_on_subtracted(q, k, v, **kwargs):
    """Wrong: what should be added to the scores is subtracted."""
    inner = attended
    return inner(q, k, v, sign=-1, **kwargs)


class BuiltByKeywords(Layer):
    """Right: the constructor reads its sizes of its keywords, and a size of chunks."""

    def __init__(self, **kwargs):
        super().__init__(kwargs["d_model"], kwargs["num_heads"])
        self.p = kwargs["dropout"]
        self.causal_chunk_size = kwargs.get("causal_chunk_size", 128)

    def forward(self, q, mask=None):
        """Return (N, L, E)."""
        return self.attend(q, q, q, score_mask=mask)


class BuiltByKeywordsSubtracted(BuiltByKeywords):
    """Wrong: what should be added to the scores is subtracted."""

    sign = -1
