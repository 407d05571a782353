"""Attentions as they stand in public repositories, in styles that were refused or miscalled."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  (as everybody calls it)

from styles import attend, merge, split


class ProjectsOutManyHeads(nn.Module):
    """Has an output projection, but where one head is as wide as the input."""

    def __init__(self, dim, heads=8, dim_head=64, dropout=0.0):
        super().__init__()
        inner = dim_head * heads
        self.heads = heads
        self.to_qkv = nn.Linear(dim, 3 * inner, bias=False)
        alone = heads == 1 and dim_head == dim
        last = nn.Sequential(nn.Linear(inner, dim), nn.Dropout(dropout))
        self.to_out = nn.Identity() if alone else last

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each, self.heads) for each in self.to_qkv(x).chunk(3, -1))
        return self.to_out(merge(attend(q, k, v)))


class ConfiguredWithin(nn.Module):
    """Asks its configuration for a configuration, and whether a key is there."""

    def __init__(self, config):
        super().__init__()
        self.heads = config.transformer["num_heads"]
        self.rate = config["dropout"] if "dropout" in config else 0.0
        width = config.hidden_size
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, hidden_states):
        """Return (N, L, E) and None."""
        rows = (self.query, self.key, self.value)
        q, k, v = (split(each(hidden_states), self.heads) for each in rows)
        return self.out(merge(attend(q, k, v))), None


class ConfiguredScale(nn.Module):
    """Asks its configuration for the root of the width of a head."""

    def __init__(self, config):
        super().__init__()
        self.heads, self.scale = config.n_head, config.scale
        width = config.d_emb
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, q, k, v, mask):
        """Return (N, L, E); ``mask`` hides where it is True."""
        q, k, v = (
            split(f(x), self.heads) for f, x in ((self.w_q, q), (self.w_k, k), (self.w_v, v))
        )
        scores = q @ k.transpose(-1, -2) / self.scale
        if mask is not None:
            scores = scores.masked_fill(mask, -math.inf)
        return self.w_o(merge(scores.softmax(-1) @ v))


class Temperature(nn.Module):
    """Is built with the root of the width of a head."""

    def __init__(self, temperature, attn_dropout=0.1):
        super().__init__()
        self.temperature = temperature
        self.dropout = nn.Dropout(attn_dropout)

    def forward(self, q, k, v):
        """Return (N, H, L, D)."""
        scores = (q / self.temperature) @ k.transpose(2, 3)
        return self.dropout(scores.softmax(-1)) @ v


def width_given(q, k, v, d_k):
    """Return (N, L, D)."""
    return (q @ k.transpose(-2, -1) / math.sqrt(d_k)).softmax(-1) @ v


def temperature_given(q, k, v, temperature):
    """Return (N, L, D)."""
    return (q @ k.transpose(-2, -1) / temperature).softmax(-1) @ v


class ProjectsOutAlone(nn.Module):
    """Splits projected rows into heads, and projects what they give."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.heads = n_heads
        self.W_0 = nn.Linear(d_model, d_model)

    def forward(self, q, k, v, mask=None):
        """Return (N, L, E); ``mask`` keeps where it is 1."""
        q, k, v = (split(x, self.heads) for x in (q, k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -math.inf)
        return self.W_0(merge(scores.softmax(-1) @ v))


class ForgetsToProject(ProjectsOutAlone):
    """Wrong: has an output projection, and does not apply it."""

    def forward(self, q, k, v):
        """Return (N, L, E)."""
        return merge(attend(*(split(x, self.heads) for x in (q, k, v))))


class ProjectsTransposed(ForgetsToProject):
    """Wrong: multiplies by the weight of its Linear, and not by the transposed."""

    def forward(self, q, k, v):
        """Return (N, L, E)."""
        return super().forward(q, k, v) @ self.W_0.weight + self.W_0.bias


class SplitsAlone(nn.Module):
    """Splits projected rows into heads, and has no weights."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads

    def forward(self, Q, K, V):  # noqa: N803  (as it is called)
        """Return (N, L, E)."""
        return merge(attend(*(split(x, self.heads) for x in (Q, K, V))))


class CausalFloat32(nn.Module):
    """Adds a mask of float32, which weights and values of a narrower dtype do not go with."""

    def __init__(self, d_model=512, masking=False):
        super().__init__()
        self.root, self.masking = math.sqrt(d_model), masking
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, x):
        """Return (N, L, E)."""
        scores = self.q(x) @ self.k(x).transpose(-1, -2) / self.root
        if self.masking:
            length = x.shape[-2]
            scores = scores + torch.triu(torch.full((length, length), -math.inf), 1)
        return scores.softmax(-1) @ self.v(x)


class FromTheLastKey(nn.Module):
    """Aligns its causal rule at the last key."""

    def __init__(self, d_model, n_head):
        super().__init__()
        self.heads = n_head
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, q, k, v, causal=False):
        """Return (N, L, E)."""
        q, k, v = (
            split(f(x), self.heads) for f, x in ((self.wq, q), (self.wk, k), (self.wv, v))
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if causal:
            length, keys = scores.shape[-2:]
            future = torch.ones(length, keys, dtype=torch.bool).triu(1 + keys - length)
            scores = scores.masked_fill(future, -math.inf)
        return self.wo(merge(scores.softmax(-1) @ v))


class SdpaKeeps(nn.Module):
    """Hands its mask to scaled_dot_product_attention, whose True keeps."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def forward(self, query, key, value, attn_mask=None, is_causal=False):
        """Return (N, L, E)."""
        given = ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        q, k, v = (split(f(x), self.heads) for f, x in given)
        return self.out_proj(
            merge(
                F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, is_causal=is_causal)
            )
        )


class OfPixels(nn.Module):
    """Normalises the channels of an image, projects its pixels, and adds the image."""

    def __init__(self, channels, num_heads=4):
        super().__init__()
        self.heads = num_heads
        self.norm = nn.GroupNorm(1, channels)
        self.to_q, self.to_k, self.to_v, self.to_out = (
            nn.Linear(channels, channels) for _ in range(4)
        )

    def forward(self, x):
        """Return (N, E, height, width)."""
        rows = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = (split(f(rows), self.heads) for f in (self.to_q, self.to_k, self.to_v))
        return x + self.to_out(merge(attend(q, k, v))).transpose(1, 2).view(x.shape)


class ConvolvedPixels(nn.Module):
    """Normalises 32 groups of the channels of an image, convolves it, and adds the image."""

    def __init__(self, channels, num_heads=1):
        super().__init__()
        self.heads = num_heads
        self.norm = nn.GroupNorm(32, channels)
        self.qkv, self.proj_out = (nn.Conv2d(channels, n * channels, 1) for n in (3, 1))

    def forward(self, x):
        """Return (N, E, height, width)."""
        rows = self.qkv(self.norm(x)).flatten(2).transpose(1, 2)
        mixed = merge(attend(*(split(each, self.heads) for each in rows.chunk(3, -1))))
        return x + self.proj_out(mixed.transpose(1, 2).reshape(x.shape))


class FourLetters(nn.Module):
    """Calls its Linears by letters, in their order."""

    def __init__(self, nin, nh):
        super().__init__()
        self.heads = nh
        self.a, self.b, self.c, self.d = (nn.Linear(nin, nin) for _ in range(4))

    def forward(self, s):
        """Return (N, L, E)."""
        return self.d(merge(attend(*(split(f(s), self.heads) for f in (self.a, self.b, self.c)))))


class PackedOfAnyName(nn.Module):
    """Calls its packed projections and that of the output by names of its own."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.widen, self.blend = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each, self.heads) for each in self.widen(x).chunk(3, -1))
        return self.blend(merge(attend(q, k, v)))


class PackedOfAnyNameUnscaled(PackedOfAnyName):
    """Wrong: the scores are not scaled."""

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each, self.heads) for each in self.widen(x).chunk(3, -1))
        return self.blend(merge((q @ k.mT).softmax(dim=-1) @ v))


def half_alone(q, k, v):
    """Return (N, L, D), of float16 and bfloat16."""
    if q.dtype not in {torch.float16, torch.bfloat16}:
        raise TypeError(f"got {q.dtype}")
    return F.scaled_dot_product_attention(q, k, v)


class LengthsWanted(nn.Module):
    """Wants the length of every sample as a list."""

    def __init__(self, d_model, n_head):
        super().__init__()
        self.heads = n_head
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, src_lens: list[int]):
        """Return (N, L, E)."""
        q, k, v = (split(f(x), self.heads) for f in (self.wq, self.wk, self.wv))
        counts = torch.tensor([int(each) for each in src_lens])
        hidden = torch.arange(x.shape[1]) >= counts[:, None]
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        return self.wo(merge(scores.masked_fill(hidden[:, None, None], -math.inf).softmax(-1) @ v))


class EvenLengths(nn.Module):
    """Takes even lengths alone."""

    def __init__(self, d_model, n_head):
        super().__init__()
        self.heads = n_head
        self.qkv, self.proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        """Return (N, L, E)."""
        if x.shape[1] % 2:
            raise ValueError(f"got the odd length {x.shape[1]}")
        return self.proj(merge(attend(*(split(m, self.heads) for m in self.qkv(x).chunk(3, -1)))))


class Doubled(nn.Module):
    """Doubles the scores, and knows rotary positions that it is not built with."""

    def __init__(self, dim, heads, rope=None):
        super().__init__()
        self.heads, self.rope = heads, rope
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each, self.heads) for each in self.qkv(x).chunk(3, -1))
        if self.rope is not None:
            q, k = self.rope(q), self.rope(k)
        return self.proj(merge(attend(2 * q, k, v)))


def rotate_half(x):
    """Return the halves of a head, the second negated and first."""
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


class RotaryEmbedding(nn.Module):
    """Turns rows by their positions, without parameters."""

    def forward(self, x):
        """Return (N, H, L, D)."""
        length, width = x.shape[-2:]
        powers = torch.arange(0, width, 2, dtype=x.dtype) / width
        angles = torch.outer(torch.arange(length, dtype=x.dtype), 10000.0**-powers)
        angles = torch.cat([angles, angles], -1)
        return x * angles.cos() + rotate_half(x) * angles.sin()


class RotaryInside(nn.Module):
    """Turns queries and keys by a module of its own."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.heads = num_heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.rotary = RotaryEmbedding()

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each, self.heads) for each in self.qkv(x).chunk(3, -1))
        return self.proj(merge(attend(self.rotary(q), self.rotary(k), v)))


class NormedQueries(RotaryInside):
    """Divides queries and keys by their norms."""

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each, self.heads) for each in self.qkv(x).chunk(3, -1))
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        return self.proj(merge(attend(q, k, v)))


class Slopes(RotaryInside):
    """Takes the distance off the scores, times a slope for each head."""

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each, self.heads) for each in self.qkv(x).chunk(3, -1))
        slopes = 2.0 ** -torch.arange(1, self.heads + 1, dtype=x.dtype)
        places = torch.arange(x.shape[1], dtype=x.dtype)
        distance = (places[:, None] - places).abs()
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        scores = scores - slopes[:, None, None] * distance
        return self.proj(merge(scores.softmax(-1) @ v))


def normalize(scores):
    """Return the softmax, under another name."""
    normalized = scores - scores.amax(-1, keepdim=True)
    normalized = normalized.exp()
    return normalized / normalized.sum(-1, keepdim=True)


class NormalizesUnscaled(RotaryInside):
    """Names its softmax so; what is wrong is the scale."""

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each, self.heads) for each in self.qkv(x).chunk(3, -1))
        return self.proj(merge(normalize(q @ k.transpose(-1, -2)) @ v))
