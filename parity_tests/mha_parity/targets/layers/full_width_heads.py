"""Heads that are each as wide as the input: torch's narrower heads in them, all the rest 0.

Such a layer of H heads and inputs E' wide has H E' rows of queries and divides their products by
the root of E'. Torch's layer of width E = H D is one of them: inputs with zeros up to E', every
head's D rows among E', and queries times root(E' / D). With E' = 4^n D that factor is a power of
two, so that nothing is rounded.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.targets.calls import problem_weights

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem


def padded_sizes(problem: Problem) -> dict[str, int]:
    """Return the sizes of heads, of the width of one, and of the input."""
    width = input_width(problem)
    return {"h": problem.num_heads, "d": width, "e": width}


def input_width(problem: Problem) -> int:
    """Return the width of the input: the head's, times 4 until all heads have room."""
    width = problem.head_dim
    while 0 < width < problem.query.shape[-1]:
        width *= 4
    return width


def padded(problem: Problem, rows: Array) -> Array:
    """Return inputs (..., E) with zeros up to the layer's width."""
    lacking = input_width(problem) - rows.shape[-1]
    return np.pad(rows, [*[(0, 0)] * (rows.ndim - 1), (0, lacking)])


def narrowed(problem: Problem, output: Array) -> Array:
    """Return an output (N, L, E) without those zeros; without output projection, head by head."""
    width, heads, dim = input_width(problem), problem.num_heads, problem.head_dim
    if output.ndim != 3 or output.shape[-1] not in {width, heads * width}:
        return output
    if output.shape[-1] == width:
        return output[..., : problem.query.shape[-1]]
    # A head has its own columns: one in another's place is 0 there.
    starts = [head * (width + dim) for head in range(heads)]
    return np.concatenate([output[..., start : start + dim] for start in starts], axis=-1)


def spread_arrays(problem: Problem, *, bias: bool) -> dict[str, Array]:
    """Return weights or biases by part, each head's rows where torch's layer has them."""
    width, heads, dim = input_width(problem), problem.num_heads, problem.head_dim
    factor = math.isqrt(width // dim) if dim else 1
    found = {}
    for part, array in problem_weights.arrays_of(problem, bias=bias).items():
        if part == "out":
            rows = np.pad(array, [(0, width - size) for size in array.shape])
            found[part] = rows if bias else _head_by_head(rows, heads, dim)
            continue
        rows = np.zeros((heads, width, *[width] * (array.ndim - 1)), array.dtype)
        for head in range(heads):
            own = slice(head * dim, (head + 1) * dim)
            place = (head, own) if bias else (head, own, slice(array.shape[1]))
            rows[place] = array[own]
        flat = rows.reshape(heads * width, *rows.shape[2:])
        found[part] = flat * array.dtype.type(factor) if part == "q" else flat
    return found


def _head_by_head(weight: Array, heads: int, dim: int) -> Array:
    """Return an output projection that takes from each head its own columns alone."""
    blocks = np.zeros((weight.shape[0], heads, weight.shape[1]), weight.dtype)
    for head in range(heads):
        own = slice(head * dim, (head + 1) * dim)
        blocks[:, head, own] = weight[:, own]
    return blocks.reshape(weight.shape[0], heads * weight.shape[1])
