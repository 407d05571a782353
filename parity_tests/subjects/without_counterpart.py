"""Layers that do what torch's cannot: each is refused by the name of what it has more."""

from __future__ import annotations

import torch
from torch import nn

from styles import attend, merge, split


class TalkingHeads(nn.Module):
    """Mixes the scores of heads."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.to_out = nn.Linear(dim, dim, bias=False)
        self.talk = nn.Parameter(torch.randn(heads, heads))

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each, self.heads) for each in self.to_qkv(x).chunk(3, -1))
        scores = torch.einsum("nhls,hg->ngls", q @ k.transpose(-1, -2), self.talk)
        return self.to_out(merge(scores.softmax(-1) @ v))


class Rotary(nn.Module):
    """Turns queries and keys by their positions."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def forward(self, x, freqs_cis):
        """Return (N, L, E)."""
        q, k, v = (split(f(x), self.heads) for f in (self.wq, self.wk, self.wv))
        return self.wo(merge(attend(q * freqs_cis, k * freqs_cis, v)))


class KeptSlopes(nn.Module):
    """Adds a line to the scores, of a slope for each head that it keeps."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.to_out = nn.Linear(dim, dim, bias=False)
        self.register_buffer("slopes", 0.5 ** torch.arange(1, heads + 1), persistent=False)

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each, self.heads) for each in self.to_qkv(x).chunk(3, -1))
        place = torch.arange(x.shape[1])
        line = self.slopes.to(x.dtype)[:, None, None] * (place - place[:, None])
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + line
        return self.to_out(merge(scores.softmax(-1) @ v))


class SlopesUnused(KeptSlopes):
    """Keeps the slopes, and leaves out the scale instead."""

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each, self.heads) for each in self.to_qkv(x).chunk(3, -1))
        return self.to_out(merge((q @ k.transpose(-1, -2)).softmax(-1) @ v))


class OwnHeads(nn.Module):
    """Has four heads unless a keyword says otherwise."""

    def __init__(self, width, **kwargs):
        super().__init__()
        given = {"streams": 4} | kwargs
        self.streams = given["streams"]
        self.ask, self.answer, self.say, self.mix = (nn.Linear(width, width) for _ in range(4))

    def forward(self, sig):
        """Return (N, L, E)."""
        rows = (split(each(sig), self.streams) for each in (self.ask, self.answer, self.say))
        return self.mix(merge(attend(*rows)))


class RandomWidth(nn.Module):
    """Wants an argument that no trial can give."""

    def __init__(self, dim, heads, vocabulary):
        super().__init__()
        raise FileNotFoundError(vocabulary)


class NeedsALibrary(nn.Module):
    """Takes (L, N, E) alone, and calls a library that is not installed."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        """Return (L, N, E)."""
        length, samples, _ = x.shape
        if (length, samples) == (5, 2):
            raise ModuleNotFoundError("tracker.add was called, but tracker is not installed")
        raise ValueError(f"got {samples} samples")


class TurnsValues(nn.Module):
    """Turns the sign of every second value and shifts the scores, under names that say nothing."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ask, self.answer, self.say, self.mix = (
            nn.Linear(dim, dim, bias=False) for _ in range(4)
        )

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each(x), self.heads) for each in (self.ask, self.answer, self.say))
        sign = 1 - 2 * (torch.arange(x.shape[1]) % 2).to(x.dtype)[:, None]
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return self.mix(merge((-4 * scores).softmax(-1) @ (v * sign)))


class Sharpens(nn.Module):
    """Doubles the scores, under names that say nothing: near attention, and perhaps meant so."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ask, self.answer, self.say, self.mix = (
            nn.Linear(dim, dim, bias=False) for _ in range(4)
        )

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each(x), self.heads) for each in (self.ask, self.answer, self.say))
        return self.mix(merge(attend(2 * q, k, v)))


class SharpensAList(nn.Module):
    """The same with Linears in a list, whose order one input does not show."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.linears = nn.ModuleList([nn.Linear(dim, dim) for _ in range(4)])

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each(x), self.heads) for each in self.linears[:3])
        return self.linears[3](merge(attend(2 * q, k, v)))


class SharpensThreeInputs(SharpensAList):
    """The same list in the order of query, key and value, which the call takes."""

    def forward(self, query, key, value):
        """Return (N, L, E)."""
        given = zip(self.linears, (query, key, value), strict=False)
        q, k, v = (split(linear(rows), self.heads) for linear, rows in given)
        return self.linears[3](merge(attend(2 * q, k, v)))


class SharpensByName(Sharpens):
    """The same with names that leave nothing open."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.q_proj, self.k_proj, self.v_proj = self.ask, self.answer, self.say
        del self.ask, self.answer, self.say

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(f(x), self.heads) for f in (self.q_proj, self.k_proj, self.v_proj))
        return self.mix(merge(attend(2 * q, k, v)))


class Block(nn.Module):
    """A block of a transformer: an attention, and a network behind it."""

    def __init__(self, dim, heads):
        super().__init__()
        self.attn = SharpensByName(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        """Return (N, L, E)."""
        x = x + self.attn(x)
        return x + self.mlp(x)


class BlockOfUnfit(Block):
    """The same with Linears of the network that are called as projections are."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.c_fc, self.c_proj = self.mlp[0], self.mlp[2]
        del self.mlp

    def forward(self, x):
        """Return (N, L, E)."""
        x = x + self.attn(x)
        return x + self.c_proj(self.c_fc(x).relu())


class WithoutForward(nn.Module):
    """A module whose call is not written yet."""

    def __init__(self, dim, heads):
        super().__init__()
        self.q = nn.Linear(dim, dim)


def three():
    """Takes nothing."""
    return 3


def nothing_back(q, k, v):
    """Returns nothing."""


class Settings:
    """No layer."""

    def __init__(self, dim=24, heads=4):
        self.dim, self.heads = dim, heads


class Activated(SharpensByName):
    """Bends its projections."""

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(torch.tanh(f(x)), self.heads) for f in (self.q_proj, self.k_proj, self.v_proj))
        return self.mix(merge(attend(q, k, v)))


class ActivatedInSequence(nn.Module):
    """Projects by a Linear and a ReLU behind it."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Sequential(nn.Linear(dim, dim), nn.ReLU()) for _ in range(3)
        )
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(f(x), self.heads) for f in (self.q_proj, self.k_proj, self.v_proj))
        return self.out_proj(merge(attend(q, k, v)))


class OfATokenizer(Sharpens):
    """Asks its size of an object that is no number."""

    def __init__(self, tokenizer, dim, heads):
        super().__init__(dim, heads)
        self.size = tokenizer.size


class MadeOfALibrary(NeedsALibrary):
    """Has parts of a library that is not installed."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        raise ModuleNotFoundError("tracker.Dense was called, but tracker is not installed")


class CosineAttention(nn.Module):
    """Scores of normalised rows without a module that would name them, by a product of the two."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(p(x), self.num_heads) for p in (self.q_proj, self.k_proj, self.v_proj))
        lengths = (q**2).sum(-1)[..., None] * (k**2).sum(-1)[..., None, :]
        weights = (q @ k.mT / lengths.sqrt()).softmax(dim=-1)
        return self.out_proj(merge(weights @ v))
