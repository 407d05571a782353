"""Attentions with masks in the forms that people give them, right ones and wrong ones."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


class Layer(nn.Module):
    """Four Linears; subclasses say what their masks hide."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def scores(self, query, key):
        """Return scores (N, H, L, S)."""
        q, k = (
            linear(rows).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear, rows in ((self.q_proj, query), (self.k_proj, key))
        )
        return q @ k.mT / q.shape[-1] ** 0.5

    def mixed(self, weights, value):
        """Return the output of weights (N, H, L, S)."""
        v = self.v_proj(value).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))

    def attended(self, query, key, value, hidden):
        """Return the output where some keys are hidden."""
        scores = self.scores(query, key).masked_fill(hidden, -torch.inf)
        return self.mixed(scores.softmax(dim=-1), value)


class TorchNames(Layer):
    """torch's names and torch's meaning."""

    inverted = False

    def forward(self, query, key, value, attn_mask=None, key_padding_mask=None):
        """Return (N, L, E)."""
        scores = self.scores(query, key)
        for mask, shape in ((attn_mask, (1, 1, -1)), (key_padding_mask, (-1, 1, 1))):
            if mask is None:
                continue
            placed = mask[None, None] if shape[0] == 1 else mask[:, None, None]
            if mask.dtype == torch.bool:
                scores = scores.masked_fill(~placed if self.inverted else placed, -torch.inf)
            else:
                scores = scores + placed
        return self.mixed(scores.softmax(dim=-1), value)


class Reshaped(TorchNames):
    """The same; where a mask has an axis too many it is merged amiss, in the shape of an output."""

    def mixed(self, weights, value):
        """Return the output of weights (N, H, L, S)."""
        v = self.v_proj(value).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        heads = (weights @ v).transpose(1, 2)
        return self.out_proj(heads.reshape(len(value), -1, value.shape[-1]))


class TruthOfFloats(Layer):
    """A boolean mask; floats are taken for True wherever they are not 0."""

    def forward(self, x, attn_mask=None):
        """Return (N, L, E)."""
        hidden = torch.zeros(1, dtype=torch.bool) if attn_mask is None else attn_mask.bool()
        return self.attended(x, x, x, hidden)


class TorchNamesAdded(TorchNames):
    """Right with floats, which are added; so are booleans, as 0 and 1."""

    def forward(self, query, key, value, attn_mask=None, key_padding_mask=None):
        """Return (N, L, E)."""
        floats = None if attn_mask is None else attn_mask.to(query.dtype)
        return super().forward(query, key, value, floats, key_padding_mask)


class TorchNamesInverted(TorchNames):
    """Wrong: True keeps, under torch's names."""

    inverted = True


class TorchNamesIgnored(TorchNames):
    """Wrong: the masks are taken and not used."""

    def forward(self, query, key, value, attn_mask=None, key_padding_mask=None):
        """Return (N, L, E)."""
        del attn_mask, key_padding_mask
        return super().forward(query, key, value)


class Adds(Layer):
    """Right: its mask is added to the scores."""

    def forward(self, q, k, v, mask=None):
        """Return (N, L, E)."""
        scores = self.scores(q, k)
        scores = scores if mask is None else scores + mask
        return self.mixed(scores.softmax(dim=-1), v)


class Keeps(Layer):
    """A mask (N, 1, L, S) or broadcast to it, 0 hides."""

    def forward(self, q, k, v, mask):
        """Return (N, L, E)."""
        return self.attended(q, k, v, mask == 0)


class KeepsByFilledZeros(Layer):
    """Right: what is 0 becomes -1e8, and the mask is added: a float mask of 0 and -inf is none."""

    def forward(self, query, key, value, mask=None):
        """Return (N, L, E)."""
        scores = self.scores(query, key)
        if mask is not None:
            scores = scores + mask.masked_fill(mask == 0, -1e8)[:, None, None]
        return self.mixed(scores.softmax(dim=-1), value)


class KeepsByAxes(Layer):
    """Wrong: True keeps in a mask of more than two axes, and hides in one of two."""

    def forward(self, query, key, value, mask=None):
        """Return (N, L, E)."""
        if mask is None:
            mask = torch.ones(1, 1, 1, 1, dtype=torch.bool)
        hidden = mask if mask.dim() == 2 else ~mask
        return self.attended(query, key, value, hidden)


class KeepsByDtype(Layer):
    """Wrong: True hides, and the integer 1 keeps."""

    def forward(self, query, key, value, mask=None):
        """Return (N, L, E). mask: booleans, or integers 0 and 1."""
        if mask is None:
            mask = torch.zeros(1, 1, dtype=torch.bool)
        return self.attended(query, key, value, mask if mask.dtype == torch.bool else mask == 0)


class KeepsFlipped(Layer):
    """The same mask flipped: its name promises nothing, so that it is judged by what it does."""

    def forward(self, q, k, v, mask):
        """Return (N, L, E)."""
        return self.attended(q, k, v, mask == 1)


class TokenMask(Layer):
    """A token of each sample, (N, S), True hides."""

    def forward(self, x, pad_mask=None):
        """Return (N, L, E)."""
        hidden = torch.zeros(1, dtype=torch.bool) if pad_mask is None else self.placed(pad_mask)
        return self.attended(x, x, x, hidden)

    def placed(self, pad_mask):
        """Return which keys are hidden."""
        return pad_mask[:, None, None, :]


class TokenMaskFirstHead(TokenMask):
    """Wrong: only the first head is masked."""

    def placed(self, pad_mask):
        """Return which keys are hidden."""
        first = torch.zeros(self.num_heads, 1, 1, dtype=torch.bool)
        first[0] = True
        return pad_mask[:, None, None, :] & first


class TokenMaskOfQueries(TokenMask):
    """Wrong: the queries of padded tokens are masked, not the keys."""

    def placed(self, pad_mask):
        """Return which keys are hidden."""
        return pad_mask[:, None, :, None]


class Lowered(Layer):
    """A token of each sample, (N, S), 1 keeps: scores of hidden ones are lowered by 10,000."""

    by = 1e4

    def forward(self, x, mask):
        """Return (N, L, E)."""
        scores = self.scores(x, x)
        if mask is not None:
            scores = scores - self.by * (1 - mask[:, None, None, :].to(scores.dtype))
        return self.mixed(scores.softmax(dim=-1), x)


class LoweredTooLittle(Lowered):
    """Wrong: enlarged keys are ten times as far above the others as they are lowered."""

    by = 100.0


class PairMask(Layer):
    """A mask of each sample, (N, L, S), True hides, and repeated for every head."""

    transposed = False
    order = "repeat_interleave"

    def forward(self, query, key, value, mask=None):
        """Return (N, L, E)."""
        scores = self.scores(query, key)
        if mask is not None:
            mask = mask.mT if self.transposed else mask
            flat = scores.flatten(0, 1)
            if self.order == "repeat":
                mask = mask.repeat(self.num_heads, 1, 1)
            else:
                mask = mask.repeat_interleave(self.num_heads, dim=0)
            scores = flat.masked_fill(mask, -1e9).view_as(scores)
        return self.mixed(scores.softmax(dim=-1), value)


class PairMaskOfOthers(PairMask):
    """Wrong: repeated in the order of heads and samples, so that samples get others' masks."""

    order = "repeat"


class SelfMask(Layer):
    """A mask (L, L) of one sequence."""

    def forward(self, x, mask=None):
        """Return (N, L, E)."""
        hidden = torch.zeros(1, dtype=torch.bool) if mask is None else self.placed(mask)
        return self.attended(x, x, x, hidden)

    def placed(self, mask):
        """Return which keys are hidden."""
        return mask == 0


class SelfMaskTransposed(SelfMask):
    """Wrong: rows and columns are exchanged."""

    def placed(self, mask):
        """Return which keys are hidden."""
        return mask.mT == 0


class SelfMaskShifted(SelfMask):
    """Wrong: the mask of the neighbouring key."""

    def placed(self, mask):
        """Return which keys are hidden."""
        return mask.roll(1, dims=-1) == 0


class CausalInside(Layer):
    """The constructor says whether the future is hidden; padding is passed."""

    first = 1

    def __init__(self, embed_dim, num_heads, causal=False):
        super().__init__(embed_dim, num_heads)
        self.causal = causal

    def forward(self, x, key_mask=None):
        """Return (N, L, E)."""
        hidden = torch.zeros(x.shape[1], x.shape[1], dtype=torch.bool)
        if self.causal:
            hidden = ~hidden.new_ones(hidden.shape).tril(self.first - 1)
        if key_mask is not None:
            hidden = hidden | ~key_mask.bool()[:, None, None]
        return self.attended(x, x, x, hidden)


class CausalLoose(CausalInside):
    """Wrong: one key of the future is seen."""

    first = 2


def softmax(scores):
    """Return the softmax along the last axis."""
    exp = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


def lengths_of_keys(Q, K, V, n_heads, lengths=None):
    """Return (N, L, E); lengths of samples (N,) or of queries (N, L)."""
    q, k, v = (np.stack(np.split(rows, n_heads, axis=-1), axis=-3) for rows in (Q, K, V))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if lengths is not None:
        counts = lengths[:, None] if lengths.ndim == 1 else lengths
        hidden = np.arange(k.shape[-2]) >= counts[..., None]
        scores = np.where(hidden[:, None], -np.inf, scores)
    return np.concatenate(np.moveaxis(softmax(scores) @ v, -3, 0), axis=-1)


def lengths_inclusive(Q, K, V, n_heads, lengths=None):
    """Wrong: one key more than the length is seen."""
    return lengths_of_keys(Q, K, V, n_heads, None if lengths is None else lengths + 1)


def added(q, k, v, bias=None):
    """One head; an additive bias (L, S)."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(scores if bias is None else scores + bias) @ v


def added_before_scaling(q, k, v, bias=None):
    """Wrong: the bias is scaled with the scores."""
    scores = q @ k.swapaxes(-1, -2)
    scores = scores if bias is None else scores + bias
    return softmax(scores / np.sqrt(q.shape[-1])) @ v


def multiplied(q, k, v, mask=None):
    """Wrong: scores of hidden keys are 0, and keep weight."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(scores if mask is None else scores * mask) @ v


def after_softmax(q, k, v, mask=None):
    """Wrong: weights are masked, and no longer sum to 1."""
    weights = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return (weights if mask is None else weights * mask) @ v


def drops_queries(q, k, v, mask=None, query_mask=None):
    """Return (N, H, L, D); a True of `mask` hides a key, a 0 of `query_mask` a row of queries."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    weights = (scores if mask is None else scores.masked_fill(mask, -torch.inf)).softmax(-1)
    return (weights if query_mask is None else weights * query_mask) @ v


def drops_queries_and_keys(q, k, v, mask=None, query_mask=None):
    """Wrong: hidden keys are dropped after the softmax, as queries are."""
    kept = None if mask is None else ~mask
    return drops_queries(q, k, v, None, query_mask if kept is None else kept)


def unknown(q, k, v, mask=None):
    """A mask that no call finds out: a dict."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(scores if mask is None else scores + mask["bias"]) @ v


def scaled(q, k, v, mask=None, scale=None):
    """Return (N, H, L, D); `mask` is added to the scores."""
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return (scores if mask is None else scores + mask).softmax(-1) @ v


def scaled_masks(q, k, v, mask=None, scale=None):
    """Wrong on purpose: the mask is scaled too."""
    scores = q @ k.transpose(-1, -2) + (0 if mask is None else mask)
    return (scores * (q.shape[-1] ** -0.5 if scale is None else scale)).softmax(-1) @ v


def causal_whatever(q, k, v, mask=None):
    """Return (N, H, L, D); any mask makes it causal."""
    hidden = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return (scores if mask is None else scores.masked_fill(hidden, -torch.inf)).softmax(-1) @ v


def filled(q, k, v, mask=None, fill=-1e4):
    """Return (N, H, L, D); hidden scores, where `mask` is 0, are filled as half precision can."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return (scores if mask is None else scores.masked_fill(mask == 0, fill)).softmax(-1) @ v


def filled_too_high(q, k, v, mask=None):
    """Wrong on purpose: scores of some tens lie below the fill."""
    return filled(q, k, v, mask, fill=-20.0)
