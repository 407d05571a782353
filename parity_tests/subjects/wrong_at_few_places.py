"""Kernels that are right but at few scores, rows or masks, and next to each a right one."""

from __future__ import annotations

import numpy as np
import torch

BLOCK = 48


def _attend(query, key, value, scale, hidden=None):
    scores = scale * (query @ key.swapaxes(-1, -2))
    if hidden is not None:
        scores = np.where(hidden, -np.inf, scores)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ value


def by_threes(query, key, value):
    """Three rows at a time; the one or two that are left over are scaled by 1/D."""
    width, whole = query.shape[-1], query.shape[-2] // 3 * 3
    first = _attend(query[..., :whole, :], key, value, width**-0.5)
    return np.concatenate([first, _attend(query[..., whole:, :], key, value, 1 / width)], axis=-2)


def by_threes_scaled(query, key, value):
    """Three rows at a time, all scaled by 1/sqrt(D)."""
    scale, whole = query.shape[-1] ** -0.5, query.shape[-2] // 3 * 3
    parts = [_attend(query[..., rows, :], key, value, scale)
             for rows in (slice(whole), slice(whole, None))]  # fmt: skip
    return np.concatenate(parts, axis=-2)


def _in_blocks(query, key, value, follow):
    """Return attention by blocks of keys; ``follow(top, scores)`` is the maximum to subtract."""
    query = query / np.sqrt(query.shape[-1])
    top, total, mixed = None, 0, 0
    for start in range(0, key.shape[-2], BLOCK):
        scores = query @ key[..., start : start + BLOCK, :].swapaxes(-1, -2)
        found = scores.max(axis=-1, keepdims=True)
        before, top = top, found if top is None else follow(top, found)
        factor = 1 if before is None else np.exp(before - top)
        powers = np.exp(scores - top)
        total = total * factor + powers.sum(axis=-1, keepdims=True)
        mixed = mixed * factor + powers @ value[..., start : start + BLOCK, :]
    return mixed / total


def first_maximum(query, key, value):
    """The maximum of the first block is subtracted in all blocks."""
    return _in_blocks(query, key, value, lambda top, _: top)


def followed_maximum(query, key, value):
    """The maximum is followed from block to block."""
    return _in_blocks(query, key, value, np.maximum)


def zeros_hidden(query, key, value):
    """The future is set to 0, and then every 0 is hidden: that of a true score too."""
    scores = np.tril(query @ key.swapaxes(-1, -2)) / np.sqrt(query.shape[-1])
    scores[scores == 0] = -np.inf
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ value


def zero_keys_hidden(query, key, value):
    """A key of zeros is taken for padding."""
    padding = (key == 0).all(axis=-1)[..., None, :]
    return _attend(query, key, value, query.shape[-1] ** -0.5, padding)


def future_hidden(query, key, value):
    """The future is hidden by its place."""
    rows, keys = np.indices((query.shape[-2], key.shape[-2]))
    return _attend(query, key, value, query.shape[-1] ** -0.5, keys > rows)


def jumbled(Q, K, V, n_heads):
    """Heads are cut out of (L, E) as it lies in memory: rows mix, and nothing is causal."""
    n, length, width = Q.shape
    q, k, v = (x.reshape(n, n_heads, x.shape[1], width // n_heads) for x in (Q, K, V))
    return _attend(q, k, v, q.shape[-1] ** -0.5).reshape(n, length, width)


class _Kept(torch.autograd.Function):
    """Keeps the log-sum-exp, and forms the weights from it in the backward pass."""

    hides_again = True

    @classmethod
    def forward(cls, ctx, query, key, value, hidden):
        scores = query @ key.mT * query.shape[-1] ** -0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden[:, None, None], -torch.inf)
        total = scores.logsumexp(-1, keepdim=True)
        ctx.save_for_backward(query, key, value, total, hidden)
        return (scores - total).exp() @ value

    @classmethod
    def backward(cls, ctx, given):
        query, key, value, total, hidden = ctx.saved_tensors
        scale = query.shape[-1] ** -0.5
        weights = (query @ key.mT * scale - total).exp()
        if cls.hides_again and hidden is not None:
            weights = weights.masked_fill(hidden[:, None, None], 0)
        of_weights = given @ value.mT
        level = (given * (weights @ value)).sum(-1, keepdim=True)
        of_scores = weights * (of_weights - level) * scale
        return of_scores @ key, of_scores.mT @ query, weights.mT @ given, None


class _KeptUnhidden(_Kept):
    hides_again = False


class _KeptForQueries(_Kept):
    @classmethod
    def backward(cls, ctx, given):
        query, key, value, total, hidden = ctx.saved_tensors
        scale = query.shape[-1] ** -0.5
        weights = (query @ key.mT * scale - total).exp()
        unseen = torch.zeros(key.shape[0], key.shape[2]) > 0 if hidden is None else hidden
        output = weights.masked_fill(unseen[:, None, None], 0) @ value
        level = (given * output).sum(-1, keepdim=True)
        of_scores = weights * (given @ value.mT - level) * scale
        of_keys = (of_scores.mT @ query, weights.mT @ given)
        hides = (each.masked_fill(unseen[:, None, :, None], 0) for each in of_keys)
        return of_scores @ key, *hides, None


def recomputed_for_queries(q, k, v, key_padding_mask=None):
    """The backward pass hides keys in the gradients of keys and values alone."""
    return _KeptForQueries.apply(q, k, v, key_padding_mask)


def recomputed(q, k, v, key_padding_mask=None):
    """The backward pass hides the same keys as the forward pass."""
    return _Kept.apply(q, k, v, key_padding_mask)


def recomputed_unhidden(q, k, v, key_padding_mask=None):
    """The backward pass forgets the mask."""
    return _KeptUnhidden.apply(q, k, v, key_padding_mask)


class Layer(torch.nn.Module):
    """Masks (L, S) or (N, L, S), True where hidden; distinguished by their axes."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, torch.nn.Linear(embed_dim, embed_dim))

    def by_head(self, mask):
        return mask if mask.dim() == 2 else mask[:, None]

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            project(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for project, x in zip(
                (self.q_proj, self.k_proj, self.v_proj), (query, key, value), strict=True
            )
        )
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(self.by_head(mask), -torch.inf)
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class ByLength(Layer):
    """Three axes that begin with as many as there are heads are taken for one mask a head."""

    def by_head(self, mask):
        return mask if len(mask) == self.num_heads else super().by_head(mask)


class Inverted(Layer):
    """Torch's two masks; a boolean attn_mask alone is inverted."""

    inverts = True

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None):
        length, keys = query.shape[1], key.shape[1]
        hidden = torch.zeros(len(query), length, keys, dtype=torch.bool)
        if key_padding_mask is not None:
            hidden = hidden | key_padding_mask[:, None]
        if attn_mask is not None:
            hidden = hidden | (attn_mask ^ self.inverts)
        return super().forward(query, key, value, hidden)


class NotInverted(Inverted):
    """Torch's two masks as torch means them."""

    inverts = False
