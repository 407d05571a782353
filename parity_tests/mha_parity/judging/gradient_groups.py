"""Split a gradient into the parts that no sum joins, and name a place in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.arrays import split_heads
from mha_parity.core.check_result import NO_INDEX, Place
from mha_parity.core.problem import INPUTS, Problem

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

IN_PROJECTIONS = ("in_proj", "q_proj", "k_proj", "v_proj")


def group_rows(problem: Problem, name: str, array: Array) -> Array:
    """Return a gradient with one row for all that arithmetic mixes.

    Per head: the rows of in-projections, the columns of out_proj.weight, bias_k and bias_v; per
    sample and head what is not projected; per sample the inputs of a layer; else the whole.
    """
    heads, rows = problem.num_heads, len(array)
    if name == "out_proj.weight":
        array, rows = array.reshape(rows, heads, -1).swapaxes(0, 1), heads
    elif name.startswith(IN_PROJECTIONS):
        rows = (3 if name.startswith("in_proj") else 1) * heads
    elif name.startswith("bias_"):
        rows = heads
    elif name in INPUTS and problem.case.form == "qkv":
        array = split_heads(array, heads if name == "query" else problem.num_kv_heads)
        rows = array.shape[0] * array.shape[1]
    elif name == "out_proj.bias" or (name == "attn_mask" and array.ndim == 2):
        rows = 1
    return array.reshape(rows, -1)


def gradient_place(problem: Problem, name: str, index: tuple[int, ...]) -> Place:
    """Return the place of one element of a gradient; row and column are those of the array.

    The sample is that of inputs and masks, the head that of whatever belongs to one head.
    """
    width, heads = problem.head_dim, problem.num_heads
    *_, row, column = (0, *index)
    if name == "key_padding_mask":
        return Place(row, NO_INDEX, 0, column)
    if name == "attn_mask":
        sample, head = divmod(index[0], heads) if len(index) == 3 else (NO_INDEX, NO_INDEX)
        return Place(sample, head, row, column)
    if name in INPUTS:
        head_width = problem.v_head_dim if name == "value" else width
        head = column // head_width if problem.case.form == "qkv" else NO_INDEX
        return Place(index[0], head, row, column)
    if name.startswith(IN_PROJECTIONS):
        first = index[0] % (heads * width) // width
        return Place(NO_INDEX, first, *(index if len(index) == 2 else (index[0], 0)))
    head = NO_INDEX if name == "out_proj.bias" else column // width
    return Place(NO_INDEX, head, row, column)


def worst_index(problem: Problem, name: str, group: int, difference: Array) -> tuple[int, ...]:
    """Return the index of the largest number of one group."""
    numbers = group_rows(problem, name, np.arange(difference.size).reshape(difference.shape))[group]
    worst = numbers[group_rows(problem, name, difference)[group].argmax()]
    return tuple(int(i) for i in np.unravel_index(int(worst), difference.shape))
