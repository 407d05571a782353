"""Attentions over samples that lie one after the other in one array of rows."""

import math

import torch


def attend(q, k, v, scale, hidden=None):
    """Attention of (rows, H, D) over (keys, H, D)."""
    groups = q.shape[1] // k.shape[1]
    k, v = (each.repeat_interleave(groups, dim=1) for each in (k, v))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = torch.einsum("lhd,shd->hls", q, k) * scale
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.einsum("hls,shd->lhd", torch.softmax(scores, -1), v)


def behind(rows, keys, last):
    """Return what the causal rule hides, counted from the last key or from the first."""
    return torch.ones(rows, keys, dtype=torch.bool).triu(1 + (keys - rows if last else 0))


def spans(starts):
    """Return where each sequence begins and ends."""
    return list(zip(starts.tolist(), starts.tolist()[1:], strict=False))


def varlen(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
    dropout_p=0.0, softmax_scale=None, causal=False,
):  # fmt: skip
    """As flash-attn has it: the causal rule counts from the last key, fewer key heads are shared."""
    found = []
    for (a, b), (c, d) in zip(spans(cu_seqlens_q), spans(cu_seqlens_k), strict=True):
        assert b - a <= max_seqlen_q
        assert d - c <= max_seqlen_k
        hidden = behind(b - a, d - c, last=True) if causal else None
        found.append(attend(q[a:b], k[c:d], v[c:d], softmax_scale, hidden))
    return torch.dropout(torch.cat(found), dropout_p, train=dropout_p > 0)


def from_the_first_key(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False):
    """The causal rule counts from the first key, as torch's."""
    found = []
    for (a, b), (c, d) in zip(spans(cu_seq_q), spans(cu_seq_k), strict=True):
        hidden = behind(b - a, d - c, last=False) if is_causal else None
        found.append(attend(query[a:b], key[c:d], value[c:d], None, hidden))
    return torch.cat(found)


def of_themselves(q, k, v, cu_seqlens, max_seqlen, causal=False):
    """Self-attention: queries and keys begin at the same rows."""
    return varlen(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, causal=causal)


def starts_of_queries(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k):
    """Keys are taken from where the queries begin."""
    found = []
    for (a, b), (c, d) in zip(spans(cu_seqlens_q), spans(cu_seqlens_k), strict=True):
        keys = slice(min(a, len(k) - (d - c)), min(a, len(k) - (d - c)) + d - c)
        found.append(attend(q[a:b], k[keys], v[keys], None))
    return torch.cat(found)


def first_lengths(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k):
    """Every sequence is taken to have as many keys as the first."""
    count = int(cu_seqlens_k[1])
    found = []
    for (a, b), (c, _) in zip(spans(cu_seqlens_q), spans(cu_seqlens_k), strict=True):
        found.append(attend(q[a:b], k[c : c + count], v[c : c + count], None))
    return torch.cat(found)


def one_row_too_many(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal=False
):  # fmt: skip
    """The causal rule lets each row see one key more."""
    found = []
    for (a, b), (c, d) in zip(spans(cu_seqlens_q), spans(cu_seqlens_k), strict=True):
        hidden = torch.ones(b - a, d - c, dtype=torch.bool).triu(2 + d - c - b + a)
        found.append(attend(q[a:b], k[c:d], v[c:d], None, hidden if causal else None))
    return torch.cat(found)


def of_one_sequence_more(q, k, v, cu_seqlens):
    """Wrong: the first row of a sequence belongs to the one before it."""
    rows = torch.arange(len(q))
    sequence = torch.searchsorted(cu_seqlens[1:].to(rows), rows)
    return attend(q, k, v, None, sequence[:, None] != sequence[None])


def of_one_mask(q, k, v, cu_seqlens, causal=False):
    """Right: all samples at once, each within its block of one mask."""
    row = torch.arange(len(q))
    sample = torch.bucketize(row, cu_seqlens[1:].to(row.dtype), right=True)
    hidden = sample[:, None] != sample
    if causal:
        hidden = hidden | (row > row[:, None])
    return attend(q, k, v, q.shape[-1] ** -0.5, hidden)


def qkv_packed(qkv, cu_seqlens, max_seqlen, causal=False):
    """Right: queries, keys and values in one array (rows, 3, H, D)."""
    return of_themselves(*qkv.unbind(dim=1), cu_seqlens, max_seqlen, causal)


def kv_packed(q, kv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal=False):
    """Right: keys and values in one array (rows, 2, H, D)."""
    starts = cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
    return varlen(q, *kv.unbind(dim=1), *starts, causal=causal)


def qkv_packed_one_key_more(qkv, cu_seqlens, causal=False):
    """Wrong: where samples are padded to the longest, one key of zeros is seen by shorter ones."""
    longest = int((cu_seqlens[1:] - cu_seqlens[:-1]).max())
    found = []
    for first, last in spans(cu_seqlens):
        q, k, v = qkv[first:last].unbind(dim=1)
        more = min(longest - (last - first), 1)
        k, v = (torch.cat([each, each.new_zeros(more, *each.shape[1:])]) for each in (k, v))
        hidden = behind(len(q), len(k), last=False) if causal else None
        found.append(attend(q, k, v, None, hidden))
    return torch.cat(found)


def of_offsets(q, k, v, q_offsets, k_offsets):
    """As ragged arrays have it: the offsets of the queries, and those of the keys."""
    parts = zip(spans(q_offsets), spans(k_offsets), strict=True)
    return torch.cat([attend(q[a:b], k[c:d], v[c:d], None) for (a, b), (c, d) in parts])


def windowed(q, k, v, cu_seqlens, causal=False, window=-1):
    """Right: row i of a sequence sees the keys from i - window on, all where it is -1."""
    found = []
    for first, last in spans(cu_seqlens):
        row = torch.arange(last - first)
        hidden = row > row[:, None] if causal else row > len(row)
        if window >= 0:
            hidden = hidden | (row < row[:, None] - window)
        found.append(attend(q[first:last], k[first:last], v[first:last], None, hidden))
    return torch.cat(found)


def windowed_by_length(q, k, v, cu_seqlens, causal=False, window=-1):
    """Wrong: the window of long sequences is one key shorter."""
    long = max(last - first for first, last in spans(cu_seqlens)) > 9
    return windowed(q, k, v, cu_seqlens, causal, window - (window > 1 and long))


def with_empty_ones(q, k, v, cu_seqlens_q, cu_seqlens_k):
    """Right: sequences may be empty, and a query without keys is 0."""
    return varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, len(q), len(k))


def stops_at_empty_ones(q, k, v, cu_seqlens_q, cu_seqlens_k):
    """Wrong: sequences may be empty, and nothing has no maximum."""
    for (a, b), (c, d) in zip(spans(cu_seqlens_q), spans(cu_seqlens_k), strict=True):
        torch.einsum("lhd,shd->hls", q[a:b], k[c:d]).amax(dim=-1)
    return with_empty_ones(q, k, v, cu_seqlens_q, cu_seqlens_k)
