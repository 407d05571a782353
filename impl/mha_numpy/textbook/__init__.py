"""The forms of multi-head attention that textbooks and courses teach, over one core.

Two names, `self_attention` and `multi_head_attention`, are taught in two ways, and one class name,
`MultiHeadAttention`, in two more; so each family is a namespace of its own:

==============  ==================================================================================
`plain`         `attention(Q, K, V, n_heads)`: in twelve lines, nothing checked; to be read first
`projected`     `compute_qkv(X, W_q, W_k, W_v)`, `self_attention(Q, K, V)`,
                `multi_head_attention(Q, K, V, n_heads)`: what comes in is already projected
`packed`        `self_attention(X, Wq, Wk, Wv)`, `multi_head_attention(X, Wq, Wk, Wv, H)`: the
                weights of all heads side by side in one matrix; returns weights as well
`valid_lens`    `MultiHeadAttention(num_hiddens, num_heads, dropout, bias)` with
                `forward(queries, keys, values, valid_lens)`: padding given by lengths
`keep_mask`     `MultiHeadAttention(d_model, num_heads)` and `EfficientMultiHeadAttention` with
                `forward(X, mask)`: 0 = hidden, the polarity opposite to torch's
==============  ==================================================================================

Common to all, and unlike `torch.nn.MultiheadAttention`: weights are applied as X @ W, so W is the
transpose of torch's; the batch comes first or is missing. Common to all but `plain`, which converts
nothing and computes in the dtype that it is given: arrays are real, integers are taken as
float64, several dtypes are promoted as NumPy does it, half precision is computed in float32 and
rounded once, at the end; nothing that is passed in is modified. NaN and infinity go through without
a warning. A query with every key hidden gets NaN, as from `torch.nn.MultiheadAttention` with
need_weights=True.
"""

from __future__ import annotations

from mha_numpy.textbook import keep_mask, lengths, packed, plain, projected, valid_lens

__all__ = ["keep_mask", "lengths", "packed", "plain", "projected", "valid_lens"]
