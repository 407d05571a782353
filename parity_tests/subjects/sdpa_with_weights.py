"""Functions with the names of torch's scaled_dot_product_attention, and weights on request."""

import torch

__all__ = ["means", "own", "unmasked"]


def _attend(query, key, value, attn_mask, is_causal, shown):
    scores = query @ key.mT / query.shape[-1] ** 0.5
    added = scores.new_zeros(scores.shape[-2:])
    if is_causal:
        later = torch.ones_like(added, dtype=torch.bool).triu(1)
        added = added.masked_fill(later, -torch.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        added = torch.where(attn_mask, added, -torch.inf)
    elif attn_mask is not None:
        added = added + attn_mask
    weights = (scores + added).softmax(-1)
    return weights @ value, shown(scores, weights)


def own(query, key, value, attn_mask=None, is_causal=False, need_weights=False):
    """Right: (N, H, L, D); a boolean attn_mask is True where a key takes part."""
    found = _attend(query, key, value, attn_mask, is_causal, lambda _, weights: weights)
    return found if need_weights else found[0]


def unmasked(query, key, value, attn_mask=None, is_causal=False, need_weights=False):
    """Wrong: the weights that it returns are those without masks."""
    found = _attend(query, key, value, attn_mask, is_causal, lambda scores, _: scores.softmax(-1))
    return found if need_weights else found[0]


def means(query, key, value, attn_mask=None, is_causal=False, need_weights=False):
    """Right: the weights that it returns are means over the heads."""
    found = _attend(query, key, value, attn_mask, is_causal, lambda _, weights: weights.mean(-3))
    return found if need_weights else found[0]
