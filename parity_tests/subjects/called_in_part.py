"""Layers whose calls and constructors leave out what others need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor, nn

from styles import attend, split


@dataclass
class RotaryConfig:
    """Of positions that the layers here are built without."""

    rescaling_factor: float


class States(nn.Module):
    """Right: the states of a decoder attend to those of an encoder. mask: 1 keeps, (N, 1, 1, S)."""

    def __init__(self, embed_count: int, head_count: int, rotary_config: RotaryConfig | None = None):
        super().__init__()
        self.heads = head_count
        self.rotated = rotary_config is not None and rotary_config.rescaling_factor
        self.q, self.k, self.v, self.out = (nn.Linear(embed_count, embed_count) for _ in range(4))

    def forward(self, decoder_state, encoder_state, mask):
        """Return (N, L, E)."""
        q, k, v = self.q(decoder_state), self.k(encoder_state), self.v(encoder_state)
        found = attend(*(split(x, self.heads) for x in (q, k, v)), mask=mask == 0)
        return self.out(found.transpose(1, 2).flatten(2))


class StatesExchanged(States):
    """Wrong: the states of the encoder are the queries of a second call, with S = L."""

    def forward(self, decoder_state, encoder_state, mask):
        """Return (N, L, E)."""
        same = decoder_state.shape == encoder_state.shape
        rows = (encoder_state, decoder_state) if same else (decoder_state, encoder_state)
        return super().forward(*rows, mask)


class MaskOfItself(nn.Module):
    """Right: with further keys it reads `memory_mask`, and else `mask`; both are added."""

    factor = 1.0

    def __init__(self, dim, heads, init_scale: Optional[float] = None):  # noqa: UP045 (as in the wild)
        super().__init__()
        self.heads = heads
        self.qkv = nn.ModuleList(nn.Linear(dim, dim) for _ in range(3))
        for each in self.qkv:
            nn.init.normal_(each.weight, std=1 / init_scale)

    def forward(self, x: Tensor, mask=None, memory=None, memory_mask=None):
        """Return (N, L, E); masks are (N, 1, 1, S)."""
        added = mask if memory is None else memory_mask
        memory = x if memory is None else memory
        q, k, v = (split(p(y), self.heads) for p, y in zip(self.qkv, (x, memory, memory), strict=True))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores if added is None else scores + self.factor * added
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class MaskOfItselfHalved(MaskOfItself):
    """Wrong: half of a mask is added."""

    factor = 0.5


class LeaksTheFuture(nn.Module):
    """Wrong: causal by a logarithm of 1e-9, which large scores pass. Causal by itself."""

    least = 1e-9

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (split(each, self.heads) for each in self.qkv(x).chunk(3, -1))
        seen = torch.ones(x.shape[1], x.shape[1], dtype=x.dtype).tril()
        scores = q @ k.mT / q.shape[-1] ** 0.5 + (seen + self.least).log()
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class HidesTheFuture(LeaksTheFuture):
    """Right: the logarithm of 0. Causal by itself."""

    least = 0.0


class OtherCausalMask(HidesTheFuture):
    """Right: causal by itself, unless a mask is given for that. custom_causal_mask: 1 keeps, (L, S)."""

    behind = 0

    def forward(self, x, custom_causal_mask=None):
        """Return (N, L, E)."""
        seen = torch.ones(x.shape[1], x.shape[1]).tril(self.behind)
        return self.attended(x, seen if custom_causal_mask is None else custom_causal_mask)

    def attended(self, x, seen):
        """Return (N, L, E) of the keys that are seen."""
        q, k, v = (split(each, self.heads) for each in self.qkv(x).chunk(3, -1))
        return self.out(attend(q, k, v, mask=seen == 0).transpose(1, 2).flatten(2))


class OtherCausalMaskLate(OtherCausalMask):
    """Wrong: its own rule shows one key too many, and that of its mask is right."""

    behind = 1


class OtherCausalMaskWidened(OtherCausalMask):
    """Wrong: a mask hides the diagonal of later rows too, and its own rule is right."""

    def attended(self, x, seen):
        """Return (N, L, E) of the keys that are seen."""
        own = torch.ones(x.shape[1], x.shape[1]).tril()
        return super().attended(x, seen if (seen == own).all() else seen * (1 - torch.eye(len(seen))))


class PaddingLiftsTheRule(OtherCausalMask):
    """Wrong: causal by itself, and not where keys are padded. mask: 1 keeps, (N, S)."""

    def forward(self, x, mask=None):
        """Return (N, L, E)."""
        return super().forward(x, None if mask is None else mask[:, None, None, :])


class InferenceBySwitch(HidesTheFuture):
    """Right: drops out unless the call says that it is one of inference. Causal by itself."""

    def __init__(self, dim, heads, dropout=0.1):
        super().__init__(dim, heads)
        self.p = dropout

    def forward(self, x, inference: bool = False):
        """Return (N, L, E)."""
        return nn.functional.dropout(super().forward(x), self.p, training=not inference)


class BooleansOnOnePath(nn.Module):
    """Right: where weights are returned, the mask has to be of booleans; SDPA adds one of floats.

    token_mask: (N, S) bool, True = the token takes part.
    """

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, token_mask=None, return_attention=False):
        """Return (N, L, E), or that and weights."""
        q, k, v = (split(each, self.heads) for each in self.qkv(x).chunk(3, -1))
        mask = None if token_mask is None else token_mask[:, None, None]
        if not return_attention:
            found = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            return self.out(found.transpose(1, 2).flatten(2))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        weights = (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2)), weights


class HeadsOfTheCall(nn.Module):
    """Right: without weights, and its call gets the number of heads and their width."""

    def forward(self, query, key, value, num_head, dim_head, mask=None):
        """Return (N, L, E). mask: True hides, (N, 1, 1, S)."""
        heads = (
            x.view(*x.shape[:2], num_head, dim_head).transpose(1, 2) for x in (query, key, value)
        )
        return attend(*heads, mask=mask).transpose(1, 2).flatten(2)


class HeadsOfTheCallExchanged(HeadsOfTheCall):
    """Wrong: splits the rows by the width of a head, and not by their number."""

    def forward(self, query, key, value, num_head, dim_head, mask=None):
        """Return (N, L, E)."""
        return super().forward(query, key, value, dim_head, num_head, mask)


class HeadsOfTheCallMixed(HeadsOfTheCall):
    """Wrong: a head is every H-th channel, which one head alone does not show."""

    def forward(self, query, key, value, num_head, dim_head, mask=None):
        """Return (N, L, E)."""
        heads = (x.unflatten(-1, (dim_head, num_head)).mT.flatten(2) for x in (query, key, value))
        return super().forward(*heads, num_head, dim_head, mask)


class HeadsOfOneInput(nn.Module):
    """Right: self-attention of projected rows, with the number of heads and their width."""

    def forward(self, x, n_heads, d_head):
        """Return (N, L, E)."""
        rows = x.unflatten(-1, (n_heads, d_head)).transpose(1, 2)
        return attend(rows, rows, rows).transpose(1, 2).flatten(2)


class HeadMaskWanted(nn.Module):
    """Right: `head_mask` is required, and is no number of heads."""

    def __init__(self, embed_dim):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def forward(self, x, head_mask):
        """Return (N, L, E) of one head."""
        found = attend(*(split(f(x), 1) for f in (self.q, self.k, self.v)))
        found = found if head_mask is None else found * head_mask
        return self.out(found.transpose(1, 2).flatten(2))
