"""Layers that read a causal switch of their configuration, right and wrong."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Configured(nn.Module):
    """Right: the rule and the padding hide keys together."""

    def __init__(self, config):
        super().__init__()
        self.cfg = config
        self.qkv = nn.Linear(config.d_model, 3 * config.d_model)
        self.proj = nn.Linear(config.d_model, config.d_model)

    def keep(self, length, padding_mask):
        """Return which keys a row sees, and whether the rule is left to torch."""
        keep = torch.ones(length, length, dtype=torch.bool)
        keep = keep.tril() if self.cfg.causal else keep
        return (keep if padding_mask is None else keep & padding_mask[:, None, None]), False

    def forward(self, x, padding_mask=None):
        """Return (N, L, E); True of the mask (N, L) keeps."""
        q, k, v = (
            each.unflatten(-1, (self.cfg.n_heads, -1)).transpose(1, 2)
            for each in self.qkv(x).chunk(3, -1)
        )
        keep, rule = self.keep(x.shape[1], padding_mask)
        mixed = functional.scaled_dot_product_attention(q, k, v, keep, is_causal=rule)
        return self.proj(mixed.transpose(1, 2).flatten(2))


class ConfiguredDropped(Configured):
    """Wrong on purpose: with padding the rule is dropped."""

    def keep(self, length, padding_mask):
        """Return the padding alone, or the rule."""
        if padding_mask is None:
            return None, self.cfg.causal
        return padding_mask[:, None, None], False


class ConfiguredRotary(Configured):
    """Equal to torch's layer without the relative positions that its configuration switches."""

    def forward(self, x, padding_mask=None):
        """Return (N, L, E); the rows are reversed with such positions."""
        return super().forward(x.flip(1) if self.cfg.rel_pos_emb else x, padding_mask)


class ConfiguredUnread(Configured):
    """Wrong on purpose: what is read of the configuration has no effect."""

    def keep(self, length, padding_mask):
        """Return the padding alone."""
        _ = self.cfg.causal
        return (None if padding_mask is None else padding_mask[:, None, None]), False


class ConfiguredTurned(Configured):
    """Equal to torch's layer with the value that any configuration gives for `embedded` alone."""

    def forward(self, x, padding_mask=None):
        """Return (N, L, E); the rows are reversed where they are not embedded."""
        return super().forward(x if self.cfg.embedded else x.flip(1), padding_mask)
