"""Layers with torch's name for a mask, whose documentation says what it hides."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


class _Layer(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def attend(self, query, key, value, hidden):
        """Return (N, L, E) where some keys are hidden."""
        q, k, v = (
            linear(rows).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear, rows in ((self.query, query), (self.key, key), (self.value, value))
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if hidden is not None:
            scores = scores.masked_fill(hidden, -torch.inf)
        return self.proj((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


def _attend(q, k, v, num_heads, hidden):
    """Return (N, L, E) on projected rows in NumPy."""
    q, k, v = (
        rows.reshape(*rows.shape[:2], num_heads, -1).transpose(0, 2, 1, 3) for rows in (q, k, v)
    )
    scores = q @ k.swapaxes(2, 3) / q.shape[-1] ** 0.5
    scores = np.where(False if hidden is None else hidden, np.finfo(scores.dtype).min, scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    out = weights / weights.sum(axis=-1, keepdims=True) @ v
    return out.transpose(0, 2, 1, 3).reshape(*out.shape[::2], -1)


def tokens(q, k, v, num_heads, attention_mask=None):
    """Return (N, L, E). Right: integers are made booleans first.

    attention_mask: (N, S), bool or 0/1 integers; 1 marks the real tokens.
    """
    given = None if attention_mask is None else ~attention_mask.astype(bool)[:, None, None]
    return _attend(q, k, v, num_heads, given)


def tokens_inverted_bit_by_bit(q, k, v, num_heads, attention_mask=None):
    """Return (N, L, E). Wrong: ~0 and ~1 are -1 and -2, and both hide.

    attention_mask: (N, S), bool or 0/1 integers; 1 marks the real tokens.
    """
    return _attend(q, k, v, num_heads, None if attention_mask is None else ~attention_mask[:, None, None])


def tokens_and_a_late_future(q, k, v, num_heads, attention_mask=None, is_causal=False):
    """Return (N, L, E). Wrong twice: so are its tokens inverted, and each query sees the next key.

    attention_mask: (N, S), bool or 0/1 integers; 1 marks the real tokens.
    """
    hidden = np.zeros((1, 1, 1, 1), bool)
    if attention_mask is not None:
        hidden = hidden | (~attention_mask[:, None, None]).astype(bool)
    if is_causal:
        hidden = hidden | np.triu(np.ones((q.shape[1], k.shape[1]), bool), 2)
    return _attend(q, k, v, num_heads, hidden)


def tokens_refused(q, k, v, num_heads, attention_mask=None):
    """Return (N, L, E). Right of booleans: integers that hide a key raise, and are not offered.

    attention_mask: (N, S), zeros and ones; ones mark the real tokens.
    """
    if attention_mask is not None and attention_mask.dtype != bool and not attention_mask.all():
        raise ValueError("the mask should be boolean")
    return tokens(q, k, v, num_heads, attention_mask)


def tokens_of_booleans(q, k, v, num_heads, attention_mask=None):
    """Return (N, L, E). Right: it takes booleans.

    attention_mask: boolean array (N, S), True for the real tokens.
    """
    return _attend(q, k, v, num_heads, None if attention_mask is None else ~attention_mask[:, None, None])


class TokensThatRaise(_Layer):
    """Wrong: masked_fill takes no integers.

    attention_mask: (N, S), boolean, or integers 0 and 1 as tokenizers give them; 1 is a token.
    """

    def forward(self, query, key, value, attention_mask=None):
        given = None if attention_mask is None else ~attention_mask[:, None, None]
        return self.attend(query, key, value, given)


class TokensToConvert(TokensThatRaise):
    """Right: integers are named, and not as what the mask may be.

    attention_mask: (N, S), boolean; True is a token. Integer masks must be converted first.
    """


class ZeroHides(_Layer):
    """Right: what the call documents, the opposite of torch's meaning."""

    def forward(self, query, key, value, attn_mask=None):
        """Return the attention.

        - query: rows (N, L, E)
        - attn_mask: array of shape (L, S), in which mask[i, j] == 0 says that query i should not
          be influenced by key j.
        - unused: True hides nothing here, it is another entry.
        """
        return self.attend(query, key, value, None if attn_mask is None else attn_mask == 0)


class ZeroHidesInverted(_Layer):
    """Wrong: documented as ZeroHides, and hides where the mask is 1, as torch's would."""

    def forward(self, query, key, value, attn_mask=None):
        """Return the attention.

        - attn_mask: array of shape (L, S), in which mask[i, j] == 0 says that query i should not
          be influenced by key j.
        """
        return self.attend(query, key, value, None if attn_mask is None else attn_mask != 0)


class ZeroHidesUnsaid(_Layer):
    """Wrong: torch's name, the opposite meaning, and a documentation without a word of it."""

    def forward(self, query, key, value, attn_mask=None):
        """Return the attention.

        - attn_mask: array of shape (L, S).
        """
        return self.attend(query, key, value, None if attn_mask is None else attn_mask == 0)


class RequiredKeeps(_Layer):
    """Right: a required mask that keeps where it is 1, as it says.

    keep_mask: (N, S) int64, 1 = real token, 0 = pad.
    """

    inverted = False

    def forward(self, x, context, keep_mask):
        """Return (N, L, E)."""
        return self.attend(x, context, context, (keep_mask != 0 if self.inverted else keep_mask == 0)[:, None, None])


class RequiredInverted(RequiredKeeps):
    """Wrong: what is documented to be kept is hidden.

    keep_mask: (N, S) int64, 1 = real token, 0 = pad.
    """

    inverted = True


class BuiltWithAMask(_Layer):
    """Right: `mask` of the constructor is a switch, of the rule that hides the future."""

    late = 1

    def __init__(self, embed_dim, num_heads, mask=None):
        super().__init__(embed_dim, num_heads)
        self.mask = mask

    def forward(self, x):
        """Return (N, L, E)."""
        size = x.shape[1]
        return self.attend(x, x, x, torch.ones(size, size, dtype=torch.bool).triu(self.late) if self.mask else None)


class BuiltWithALateMask(BuiltWithAMask):
    """Wrong: each query sees one key of the future."""

    late = 2


class OneForEachSample(nn.Module):
    """Wrong: a mask of a sample reaches the heads of others.

    x: (B, L, E); keep: (B, L, L) bool, True where attention is allowed.
    """

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.mha = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)

    def each_head(self, hidden):
        """Return (N*H, L, L)."""
        return hidden.repeat(self.num_heads, 1, 1)

    def forward(self, x, keep=None):
        """Return (N, L, E)."""
        hidden = None if keep is None else self.each_head(~keep)
        return self.mha(x, x, x, attn_mask=hidden, need_weights=False)[0]


class OneForEachSampleUnsaid(OneForEachSample):
    """Wrong likewise, and nothing is said of the mask."""


class OneForEachSampleUnnamed(OneForEachSample):
    """Wrong likewise, by a name that says nothing."""

    def forward(self, x, shown=None):
        """Return (N, L, E)."""
        return super().forward(x, shown)


class OneForEachSampleInOrder(OneForEachSample):
    """Right.

    x: (B, L, E); keep: (B, L, L) bool, True where attention is allowed.
    """

    def each_head(self, hidden):
        """Return (N*H, L, L)."""
        return hidden.repeat_interleave(self.num_heads, 0)


def weighted(q, k, v, mask=None):
    """Wrong: a boolean mask is added to the scores as 0 and 1.

    q (B, H, L, D), k and v (B, H, S, D); mask: bool, (B, H, L, S), True = attend
    """
    scores = q @ k.swapaxes(-2, -1) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores + mask.astype(scores.dtype)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def weighted_by_floats(q, k, v, mask=None):
    """Right: a mask of floats is added to the scores.

    q (B, H, L, D), k and v (B, H, S, D); mask: float, (B, H, L, S), added to the scores
    """
    return weighted(q, k, v, mask)


class OneForEachSampleRequired(OneForEachSample):
    """Wrong likewise, of a mask that is required and of which nothing is said."""

    def forward(self, x, keep_mask):
        """Return (N, L, E)."""
        return super().forward(x, keep_mask)


class WithPadding(OneForEachSample):
    """Wrong likewise, next to a mask that is right."""

    def forward(self, x, keep=None, key_padding_mask=None):
        """Return (N, L, E)."""
        hidden = None if keep is None else self.each_head(~keep)
        return self.mha(x, x, x, key_padding_mask, False, hidden)[0]


def weighted_by_large_numbers(q, k, v, mask=None):
    """Right: what hides is added, and no boolean.

    q (B, H, L, D), k and v (B, H, S, D)
    mask: (B, 1, L, S), 0 keeps a key, a large negative number hides it (no boolean mask)
    """
    return weighted(q, k, v, mask)


class Described(_Layer):
    """Right, of a mask that is said in words that could be misread."""

    hides = False

    def forward(self, x, mask=None):
        """Return (N, L, E).

        mask: (B, L) bool, True from the first token to where the padding starts
        """
        hidden = None if mask is None else mask if self.hides else ~mask
        return self.attend(x, x, x, None if hidden is None else hidden[:, None, None])


class DescribedByPurpose(Described):
    """Right likewise."""

    hides = True

    def forward(self, x, mask=None):
        """Return (N, L, E).

        mask: bool, (B, L), True so that nobody attends to a token, say one behind the last
        """
        return super().forward(x, mask)


class Gated(_Layer):
    """Right without its gate, which is no mask of the scores."""

    def forward(self, x, gate=None):
        """Return (N, L, E).

        gate: (B, H, L, L) multiplies the weights after the softmax: 1 keeps a weight, 0 drops it
        """
        q, k, v = (
            linear(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return self.proj(((weights if gate is None else weights * gate) @ v).transpose(1, 2).flatten(2))


class NoAxisOfHeads(_Layer):
    """Wrong: a mask of the documented shape meets the heads by its samples, and raises."""

    def forward(self, x, mask=None):
        """Return (N, L, E).

        mask: (batch, seq_len, seq_len), True where a query sees a key and False elsewhere.
        """
        return self.attend(x, x, x, None if mask is None else ~mask)


class SeesTokensOrPast(_Layer):
    """Wrong: a key is seen where it is a token or stands before, and not only where both hold."""

    def forward(self, x, tokens_mask=None):
        """Return (N, L, E).

        tokens_mask: int tensor (batch, length), 1 = token, 0 = padding.
        """
        seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.long).tril()
        if tokens_mask is not None:
            seen = seen + tokens_mask[:, None, None].long()
        return self.attend(x, x, x, seen == 0)


class ExpandedWithin(_Layer):
    """Right: the shape that is named is one that the layer makes of its mask."""

    def forward(self, x, mask=None):
        """Return (N, L, E).

        mask: padding mask, 1 for tokens and 0 for padding, expanded to (batch, 1, 1, seq_len) here.
        """
        return self.attend(x, x, x, None if mask is None else mask[:, None, None] == 0)


class BroadcastToScores(_Layer):
    """Right: the second shape is that of the scores."""

    def forward(self, x, mask=None):
        """Return (N, L, E).

        mask: bool (batch, seq_len), broadcastable to (batch, heads, seq_len, seq_len), True keeps.
        """
        return self.attend(x, x, x, None if mask is None else ~mask[:, None, None])


class CountsKeys(_Layer):
    """Right: integers that are lengths, with a 0 for padding."""

    def forward(self, x, mask=None):
        """Return (N, L, E).

        mask: long tensor, (batch, seq_len): how many keys each query may see, 0 for padding.
        """
        if mask is None:
            return self.attend(x, x, x, None)
        return self.attend(x, x, x, torch.arange(x.shape[1]) >= mask[:, None, :, None])


class TwoLayouts(_Layer):
    """Right: each of the two shapes is that of one layout of the rows."""

    def forward(self, x, mask=None):
        """Return x's shape, (L, E) or (N, L, E).

        mask: bool, (seq_len, seq_len) or (batch, seq_len, seq_len), as x is; True keeps.
        """
        rows = x if x.dim() == 3 else x[None]
        hidden = None
        if mask is not None:
            hidden = ~mask.reshape(rows.shape[0], 1, rows.shape[1], rows.shape[1])
        return self.attend(rows, rows, rows, hidden).reshape(x.shape)


def multiplied_by_booleans(q, k, v, mask=None):
    """Wrong: hides behind the softmax; integers in the place of booleans make float64 in NumPy.

    mask: bool (L, S), True where the key may be attended.
    """
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = odds / odds.sum(axis=-1, keepdims=True)
    return (weights if mask is None else weights * mask) @ v


class AttendsByOneClause(_Layer):
    """Wrong: its True hides."""

    def forward(self, x, mask=None):
        """Return (N, L, E).

        mask: boolean, True means attend.
        """
        return self.attend(x, x, x, mask)


class LooksAtByOneClause(_Layer):
    """Wrong: its True hides."""

    def forward(self, x, mask=None):
        """Return (N, L, E).

        mask: boolean, broadcastable to (..., L, S); True where a query may look at a key.
        """
        return self.attend(x, x, x, mask)
