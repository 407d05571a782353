"""Attentions with parts that torch's layer lacks, which ``--without`` takes out."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


def turned(x, angles):
    """Return rows whose halves are turned by an angle for each position."""
    half = angles.shape[-1]
    a, b = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def rotary(q, k, angles):
    """Return both with their positions."""
    return turned(q, angles), turned(k, angles)


class RMSNorm(nn.Module):
    """Rows of one root mean square."""

    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.gain * x / x.pow(2).mean(-1, keepdim=True).add(1e-6).sqrt()


class Rotation(nn.Module):
    """Rotary positions that count from 0."""

    def __init__(self, width):
        super().__init__()
        self.register_buffer("frequencies", 100.0 ** -torch.linspace(0, 1, width // 2))

    def angles(self, x):
        return torch.outer(torch.arange(x.shape[-2]), self.frequencies).to(x.dtype)

    def rotate(self, x):
        return turned(x, self.angles(x))

    def forward(self, x):
        return self.rotate(x)


class Layer(nn.Module):
    """Four Linears around attention."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def heads(self, rows):
        return rows.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def qkv(self, x):
        return (self.heads(each(x)) for each in (self.q_proj, self.k_proj, self.v_proj))

    def merged(self, heads):
        return self.out_proj(heads.transpose(1, 2).flatten(2))


def rotary_by_table(q, k, freqs_cis):
    """Return both with the positions of a table of complex numbers, (L, D / 2)."""

    def turned_by(x):
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * freqs_cis).flatten(-2).type_as(x)

    return turned_by(q), turned_by(k)


class ByTable(Layer):
    """Each call gets the table of its positions."""

    def scores_of(self, q, k):
        return q @ k.mT * self.head_dim**-0.5

    def forward(self, x, freqs_cis):
        q, k, v = self.qkv(x)
        q, k = rotary_by_table(q, k, freqs_cis)
        return self.merged(self.scores_of(q, k).softmax(-1) @ v)


def rotary_by_object(q, k, freqs_cis):
    """Return both with the positions of an object that holds the table."""
    return rotary_by_table(q, k, freqs_cis.table)


class ByTableOfAClass(ByTable):
    """Each call gets an object of a class of its own."""

    def forward(self, x, freqs_cis):
        q, k, v = self.qkv(x)
        q, k = rotary_by_object(q, k, freqs_cis)
        return self.merged(self.scores_of(q, k).softmax(-1) @ v)


class ByTableUnscaled(ByTable):
    """Wrong: the scores are not scaled."""

    def scores_of(self, q, k):
        return q @ k.mT


class NormedRotary(Layer):
    """Norms of q and k, and rotary positions by a function: as Qwen3 has them."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.q_norm, self.k_norm = RMSNorm(self.head_dim), RMSNorm(self.head_dim)
        self.rotation = Rotation(self.head_dim)

    def scores_of(self, q, k):
        return rotary(self.q_norm(q), self.k_norm(k), self.rotation.angles(q))

    def forward(self, x):
        q, k, v = self.qkv(x)
        q, k = self.scores_of(q, k)
        return self.merged(scaled_dot_product_attention(q, k, v, is_causal=True))


class UnscaledRotary(NormedRotary):
    """The same without the scale: what is left is wrong as well."""

    def forward(self, x):
        q, k, v = self.qkv(x)
        q, k = rotary(self.q_norm(q), self.k_norm(k), self.rotation.angles(q))
        return self.merged(scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0))


def alibi(heads, length, dtype):
    """Return what is added to the scores, by head and by distance."""
    slopes = 2.0 ** -torch.arange(1, heads + 1, dtype=dtype)
    places = torch.arange(length, dtype=dtype)
    return slopes[:, None, None] * -(places[:, None] - places).abs()


class Alibi(Layer):
    """A bias of distances is added to the scores."""

    def with_bias(self, scores, bias):
        return scores + bias

    def forward(self, x):
        q, k, v = self.qkv(x)
        bias = alibi(self.num_heads, x.shape[1], x.dtype)
        scores = self.with_bias(q @ k.mT / self.head_dim**0.5, bias)
        return self.merged(scores.softmax(-1) @ v)


class AlibiMultiplied(Alibi):
    """The scores are multiplied by it, which is not what zeros stand for."""

    def with_bias(self, scores, bias):
        return scores * bias


class ByModule(Layer):
    """A module within turns q and k, by its call and by a method of its own."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.rope = Rotation(self.head_dim)

    def forward(self, x):
        q, k, v = self.qkv(x)
        return self.merged(scaled_dot_product_attention(self.rope(q), self.rope.rotate(k), v))


built = ByModule(24, 4)


class ShiftedByModule(ByModule):
    """A method of the module returns one number a row, and stays as it is."""

    def forward(self, x):
        q, k, v = self.qkv(x)
        angles = self.rope.angles(q)
        q, k = self.rope(q) * angles.cos().mean() / angles.cos().mean(), self.rope.rotate(k)
        return self.merged(scaled_dot_product_attention(q, k, v))


class OneNorm(Layer):
    """Queries and keys share a norm, which has two names."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.q_norm = self.k_norm = RMSNorm(self.head_dim)

    def forward(self, x):
        q, k, v = self.qkv(x)
        return self.merged(scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v))


class OfBase(NormedRotary):
    """The call of its base, and the functions that this names."""


class OfCallable:
    """An object of a class that is no function turns rows."""

    def __call__(self, table, x):
        return x * table.cos()


by_object = OfCallable()


class ByObject(Layer):
    """The table stands before the rows, and has the shape of one sample's."""

    def forward(self, x):
        q, k, v = self.qkv(x)
        return self.merged(scaled_dot_product_attention(by_object(q * 0 + 1, q), k, v))


class ByStaticMethod(Layer):
    """A static method turns q, and writes into what it is given."""

    @staticmethod
    def rotate_half(x):
        angles = torch.arange(x.shape[-2], dtype=x.dtype)[:, None]
        half = x.shape[-1] // 2
        x[..., :half] *= angles.cos()
        return x

    def forward(self, x):
        q, k, v = self.qkv(x)
        return self.merged(scaled_dot_product_attention(self.rotate_half(q.clone()), k, v))


def with_positions(x):
    """Return rows with their positions added to the first half of their columns."""
    return x + np.arange(x.shape[-2])[:, None] * (np.arange(x.shape[-1]) < x.shape[-1] // 2)


def unused(x):
    """Return the rows; no call runs it."""
    return x


def sums(x):
    """Return one number for each row."""
    return x.sum(-1)


def attention(q, k, v):
    """Return attention of rows with positions."""
    q, k = with_positions(q), with_positions(k)
    sums(v)
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
