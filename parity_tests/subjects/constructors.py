"""Layers whose constructors refuse sizes, read configurations within others, or ask for parts."""

from __future__ import annotations

import math

import torch
from torch import nn


class Layer(nn.Module):
    """Multi-head attention of rows (N, L, E)."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def _heads(self, *inputs):
        projected = zip((self.q_proj, self.k_proj, self.v_proj), inputs, strict=True)
        return [p(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p, x in projected]

    def _mixed(self, q, k, v):
        return (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1) @ v

    def forward(self, x):
        """Return (N, L, E)."""
        return self.out_proj(self._mixed(*self._heads(x, x, x)).transpose(1, 2).flatten(2))


class OfMethods(Layer):
    """Calls a method of its configuration for the width of a head."""

    def __init__(self, cfg):
        self.head_dim = cfg.head_dim()
        super().__init__(cfg.d_model, cfg.n_heads)
        for each in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            nn.init.normal_(each.weight, std=cfg.init_std)

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = self._heads(x, x, x)
        weights = (q @ k.transpose(-1, -2) * self.head_dim**-0.5).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))


class DrawnByConfiguration(Layer):
    """Gets the functions that draw its weights of its configuration."""

    def __init__(self, config):
        super().__init__(config.n_embd, config.n_head)
        for each in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            config.kernel_init(each.weight)
            config.bias_init(each.bias)


class OfMethodsUnscaled(OfMethods):
    """Wrong on purpose: the scale is that of heads of width 1."""

    def forward(self, x):
        """Return (N, L, E)."""
        self.head_dim = 1
        return super().forward(x)


class Positions(Layer):
    """Gets what turns queries and keys by their positions."""

    def __init__(self, embed_dim, num_heads, rope):
        super().__init__(embed_dim, num_heads)
        self.rope = rope

    def _mixed(self, q, k, v):
        return super()._mixed(self.rope(q), self.rope(k), v)


class PositionsOfValues(Positions):
    """Wrong on purpose: values are taken for keys."""

    def _mixed(self, q, k, v):
        return super()._mixed(q, v, v)


class PositionsOfBoth(Positions):
    """Gets what turns queries and keys at once."""

    def _mixed(self, q, k, v):
        q, k = self.rope(q, k)
        return Layer._mixed(self, q, k, v)


class Normalised(Layer):
    """Gets the softmax itself."""

    def __init__(self, embed_dim, num_heads, normalize):
        super().__init__(embed_dim, num_heads)
        self.normalize = normalize

    def _mixed(self, q, k, v):
        return self.normalize(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, dim=-1) @ v


class ByMethod(Layer):
    """Takes the name of a method, and calls what it stands for."""

    def __init__(self, embed_dim, num_heads, method):
        super().__init__(embed_dim, num_heads)
        if method != "dot":
            raise ValueError(method)
        self.method = Layer._mixed

    def _mixed(self, q, k, v):
        return self.method(self, q, k, v)


class OfReducedRows(Layer):
    """Makes keys of each block of rows, of all rows where the ratio is 1."""

    def __init__(self, embed_dim, num_heads, sequence_reduction_ratio):
        super().__init__(embed_dim, num_heads)
        self.ratio = sequence_reduction_ratio
        if sequence_reduction_ratio > 1:
            size = sequence_reduction_ratio
            self.reduced = nn.Conv1d(embed_dim, embed_dim, kernel_size=size, stride=size)


class ScaledByWord(Layer):
    """Wrong on purpose: no scale by default, and the right one by a word."""

    def __init__(self, embed_dim, num_heads, scaling=None):
        super().__init__(embed_dim, num_heads)
        self.by_root = scaling == "root"

    def _mixed(self, q, k, v):
        scale = q.shape[-1] ** -0.5 if self.by_root else 1.0
        return (scale * q @ k.transpose(-1, -2)).softmax(-1) @ v


class OnDevice(Layer):
    """Is built on a device that few machines have, unless another is named."""

    def __init__(self, device="cuda", embed_dim=512, num_heads=8):
        super().__init__(embed_dim, num_heads)
        self.divisor = torch.tensor(embed_dim // num_heads, device=device)

    def _mixed(self, q, k, v):
        return (q @ k.transpose(-1, -2) / math.sqrt(self.divisor)).softmax(-1) @ v


class OfKernels(Layer):
    """Takes a kernel by its name, and has none without."""

    def __init__(self, embed_dim, num_heads, kernel=None):
        super().__init__(embed_dim, num_heads)
        assert kernel == "normal"
        self.kernel = kernel


class OfSelfAttention(Layer):
    """Takes keys and values, and is not built for others than its queries."""

    def __init__(self, embed_dim, num_heads, bias=True, self_attention=False, trace=False):
        super().__init__(embed_dim, num_heads)
        assert self_attention, "only self-attention is supported"

    def forward(self, query, key, value):
        """Return (N, L, E), of the queries alone."""
        return super().forward(query)


class OfSelfAttentionUnscaled(OfSelfAttention):
    """Wrong on purpose: no scale."""

    def _mixed(self, q, k, v):
        return (q @ k.transpose(-1, -2)).softmax(-1) @ v


class OfSelfContainment(OfSelfAttention):
    """Wrong on purpose: keys and values are left unread, and its switch is of another thing."""

    def __init__(self, embed_dim, num_heads, self_contained=False):
        assert self_contained, "parts are not supported"
        super().__init__(embed_dim, num_heads, self_attention=True)


class QueriesAlone(Layer):
    """Wrong on purpose: keys and values are left unread, and no switch says so."""

    def forward(self, query, key, value):
        """Return (N, L, E), of the queries alone."""
        return super().forward(query)


class OfEvenWidths(Layer):
    """Its constructor refuses other widths than it is made for."""

    def __init__(self, embed_dim, num_heads):
        if embed_dim % 2:
            raise ValueError(f"embed_dim should be even, and is {embed_dim}")
        super().__init__(embed_dim, num_heads)


class OfOneSize(Layer):
    """Its constructor takes one size alone, which small calls ask and no case does."""

    def __init__(self, embed_dim, num_heads):
        if (embed_dim, num_heads) != (24, 4):
            raise ValueError("embed_dim should be 24")
        super().__init__(embed_dim, num_heads)


class BreaksAtOddWidths(Layer):
    """Wrong on purpose: a mistake of its constructor, which refuses nothing."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.halves = [embed_dim // 2, embed_dim // 2][embed_dim % 2 * 2 :][0]


class OfEvenWidthsUnscaled(OfEvenWidths):
    """Wrong on purpose: no scale."""

    def _mixed(self, q, k, v):
        return (q @ k.transpose(-1, -2)).softmax(-1) @ v


class Nested(Layer):
    """Its sizes stand in a configuration within another."""

    def __init__(self, cfg):
        super().__init__(cfg.vit.hidden_dim, cfg.vit.num_heads)


class OfNumbers(Layer):
    """Reads a number from its configuration that no documentation gives."""

    def __init__(self, cfg):
        super().__init__(cfg.hidden_dim * (2 * cfg.vit), cfg.num_heads)


class Tiled(Layer):
    """Rows are mixed tile by tile."""

    def __init__(self, embed_dim, num_heads, tile_size):
        super().__init__(embed_dim, num_heads)
        self.tile_size = tile_size

    def _mixed(self, q, k, v):
        mixed = super()._mixed
        return torch.cat([mixed(rows, k, v) for rows in q.split(self.tile_size, dim=2)], dim=2)


class Bucketed(Layer):
    """Wrong on purpose: rows see the keys of their own bucket alone."""

    def __init__(self, embed_dim, num_heads, bucket_size):
        super().__init__(embed_dim, num_heads)
        self.bucket_size = bucket_size

    def _mixed(self, q, k, v):
        parts = zip(*(each.split(self.bucket_size, dim=2) for each in (q, k, v)), strict=True)
        return torch.cat([super(Bucketed, self)._mixed(*each) for each in parts], dim=2)


class Windowed(Layer):
    """Rows see the keys of a window."""

    def __init__(self, embed_dim, num_heads, window_size):
        super().__init__(embed_dim, num_heads)
        self.window_size = window_size

    def _mixed(self, q, k, v):
        place = torch.arange(q.shape[2])
        outside = (place[:, None] - place).abs() >= self.window_size
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return scores.masked_fill(outside, -torch.inf).softmax(-1) @ v


class InATuple(Layer):
    """Query, key and value come as one argument."""

    def forward(self, inputs):
        """Return (N, L, E)."""
        query, key, value = inputs
        mixed = self._mixed(*self._heads(query, key, value))
        return self.out_proj(mixed.transpose(1, 2).flatten(2))


class InATupleExchanged(InATuple):
    """Wrong on purpose: keys and values are exchanged."""

    def forward(self, inputs):
        """Return (N, L, E)."""
        query, key, value = inputs
        return super().forward((query, value, key))


class OfOptionalWidths(Layer):
    """Its constructor does not do without the widths that default to None."""

    def __init__(self, num_heads, qk_channels=None, v_channels=None):
        assert qk_channels, "qk_channels"
        assert v_channels, "v_channels"
        super().__init__(v_channels, num_heads)
        self.k_proj = nn.Linear(v_channels, qk_channels)


class OfDtype(Layer):
    """Its constructor wants the dtype of its weights."""

    def __init__(self, embed_dim, num_heads, dtype):
        super().__init__(embed_dim, num_heads)
        self.q_proj = nn.Linear(embed_dim, embed_dim, dtype=dtype)


class KeysAndValuesAsOne(Layer):
    """One projection of keys and values, and lengths (N,) that it cannot do without."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        del self.k_proj, self.v_proj
        self.proj_key_values = nn.Linear(embed_dim, 2 * embed_dim)

    def forward(self, query_sequences, key_value_sequences, key_value_sequence_lengths):
        """Return (N, L, E)."""
        q = self.q_proj(query_sequences)
        rows = (q, *self.proj_key_values(key_value_sequences).chunk(2, dim=-1))
        q, k, v = (each.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for each in rows)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        hidden = torch.arange(k.shape[2]) >= key_value_sequence_lengths[:, None, None, None]
        mixed = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
        return self.out_proj(mixed.transpose(1, 2).flatten(2))


class LikeTorchs(nn.MultiheadAttention):
    """torch's layer with a mask that has to be given."""

    def forward(self, query, key, value, key_padding_mask):
        """Return (L, N, E)."""
        return super().forward(query, key, value, key_padding_mask, need_weights=False)[0]


class LikeTorchsInverted(nn.MultiheadAttention):
    """Wrong on purpose: True of its required mask keeps."""

    def forward(self, query, key, value, key_padding_mask):
        """Return (L, N, E)."""
        return super().forward(query, key, value, ~key_padding_mask, need_weights=False)[0]


class DrawnByDepth(Layer):
    """Weights are drawn narrower the more layers a model has."""

    def __init__(self, embed_dim, num_heads, num_layers):
        super().__init__(embed_dim, num_heads)
        nn.init.normal_(self.out_proj.weight, std=0.02 * (2 * num_layers) ** -0.5)


class OfHiddenAndHeads(Layer):
    """Takes BERT's numbers by their letters: the width H, and A heads."""

    def __init__(self, H, A):
        super().__init__(H, A)


class DrawnByArgument(Layer):
    """Takes what draws the weights of one projection."""

    def __init__(self, embed_dim, num_heads, proj_kernel_init):
        super().__init__(embed_dim, num_heads)
        proj_kernel_init(self.out_proj.weight)
