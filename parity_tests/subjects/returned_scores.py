"""Layers that return their scores beside the output, and cut a mask by the length of the queries."""

import torch
from torch import nn


class Logits(nn.Module):
    """Right: what is returned beside the output is named as scores."""

    def __init__(self, n_state, n_head):
        super().__init__()
        self.n_head = n_head
        self.query, self.value, self.out = (nn.Linear(n_state, n_state) for _ in range(3))
        self.key = nn.Linear(n_state, n_state, bias=False)

    def forward(self, x, xa=None, mask=None):
        """Attend from x (N, L, E) to xa (N, S, E), or to itself."""
        rows = x if xa is None else xa
        output, qk = self.attend(self.query(x), self.key(rows), self.value(rows), mask)
        return self.out(output), qk.detach()

    def attend(self, q, k, v, mask):
        """Return rows (N, L, E) and scores (N, H, L, S); a mask is added."""
        length = q.shape[1]
        q, k, v = (rows.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for rows in (q, k, v))
        scale = q.shape[-1] ** -0.25
        scores = (q * scale) @ (k * scale).transpose(-2, -1)
        if mask is not None:
            scores = scores + mask[:length, :length]
        rows = scores.softmax(dim=-1) @ v
        return rows.transpose(1, 2).flatten(2), scores


class LogitsForWeights(Logits):
    """Wrong: what is returned is named as weights, and is the scores before the softmax."""

    def forward(self, x, xa=None, mask=None):
        """Return the output and the attention weights."""
        output, attn = super().forward(x, xa, mask)
        return output, attn


def keeps_padding(
    query, key, value, num_heads, in_proj_weight, out_proj_weight, key_padding_mask=None
):
    """Wrong: True of a mask of torch's name keeps, as F.scaled_dot_product_attention has it."""
    parts = zip((query, key, value), in_proj_weight.chunk(3), strict=True)
    q, k, v = (
        (rows @ weight.T).unflatten(-1, (num_heads, -1)).transpose(1, 2) for rows, weight in parts
    )
    kept = None if key_padding_mask is None else key_padding_mask[:, None, None]
    rows = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=kept)
    return rows.transpose(1, 2).flatten(2) @ out_proj_weight.T


def with_normaliser(query, key, value):
    """Return rows (N, H, L, D) and the logarithm of each row's sum (N, H, L), which may be wrong."""
    scores = query @ key.mT / query.shape[-1] ** 0.5
    return scores.softmax(dim=-1) @ value, 2 * scores.logsumexp(dim=-1)


def with_normaliser_as_column(query, key, value):
    """Return the same with an axis of one element behind (N, H, L, 1)."""
    rows, normaliser = with_normaliser(query, key, value)
    return rows, normaliser[..., None]


def with_normaliser_by_rows(query, key, value):
    """Return the same with the heads behind the rows (N, L, H)."""
    rows, normaliser = with_normaliser(query, key, value)
    return rows, normaliser.mT


def with_module_masks(query, key, value, attn_mask=None, key_padding_mask=None, need_weights=False):
    """Right: heads are an axis, and both masks hide where they are True, as the module's."""
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    if attn_mask is not None:
        scores = scores.masked_fill(attn_mask, -torch.inf)
    if key_padding_mask is not None:
        scores = scores.masked_fill(key_padding_mask[:, None, None], -torch.inf)
    weights = scores.softmax(-1)
    return (weights @ value, weights) if need_weights else weights @ value


def keeps_beside_padding(query, key, value, attn_mask=None, key_padding_mask=None):
    """Wrong: one mask keeps where it is True, the other hides there."""
    kept = None if attn_mask is None else ~attn_mask
    return with_module_masks(query, key, value, kept, key_padding_mask)


def with_log_weights(q, k, v):
    """Right: returns the logarithms of its weights beside the output."""
    logw = torch.log_softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1)
    return logw.exp() @ v, logw
