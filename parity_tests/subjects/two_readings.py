"""What fits two readings: masks of two axes, the layout of a switch, inputs that may be left out."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Layer(nn.Module):
    """A layer over all the keys, whose masks come in as what is hidden of the scores."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def split(self, rows: Tensor) -> Tensor:
        """(N, L, E) -> (N, H, L, D)."""
        return rows.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def attend(self, query: Tensor, key: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Return the output for rows (N, L, E); ``hidden`` broadcasts to (N, H, L, S)."""
        q, k, v = (self.split(f(x)) for f, x in (
            (self.q_proj, query), (self.k_proj, key), (self.v_proj, key)))  # fmt: skip
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if hidden is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        out: Tensor = self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return out


class Padding(Layer):
    """``mask`` (N, S), True hides, whatever the sizes are."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return self-attention."""
        return self.attend(x, x, None if mask is None else self.shaped(mask, x.shape[1]))

    def shaped(self, mask: Tensor, _: int) -> Tensor:
        """Return the mask with the axes of the scores."""
        if mask.ndim > 2:
            return mask if mask.ndim == 4 else mask[:, None]
        return mask[:, None, None]


class PaddingUnlessAsManyQueries(Padding):
    """A mask of as many rows as there are queries is taken for (L, S): wrong where N = L alone."""

    def shaped(self, mask: Tensor, length: int) -> Tensor:
        """Return the mask with the axes of the scores."""
        if mask.ndim == 2 and len(mask) == length:
            return mask[None, None]
        return super().shaped(mask, length)


class TwoAxesAlone(PaddingUnlessAsManyQueries):
    """The same, and no mask has more axes, so that no call has both kinds: wrong where N = L."""

    def shaped(self, mask: Tensor, length: int) -> Tensor:
        """Return the mask with the axes of the scores."""
        if mask.ndim != 2:
            raise ValueError(f"mask has {mask.ndim} axes")
        return super().shaped(mask, length)


class EitherLayout(nn.Module):
    """Rows (L, N, E), or (N, L, E) with ``batch_first``; the first axis is the samples' within."""

    back = True

    def __init__(self, embed_dim: int, num_heads: int, batch_first: bool = False) -> None:  # noqa: FBT001, FBT002  (as torch)
        super().__init__()
        self.num_heads, self.batch_first = num_heads, batch_first
        self.queries = nn.Linear(embed_dim, embed_dim)
        self.keys = nn.Linear(embed_dim, embed_dim)
        self.vals = nn.Linear(embed_dim, embed_dim)
        self.join = nn.Linear(embed_dim, embed_dim)

    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """Return attention of a to b and c."""
        if self.batch_first:
            a, b, c = (rows.transpose(0, 1) for rows in (a, b, c))
        length, samples, width = a.shape
        q, k, v = (
            f(rows).reshape(len(rows), samples * self.num_heads, -1).transpose(0, 1)
            for f, rows in ((self.queries, a), (self.keys, b), (self.vals, c))
        )
        weights = (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])).softmax(-1)
        rows = (weights @ v).transpose(0, 1)
        if self.batch_first and not self.back:
            out: Tensor = self.join(rows.reshape(samples, length, width))
            return out
        out = self.join(rows.reshape(length, samples, width))
        return out.transpose(0, 1) if self.batch_first else out


class OneLayoutAlone(EitherLayout):
    """With ``batch_first`` samples and positions are mixed: it is right as it is by default."""

    back = False


class Pictures(Layer):
    """Attends to ``picture`` where there is one; its name says nothing."""

    def forward(self, x: Tensor, picture: Tensor | None = None) -> Tensor:
        """Return attention of x to itself, or to the picture."""
        return self.attend(x, x if picture is None else picture)


class PicturesOfMany(Layer):
    """Wrong for more than eight keys of ``picture``: of those the last is left out."""

    def forward(self, x: Tensor, picture: Tensor | None = None) -> Tensor:
        """Return attention of x to itself, or to the picture."""
        return self.attend(x, x if picture is None else picture[:, : max(8, picture.shape[1] - 1)])


class Hints(Layer):
    """``hint`` is added to the input: it is no input of keys."""

    def forward(self, x: Tensor, hint: Tensor | None = None) -> Tensor:
        """Return self-attention."""
        x = x if hint is None else x + hint[:, : x.shape[1]].mean(1, keepdim=True)
        return self.attend(x, x)


class AllAmongThem(nn.Module):
    """Linears named after the one for all: ``qkv_q`` and ``qkv_kv``."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv_q = nn.Linear(width, width)
        self.qkv_kv = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Return attention of x to the context."""
        rows = (self.qkv_q(x), *self.qkv_kv(context).chunk(2, -1))
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in rows)
        weights = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)
        out: Tensor = self.output((weights @ v).transpose(1, 2).flatten(2))
        return out


def switched(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, is_causal: bool = False  # noqa: FBT001, FBT002  (as torch)
) -> Tensor:
    """``is_causal`` as torch's, from the first key on; not together with ``mask``."""
    return _switched(q, k, v, mask, is_causal, 0)


def switched_at_the_end(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, is_causal: bool = False  # noqa: FBT001, FBT002  (as torch)
) -> Tensor:
    """``is_causal`` counted from the last key: another rule where there are more of them."""
    return _switched(q, k, v, mask, is_causal, max(k.shape[-2] - q.shape[-2], 0))


def _switched(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, first: int  # noqa: FBT001  (as torch)
) -> Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        if mask is not None:
            raise ValueError("mask and is_causal")
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(first)
    if mask is not None:
        hidden = ~mask if mask.dtype == torch.bool else None
        scores = scores + mask if hidden is None else scores.masked_fill(hidden, -math.inf)
    return scores.softmax(-1) @ v
