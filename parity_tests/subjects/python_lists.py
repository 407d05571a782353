"""Attentions in plain Python: matrices are lists of rows."""

from __future__ import annotations

import math


def product(a, b):
    """Return the product of two matrices."""
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


def softmax(row):
    """Return the softmax of a list of numbers; of arrays it makes no sense."""
    if not all(isinstance(each, int | float) for each in row):
        raise TypeError("numbers only")
    top = max(row)
    powers = [math.exp(each - top) for each in row]
    total = sum(powers)
    return [each / total for each in powers]


def head(q, k, v, mask, scale):
    """Return the rows of one head, and its weights."""
    scores = [[scale * each for each in row] for row in product(q, [list(c) for c in zip(*k, strict=True)])]
    if mask is not None:
        scores = [
            [each if keep else -1e9 for each, keep in zip(row, kept, strict=True)]
            for row, kept in zip(scores, mask, strict=True)
        ]
    weights = [softmax(row) for row in scores]
    return product(weights, v), weights


def attention(q, k, v, num_heads, mask=None):
    """Return the output and the weights of each head. Right; 1 of the mask keeps."""
    width = len(q[0]) // num_heads
    parts = [
        head(*([row[i : i + width] for row in rows] for rows in (q, k, v)), mask, width**-0.5)
        for i in range(0, len(q[0]), width)
    ]
    merged = [[x for row in rows for x in row] for rows in zip(*(out for out, _ in parts), strict=True)]
    return merged, [weights for _, weights in parts]


def attention_by_width(q, k, v, num_heads, mask=None):
    """Wrong: the queries are scaled by the whole width."""
    factor = num_heads**-0.5
    return attention([[x * factor for x in row] for row in q], k, v, num_heads, mask)


def attention_in_place(q, k, v, num_heads, mask=None):
    """Wrong: the rows of the queries that were passed are changed."""
    out = attention(q, k, v, num_heads, mask)
    for row in q:
        row[0] += 1.0
    return out
