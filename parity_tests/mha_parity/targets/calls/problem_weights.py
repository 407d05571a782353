"""A problem's weights and biases as a layer holds them that has all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core import head_projections

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

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


def unbiased(biased: Collection[str], parts: Collection[str]) -> str:
    """Return the first of q, v and out that has a weight and no bias; "" if there is none.

    A key's bias adds the same to all scores of a row: without it the weights are the same.
    """
    return next((part for part in ("q", "v", "out") if part in parts and part not in biased), "")


def bias_values(biased: Collection[str], parts: Collection[str]) -> tuple[str, ...]:
    """Return what a target offers on the axis of biases that has these of its parts' biases."""
    if not biased or not parts:
        return ("no",)
    if not unbiased(biased, parts):
        return ("no", "yes")
    if not unbiased(biased, {*parts} - {"out"}):
        return ("no", "in")
    return ("no", "out") if "out" in biased else ("no",)


def has_none(problem: Problem, parts: Iterable[str], *, bias: bool) -> bool:
    """Return whether a problem has no weights, or biases, of any of these parts."""
    kind = "b" if bias else "w"
    return all(getattr(problem, f"{kind}_{part}") is None for part in parts)


def one_head_a_group(array: Array, case: Case) -> Array:
    """Return the rows of one head of each group, of a weight or a bias of keys or values."""
    heads = array.reshape(case.heads_count, case.head_dim, *array.shape[1:])
    kept = heads[:: case.heads_count // case.kv_heads_count]
    return np.asarray(kept.reshape(-1, *array.shape[1:]))


def at_first_heads(array: Array, case: Case) -> Array:
    """Return the gradient of such rows as one of all heads, at the first head of each group."""
    heads = np.zeros((case.heads_count, case.head_dim, *array.shape[1:]), array.dtype)
    share = case.heads_count // case.kv_heads_count
    heads[::share] = array.reshape(case.kv_heads_count, case.head_dim, *array.shape[1:])
    return heads.reshape(-1, *array.shape[1:])


def with_grouped_heads(arrays: Mapping[str, Array], case: Case) -> dict[str, Array]:
    """Return weights or biases by part, those of keys and values with one head of each group.

    Where each head projects its own channels, they are the blocks that a layer then holds.
    """
    if case.projection in head_projections.PROJECTIONS:
        return {
            part: array if part == "out" else head_projections.held_blocks(case, array)
            for part, array in arrays.items()
        }
    if case.kv_heads == "equal":
        return dict(arrays)
    return {
        part: one_head_a_group(array, case) if part in KEY_PARTS else array
        for part, array in arrays.items()
    }
