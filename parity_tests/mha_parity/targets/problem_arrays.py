"""A problem's weights and biases as a layer holds them that has all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem

PARTS = ("q", "k", "v", "out")
KEY_PARTS = frozenset({"k", "v"})


def array_or_neutral(problem: Problem, name: str) -> Array:
    """Return ``w_q`` to ``b_out`` of a problem; where it has none the identity, or zeros."""
    held: Array | None = getattr(problem, name)
    if held is not None:
        return held
    width, dtype = problem.query.shape[-1], problem.dtype
    return np.eye(width, dtype=dtype) if name.startswith("w") else np.zeros(width, dtype)


def arrays_of(problem: Problem, *, bias: bool) -> dict[str, Array]:
    """Return weights (out, in) or biases (out,) by part; identity and zeros where it has none."""
    kind = "b" if bias else "w"
    return {part: array_or_neutral(problem, f"{kind}_{part}") for part in PARTS}


def one_head_a_group(array: Array, case: Case) -> Array:
    """Return the rows of one head of each group, of a weight or a bias of keys or values."""
    heads = array.reshape(case.heads_count, case.head_dim, *array.shape[1:])
    kept = heads[:: case.heads_count // case.kv_heads_count]
    return np.asarray(kept.reshape(-1, *array.shape[1:]))


def with_grouped_heads(arrays: Mapping[str, Array], case: Case) -> dict[str, Array]:
    """Return weights or biases by part, those of keys and values with one head of each group."""
    if case.kv_heads == "equal":
        return dict(arrays)
    return {
        part: one_head_a_group(array, case) if part in KEY_PARTS else array
        for part, array in arrays.items()
    }


def at_first_heads(array: Array, case: Case) -> Array:
    """Return the rows of all heads: those given at the first head of each group, and zeros.

    A gradient of what a group shares is so at the place where the reference sums that group's.
    """
    per_group = case.heads_count // case.kv_heads_count
    heads = array.reshape(case.kv_heads_count, case.head_dim, *array.shape[1:])
    rows = np.zeros((case.kv_heads_count, per_group, *heads.shape[1:]), array.dtype)
    rows[:, 0] = heads
    return rows.reshape(-1, *array.shape[1:])
