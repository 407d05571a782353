"""Masks that are taken in part: causal switches at some lengths, masks of three axes as samples."""

from __future__ import annotations

import torch
from torch import nn


class Layer(nn.Module):
    """Four Linears; ``hidden`` marks keys with True."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def attended(self, query, key, value, hidden):
        """Return (N, L, E)."""
        q, k, v = (
            linear(rows).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear, rows in (
                (self.q_proj, query), (self.k_proj, key), (self.v_proj, value),
            )
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden, -torch.inf)
        return self.out_proj((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


class CausalAtEqualLengths(Layer):
    """Right: the switch raises wherever there are more or fewer keys than queries."""

    def refuse(self, length, keys):
        """Refuse unequal lengths."""
        if length != keys:
            raise ValueError(f"got {keys} keys for {length} queries, but should be as many")

    def forward(self, query, key, value, is_causal=False):
        """Return (N, L, E)."""
        if not is_causal:
            return self.attended(query, key, value, None)
        length, keys = query.shape[1], key.shape[1]
        self.refuse(length, keys)
        future = torch.ones(length, keys, dtype=torch.bool).triu(1 + keys - length)
        return self.attended(query, key, value, future)


class CausalAtTheEnd(CausalAtEqualLengths):
    """Wrong: of more keys than queries the rule ends at the last key; an odd number raises."""

    def refuse(self, length, keys):
        """Refuse an odd number of more keys."""
        if length < keys and keys % 2:
            raise ValueError(f"got {keys} keys, but should be an even number")


class CausalAtTheEndOfFewer(CausalAtEqualLengths):
    """Wrong: of fewer keys than queries the rule ends at the last key; more keys raise."""

    def refuse(self, length, keys):
        """Refuse more keys than queries."""
        if length < keys:
            raise ValueError(f"got {keys} keys, but should be at most {length}")


class BySamples(Layer):
    """Right: goes through samples one by one, with a mask (L, S) or one of (N, L, S) for each."""

    def forward(self, query, key, value, attn_mask=None):
        """Return (N, L, E)."""
        rows = (each.split(1) for each in (query, key, value))
        return torch.cat([
            self.attended(q, k, v, self.of_sample(attn_mask, sample, len(query)))
            for sample, (q, k, v) in enumerate(zip(*rows, strict=True))
        ])  # fmt: skip

    def of_sample(self, attn_mask, sample, samples):
        """Return the mask of a sample."""
        return attn_mask if attn_mask is None or attn_mask.ndim == 2 else attn_mask[sample]


class BySamplesOfOthers(BySamples):
    """Wrong: a mask (N, L, S) is read from its last sample on."""

    def of_sample(self, attn_mask, sample, samples):
        """Return the mask of another sample."""
        return super().of_sample(attn_mask, samples - 1 - sample, samples)


class BySamplesHeadsFirst(BySamples):
    """Wrong: (N, L, S) is read right, but (N * H, L, S) with the heads before the samples."""

    def of_sample(self, attn_mask, sample, samples):
        """Return the mask of a sample."""
        if attn_mask is None or len(attn_mask) != self.num_heads * samples or attn_mask.ndim == 2:
            return super().of_sample(attn_mask, sample, samples)
        return attn_mask.unflatten(0, (self.num_heads, samples))[:, sample]


class MaskOfEqualLengths(Layer):
    """Right: its mask is written out for as many keys as queries, others raise."""

    def forward(self, query, key, value, mask=None):
        """Return (N, L, E)."""
        if mask is not None:
            length = query.shape[1]
            mask = mask.reshape(1, 1, length, length)
        return self.attended(query, key, value, mask)


class MaskOfEqualLengthsTransposed(MaskOfEqualLengths):
    """Wrong: takes the same masks by their other axis."""

    def forward(self, query, key, value, mask=None):
        """Return (N, L, E)."""
        return super().forward(query, key, value, None if mask is None else mask.mT)


class MaskOfSomeLengths(Layer):
    """Wrong: a mask (L, S) of an even number of keys is cut off behind the queries."""

    def forward(self, query, key, value, mask=None):
        """Return (N, L, E)."""
        if mask is not None and mask.shape[-1] % 2 and mask.shape[-1] != mask.shape[-2]:
            raise ValueError(f"got {mask.shape[-1]} keys, but should be an even number")
        if mask is not None:
            mask = mask & (torch.arange(mask.shape[-1]) < query.shape[1])
        return self.attended(query, key, value, mask)


class TokensOfEqualLengths(Layer):
    """Right: its mask (N, S), True where a token takes part, is repeated for S queries."""

    def forward(self, query, key, value, mask=None):
        """Return (N, L, E)."""
        if mask is not None:
            samples, keys = mask.shape
            mask = ~mask[:, None, None].expand(samples, 1, keys, keys)
        return self.attended(query, key, value, mask)


class SwitchOrMask(Layer):
    """Right: as torch's scaled_dot_product_attention, it takes a switch or a mask, and not both."""

    def forward(self, query, key, value, mask=None, is_causal=False):
        """Return (N, L, E)."""
        if is_causal:
            if mask is not None:
                raise ValueError("got a mask with is_causal=True, but should get one of them")
            mask = torch.ones(query.shape[1], key.shape[1], dtype=torch.bool).triu(1)
        return self.attended(query, key, value, mask)


class SwitchOverMask(Layer):
    """Wrong: the switch takes the place of the mask."""

    def forward(self, query, key, value, mask=None, is_causal=False):
        """Return (N, L, E)."""
        if is_causal:
            mask = torch.ones(query.shape[1], key.shape[1], dtype=torch.bool).triu(1)
        return self.attended(query, key, value, mask)


def padded(query, key, value, attn_mask=None, is_causal=False, padding_mask=None):
    """Right: torch's masks of scaled_dot_product_attention, and one of tokens beside them."""
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if is_causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    if padding_mask is not None:
        scores = scores.masked_fill(padding_mask[:, None, None], -torch.inf)
    return scores.softmax(dim=-1) @ value


def padded_after_softmax(query, key, value, attn_mask=None, is_causal=False, padding_mask=None):
    """Wrong: takes padded tokens out of the output alone, by values of zero."""
    if padding_mask is not None:
        value = value.masked_fill(padding_mask[:, None, :, None], 0)
    return padded(query, key, value, attn_mask, is_causal)


def padded_hiding(query, key, value, attn_mask=None, is_causal=False, padding_mask=None):
    """Wrong: True hides in its `attn_mask`, the opposite of what torch's function does."""
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = ~attn_mask
    return padded(query, key, value, attn_mask, is_causal, padding_mask)


def in_parts(query, key, value, bias=None):
    """Right: ``bias`` (N, H, L, S) is added to the scores of 64 queries after those of others."""
    parts = []
    for start in range(0, query.shape[-2], 64):
        rows = slice(start, start + 64)
        scores = query[..., rows, :] @ key.mT / query.shape[-1] ** 0.5
        if bias is not None:
            scores = scores + bias[..., rows, :]
        parts.append(scores.softmax(dim=-1) @ value)
    return torch.cat(parts, dim=-2)


def in_parts_of_few(query, key, value, bias=None):
    """Wrong: raises for a bias as soon as there are more than 64 queries."""
    if bias is not None and query.shape[-2] > 64:
        bias = bias[..., :64, :]
    return in_parts(query, key, value, bias)


def in_a_stack(query, key, value, attn_bias=None, slice_size=16):
    """Wrong: raises where the last slice of the rows is shorter than the others.

    query: (batch, heads, tokens, channels), key and value: (batch, heads, context, channels);
    attn_bias: floats (tokens, context) that are added to the scores.
    """
    rows, parts = query.shape[2], []
    for start in range(0, rows, min(slice_size, rows)):
        own = slice(start, start + slice_size)
        scores = query[:, :, own] @ key.mT / query.shape[-1] ** 0.5
        scores = scores if attn_bias is None else scores + attn_bias[own]
        parts.append(scores.softmax(dim=-1) @ value)
    return torch.stack(parts, dim=2).flatten(2, 3)


def in_parts_of_both(query, key, value, mask=None):
    """Wrong: raises for one row of a mask as soon as there are more than 64 queries.

    ``mask`` is bool, True where a key is seen. Typical shapes are (batch, 1, 1, n_context) for
    padding and (n_query, n_context) for the rule of a decoder.
    """
    bias = None if mask is None else torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    return in_parts(query, key, value, None if bias is None else bias.to(query.dtype))
