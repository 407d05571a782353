"""Attentions with one step along the wrong axis, order or rows, and the right ones beside them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn


def _split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def sums_of_other_rows(x, w_q, w_k, w_v, w_o, n_heads):
    """Wrong: each element is divided by the sum of the row that its key is."""
    q, k, v = (_split(x @ w, n_heads) for w in (w_q, w_k, w_v))
    powers = (q @ k.mT / q.shape[-1] ** 0.5).exp()
    return (powers / powers.sum(-1)[..., None, :] @ v).transpose(1, 2).flatten(2) @ w_o


def sums_of_own_rows(x, w_q, w_k, w_v, w_o, n_heads):
    """Right: by the sum of its own row."""
    q, k, v = (_split(x @ w, n_heads) for w in (w_q, w_k, w_v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return (powers / powers.sum(-1, keepdim=True) @ v).transpose(1, 2).flatten(2) @ w_o


def _hidden_from(scores):
    return torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)


class RecomputedUnmasked(torch.autograd.Function):
    """Causal attention; the backward pass computes all weights again, those of the future too."""

    @staticmethod
    def forward(ctx, q, k, v):
        """Return softmax(q k^T / sqrt(D)) v under the causal rule."""
        scores = q @ k.mT * q.shape[-1] ** -0.5
        scores = scores.masked_fill(_hidden_from(scores), -torch.inf)
        sums = scores.logsumexp(-1, keepdim=True)
        output = (scores - sums).exp() @ v
        ctx.save_for_backward(q, k, v, output, sums)
        return output

    @staticmethod
    def weights(scores, sums):
        """Return the weights of all keys."""
        return (scores - sums).exp()

    @classmethod
    def backward(cls, ctx, cotangent):
        """Return the three gradients."""
        q, k, v, output, sums = ctx.saved_tensors
        scale = q.shape[-1] ** -0.5
        p = cls.weights(q @ k.mT * scale, sums)
        level = (cotangent * output).sum(-1, keepdim=True)
        d_scores = p * (cotangent @ v.mT - level) * scale
        return d_scores @ k, d_scores.mT @ q, p.mT @ cotangent


class MaskedAfterExp(RecomputedUnmasked):
    """Multiplies by 0 what the exponential of a hidden score may have made infinite."""

    @staticmethod
    def weights(scores, sums):
        """Return the weights of visible keys, and NaN of infinite ones."""
        return (scores - sums).exp() * ~_hidden_from(scores)


class MaskedBeforeExp(RecomputedUnmasked):
    """Right: hidden scores are -inf before the exponential."""

    @staticmethod
    def weights(scores, sums):
        """Return the weights of visible keys."""
        return (scores.masked_fill(_hidden_from(scores), -torch.inf) - sums).exp()


class SumsToBaseTwo(MaskedBeforeExp):
    """Takes the logarithms that were kept for logarithms to base 2."""

    @staticmethod
    def weights(scores, sums):
        """Return weights that do not sum to 1."""
        return MaskedBeforeExp.weights(scores, sums / math.log(2))


class CausalLayer(nn.Module):
    """Causal attention with that function."""

    function = RecomputedUnmasked

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (_split(p(x), self.num_heads) for p in (self.q_proj, self.k_proj, self.v_proj))
        return self.out_proj(self.function.apply(q, k, v).transpose(1, 2).flatten(2))


class CausalOverflowing(CausalLayer):
    """Wrong: its gradients are NaN at large hidden scores."""

    function = MaskedAfterExp


class CausalToBaseTwo(CausalLayer):
    """Wrong on purpose: its backward pass computes the weights with other logarithms."""

    function = SumsToBaseTwo


class CausalRight(CausalLayer):
    """Right, with a backward pass of its own."""

    function = MaskedBeforeExp


class HiddenBehindSoftmax(CausalLayer):
    """Wrong: the weights of later keys are set to 0, and rows not divided by their sum again."""

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (_split(p(x), self.num_heads) for p in (self.q_proj, self.k_proj, self.v_proj))
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1).tril()
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))


class FarBehindSoftmax(CausalLayer):
    """Wrong: the weights of keys three places away and more are set to 0."""

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (_split(p(x), self.num_heads) for p in (self.q_proj, self.k_proj, self.v_proj))
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1).tril(2).triu(-2)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))


class PositionsInInt8(CausalLayer):
    """Wrong: from 128 on, positions of int8 are negative."""

    def forward(self, x):
        """Return (N, L, E)."""
        q, k, v = (_split(p(x), self.num_heads) for p in (self.q_proj, self.k_proj, self.v_proj))
        place = torch.arange(x.shape[1]).to(torch.int8)
        scores = (q @ k.mT / q.shape[-1] ** 0.5).where(place[:, None] >= place, -torch.inf)
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def zeros_of_hidden_tiles(q, k, v, key_padding_mask=None, tile=4):
    """Wrong: rows whose first tile of keys is hidden come to 0, since their sum is NaN."""
    top = torch.full_like(q[..., :1], -torch.inf)
    total, output = torch.zeros_like(top), torch.zeros_like(q[..., :1] * v[..., :1, :])
    for start in range(0, k.shape[2], tile):
        scores = q @ k[:, :, start : start + tile].mT * q.shape[-1] ** -0.5
        if key_padding_mask is not None:
            hidden = key_padding_mask[:, None, None, start : start + tile]
            scores = scores.masked_fill(hidden, -torch.inf)
        higher = torch.maximum(top, scores.amax(-1, keepdim=True))
        powers, factor = (scores - higher).exp(), (top - higher).exp()
        total = total * factor + powers.sum(-1, keepdim=True)
        output = output * factor + powers @ v[:, :, start : start + tile]
        top = higher
    return torch.where(total > 0, output / total, 0)


class MeanOfScores(CausalLayer):
    """Wrong: the returned weights are the softmax of the mean scores."""

    def forward(self, query, key, value):
        """Return output and weights."""
        q, k, v = (
            _split(p(x), self.num_heads)
            for p, x in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        output = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return self.out_proj(output), scores.mean(1).softmax(-1)


def rotated_biases(x, memory, in_proj_weight, in_proj_bias, out_weight, out_bias, num_heads):
    """Wrong: the stacked biases begin with that of k."""
    e = x.shape[-1]
    w_q, w_k, w_v = in_proj_weight.chunk(3)
    b_k, b_v, b_q = in_proj_bias.chunk(3)
    q = _split(F.linear(x, w_q, b_q), num_heads)
    k, v = (_split(F.linear(memory, *pair), num_heads) for pair in ((w_k, b_k), (w_v, b_v)))
    weights = (q @ k.mT / (e // num_heads) ** 0.5).softmax(-1)
    return F.linear((weights @ v).transpose(1, 2).flatten(2), out_weight, out_bias)


def put_back_by_the_order(q, k, v, lengths):
    """Wrong: samples are sorted by length, and put back by that order; padded rows are 0."""
    order = torch.argsort(lengths, descending=True)
    return padded_rows_of_zeros(q[order], k[order], v[order], lengths[order])[order]


def padded_rows_of_zeros(q, k, v, lengths):
    """Rows of padded queries are 0; all others are right."""
    real = torch.arange(q.shape[2]) < lengths[:, None]
    output = F.scaled_dot_product_attention(q, k, v, attn_mask=real[:, None, None, :])
    return output * real[:, None, :, None]


class HiddenWhereBoth(nn.Module):
    """Attention with two optional masks, both True where attention is allowed.

    attn_mask: (L, S). key_mask: (N, S).
    """

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def hidden(self, attn_mask, key_mask):
        """Wrong: hide where both masks hide."""
        masks = [] if attn_mask is None else [~attn_mask[None, None]]
        masks += [] if key_mask is None else [~key_mask[:, None, None]]
        return masks[0] & masks[-1] if masks else None

    def forward(self, query, key, value, attn_mask=None, key_mask=None):
        """Return (N, L, E)."""
        q, k, v = (
            _split(p(x), self.num_heads)
            for p, x in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        hidden = self.hidden(attn_mask, key_mask)
        if hidden is not None:
            scores = scores.masked_fill(hidden, -torch.inf)
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class HiddenWhereEither(HiddenWhereBoth):
    """Attention with two optional masks, both True where attention is allowed."""

    def hidden(self, attn_mask, key_mask):
        """Hide where either mask hides."""
        masks = [] if attn_mask is None else [~attn_mask[None, None]]
        masks += [] if key_mask is None else [~key_mask[:, None, None]]
        return masks[0] | masks[-1] if masks else None


class GroupedSum(torch.autograd.Function):
    """Attention of query heads over repeated key heads, with the sum of a group backwards."""

    @staticmethod
    def forward(ctx, q, k, v):
        """Return (N, H, L, D) of q (N, H, L, D) and k, v (N, G, S, D)."""
        ctx.save_for_backward(q, k, v)
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        return (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v

    @staticmethod
    def summed(heads):
        """Return the sum over the query heads of each group, (N, G, H / G, S, D)."""
        return heads.sum(2)

    @classmethod
    def backward(cls, ctx, cotangent):
        """Return the three gradients."""
        q, k, v = ctx.saved_tensors
        groups, scale = k.shape[1], q.shape[-1] ** -0.5
        k, v = (x.repeat_interleave(q.shape[1] // groups, 1) for x in (k, v))
        p = (q @ k.mT * scale).softmax(-1)
        d_p = cotangent @ v.mT
        d_scores = p * (d_p - (p * d_p).sum(-1, keepdim=True)) * scale
        d_k, d_v = (
            cls.summed(each.unflatten(1, (groups, -1)))
            for each in (d_scores.mT @ q, p.mT @ cotangent)
        )
        return d_scores @ k, d_k, d_v


class LastOfGroup(GroupedSum):
    """Wrong on purpose: the last query head's gradient is assigned, where it should be added."""

    @staticmethod
    def summed(heads):
        """Return the last of each group."""
        return heads[:, :, -1]


class SummedOverGroups(nn.Module):
    """Right: a layer with that function."""

    function = GroupedSum

    def __init__(self, embed_dim, num_heads, num_kv_heads):
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        width = embed_dim // num_heads * num_kv_heads
        self.q_proj, self.o_proj = (nn.Linear(embed_dim, embed_dim) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(embed_dim, width) for _ in range(2))

    def forward(self, x):
        """Return (N, L, E)."""
        q = self.q_proj(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        k, v = (
            each(x).unflatten(-1, (self.num_kv_heads, -1)).transpose(1, 2)
            for each in (self.k_proj, self.v_proj)
        )
        return self.o_proj(self.function.apply(q, k, v).transpose(1, 2).flatten(2))


class AssignedOfGroup(SummedOverGroups):
    """Wrong on purpose: with that one."""

    function = LastOfGroup


class UnmaskedForValues(torch.autograd.Function):
    """Attention under a mask; of the weights computed again dS alone is hidden, and dV is not."""

    @staticmethod
    def forward(ctx, q, k, v, hidden):
        """Return softmax(q k^T / sqrt(D)) v of the keys that are not hidden."""
        scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(hidden, -torch.inf)
        sums = scores.logsumexp(-1, keepdim=True)
        output = (scores - sums).exp() @ v
        ctx.save_for_backward(q, k, v, output, sums, hidden)
        return output

    @staticmethod
    def backward(ctx, cotangent):
        """Return the three gradients, none of the mask."""
        q, k, v, output, sums, hidden = ctx.saved_tensors
        scale = q.shape[-1] ** -0.5
        p = (q @ k.mT * scale - sums).exp()
        level = (cotangent * output).sum(-1, keepdim=True)
        d_scores = (p * (cotangent @ v.mT - level) * scale).masked_fill(hidden, 0)
        return d_scores @ k, d_scores.mT @ q, p.mT @ cotangent, None


def unmasked_for_values(q, k, v, hidden=None):
    """q: (N, H, L, D); k, v: (N, H, S, D); hidden: bool, True = left out, (L, S)."""
    if hidden is None:
        hidden = torch.zeros(q.shape[-2], k.shape[-2], dtype=torch.bool)
    return UnmaskedForValues.apply(q, k, v, hidden.expand(*q.shape[:-1], k.shape[-2]))


def scaled_again_by_the_mask(q, k, v, bias=None):
    """Wrong: queries that are scaled are scaled once more where a bias is added."""
    q = q * q.shape[-1] ** -0.5
    scores = q @ k.mT
    if bias is not None:
        scores = scores * q.shape[-1] ** -0.5 + bias
    return scores.softmax(-1) @ v


def scores_replaced_by_the_mask(q, k, v, bias=None):
    """Wrong: where a bias is given and not 0, it is taken in the place of the score."""
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if bias is not None:
        scores = torch.where(bias == 0, scores, bias)
    return scores.softmax(-1) @ v


def masked_unless_causal(q, k, v, mask=None, causal=False):
    """Wrong: beside the causal rule, which counts from the last key, the mask is not read."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    queries, keys = scores.shape[-2:]
    if causal:
        visible = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        scores = scores.masked_fill(~visible, -math.inf)
    elif mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(-1) @ v
