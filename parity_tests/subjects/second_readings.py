"""Right attentions that names, documentation or calls tell of in a way that is easily misread."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def documented_in_a_table(q, k, v, attn_mask=None, key_padding_mask=None, is_causal=False):
    """q: (N, H, L, D); k, v: (N, H, S, D).

    attn_mask         bool (True = blocked) or float (added), (L, S) or (N, H, L, S)
    key_padding_mask  bool (True = padding), (N, S)
    """
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if is_causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    for mask in (attn_mask, None if key_padding_mask is None else key_padding_mask[:, None, None]):
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(mask, -torch.inf)
        elif mask is not None:
            scores = scores + mask
    return scores.softmax(-1) @ v


def documented_in_a_table_inverted(q, k, v, attn_mask=None, key_padding_mask=None, is_causal=False):
    """Wrong: a True is seen, and nothing else.

    attn_mask bool (True = blocked), (L, S)
    """
    seen = None if attn_mask is None else ~attn_mask
    return documented_in_a_table(q, k, v, seen, is_causal=is_causal)


def hides_by_boolean_rows(query, key, value, attn_mask=None):
    """query: (N, H, L, D). Booleans alone are a mask, True where seen, as for torch's function."""
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        raise TypeError("a mask of booleans is wanted")
    return F.scaled_dot_product_attention(query, key, value, attn_mask)


class HidesByIndex:
    """NumPy's index by a mask (L, S): a mask of more axes raises, one of integers goes through."""

    def __init__(self, in_proj_weight, out_weight, num_heads):
        self.in_proj_weight, self.out_weight = in_proj_weight, out_weight
        self.num_heads = num_heads

    def __call__(self, query, key, value, attn_mask=None):
        weights = np.split(self.in_proj_weight, 3)
        q, k, v = (x @ w.T for x, w in zip((query, key, value), weights, strict=True))
        heads = [
            self._of_one(*rows, attn_mask)
            for rows in zip(*(np.split(x, self.num_heads, -1) for x in (q, k, v)), strict=True)
        ]
        return np.concatenate(heads, -1) @ self.out_weight.T

    def _of_one(self, q, k, v, attn_mask):
        scores = q @ k.swapaxes(1, 2) / q.dtype.type(q.shape[-1] ** 0.5)
        if attn_mask is not None:
            scores[:, attn_mask] = -np.inf
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True) @ v


class FusedValuesFirst(nn.Module):
    """One Linear of values, queries and keys; the number of query heads is `n_q`."""

    def __init__(self, dim, n_q=6, n_kv=6):
        super().__init__()
        self.n_q, self.n_kv, self.width = n_q, n_kv, dim // n_q
        self.fused = nn.Linear(dim, (n_q + 2 * n_kv) * self.width)
        self.down = nn.Linear(dim, dim)

    def forward(self, x):
        sizes = [n * self.width for n in (self.n_kv, self.n_q, self.n_kv)]
        v, q, k = (
            rows.unflatten(-1, (-1, self.width)).transpose(1, 2)
            for rows in self.fused(x).split(sizes, -1)
        )
        k, v = (rows.repeat_interleave(self.n_q // self.n_kv, 1) for rows in (k, v))
        return self.down(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class PairAndValues(nn.Module):
    """One Linear of queries and keys, one of values."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qk, self.v = nn.Linear(embed_dim, 2 * embed_dim), nn.Linear(embed_dim, embed_dim)
        self.o = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        q, k, v = (
            rows.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for rows in (*self.qk(x).chunk(2, -1), self.v(x))
        )
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class JoinsBiases(nn.Module):
    """Its biases are joined in each call, which raises where it has none."""

    def __init__(self, embed_dim, num_heads, bias=True):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim, bias=bias) for _ in range(4)
        )

    def forward(self, query, key, value):
        biases = torch.cat((self.q_proj.bias, self.k_proj.bias, self.v_proj.bias)).chunk(3)
        q, k, v = (
            F.linear(x, each.weight, bias).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for x, each, bias in zip(
                (query, key, value), (self.q_proj, self.k_proj, self.v_proj), biases, strict=True
            )
        )
        rows = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.out_proj(rows)


class BiasOrMask(JoinsBiases):
    """A bias of the scores takes the place of a mask: both together are refused."""

    def forward(self, query, key, value, attn_mask=None, position_bias=None):
        if position_bias is not None:
            assert attn_mask is None, "the bias stands in place of the mask"
            attn_mask = position_bias.view(-1, *position_bias.shape[-2:])
        q, k, v = (
            each(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2).flatten(0, 1)
            for x, each in zip(
                (query, key, value), (self.q_proj, self.k_proj, self.v_proj), strict=True
            )
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        heads = (scores if attn_mask is None else scores + attn_mask).softmax(-1) @ v
        rows = heads.unflatten(0, (-1, self.num_heads)).transpose(1, 2).flatten(2)
        return self.out_proj(rows)


class ReturnsThree(nn.MultiheadAttention):
    """torch's layer with a third result behind the weights."""

    def forward(self, query, key, value, **options):
        output, weights = super().forward(query, key, value, **options)
        return output, weights, value


class BinaryMask(nn.MultiheadAttention):
    """torch's layer with the mask of keys of its first releases, which took no floats."""

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None):
        """Attend.

        Args:
            key_padding_mask: if given, padding keys are left out. When given a binary mask and a
                value is True, the key is ignored.
        """
        hidden = None if key_padding_mask is None else key_padding_mask.bool()
        return super().forward(
            query, key, value, key_padding_mask=hidden, need_weights=need_weights,
            attn_mask=attn_mask,
        )  # fmt: skip


class ReadsItsNorm(nn.Module):
    """The weights of its norm are read, and the norm is not called."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(embed_dim), PairAndValues(embed_dim, num_heads)

    def forward(self, x):
        rows = F.layer_norm(x, x.shape[-1:], self.norm.weight, self.norm.bias)
        return self.attention(rows)


class PackedBehind(PairAndValues):
    """The Linear called `packed` is that of the output, and `fused` that of q, k and v."""

    def __init__(self, embed_dim, num_heads):
        nn.Module.__init__(self)
        self.num_heads = num_heads
        self.fused, self.packed = nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        q, k, v = (
            rows.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for rows in self.fused(x).chunk(3, -1)
        )
        return self.packed(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class JoinsBiasesByDefault(JoinsBiases):
    """Wrong: as it is built by default, its calls raise."""

    def __init__(self, embed_dim, num_heads, bias=False):
        super().__init__(embed_dim, num_heads, bias=bias)


class BiasBreaksMask(BiasOrMask):
    """Wrong: a mask beside a bias of the scores is read at an index that it has not."""

    def forward(self, query, key, value, attn_mask=None, position_bias=None):
        if attn_mask is not None and position_bias is not None:
            attn_mask = attn_mask[len(attn_mask)]
        both = [each for each in (attn_mask, position_bias) if each is not None]
        return super().forward(query, key, value, both[0] if both else None)


def in_float32_alone(q, k, v):
    """q: (N, H, L, D). Arrays of four bytes are served, which no sentence says."""
    scale = {4: q.shape[-1] ** -0.5}[q.element_size()]
    return (q @ k.mT * scale).softmax(-1) @ v


class OutputsFirst:
    """Bare matrices (out, in), and a mask that no call does without."""

    def __init__(self, d_model, n_heads):
        self.n_heads = n_heads
        self.w_q, self.w_k, self.w_v, self.w_o = np.zeros((4, d_model, d_model))

    def __call__(self, x, mask=None):
        """Return (N, L, E); mask (L, L), which is added."""
        split = (*x.shape[:2], self.n_heads, -1)
        q, k, v = (
            (x @ w.T).reshape(split).swapaxes(1, 2) for w in (self.w_q, self.w_k, self.w_v)
        )
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + mask
        e = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (e / e.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(x.shape)
        return mixed @ self.w_o.T


def scaled_by_callers(q, k, v, sm_scale=1.0):
    """Attend; q (B, H, L, D). As kernels have it, a caller gives the scale."""
    return ((q * sm_scale) @ k.mT).softmax(-1) @ v


def scaled_twice_by_callers(q, k, v, sm_scale=1.0):
    """Wrong: the scale is applied to queries and to keys."""
    return scaled_by_callers(q, k * sm_scale, v, sm_scale)


def scaled_besides(q, k, v, qk_scale=1.0):
    """Right: a further factor of scaled scores, which stays at 1."""
    return scaled_by_callers(q, k, v, qk_scale / q.shape[-1] ** 0.5)
