"""Which weights q, k or v may be projected by in place of their own: another's, or one head's."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core import head_projections
from mha_parity.core.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem

PARTS = ("q", "k", "v")
WEIGHTS = "project q, k and v each by its own weights, head by head"


def weight_variants(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Yield which projection may be made by the weights of another, or of another head."""
    held = {part: (getattr(problem, f"w_{part}"), getattr(problem, f"b_{part}")) for part in PARTS}
    for (part, (weight, bias)), (other, (taken, added)) in permutations(held.items(), 2):
        if weight is None or weight.shape != taken.shape:
            continue
        text = f"{part} is projected by the weights of {other}"
        yield text, problem.replace(**{f"w_{part}": taken, f"b_{part}": added})
        if bias is not None:
            yield f"{text}, with its own bias", problem.replace(**{f"w_{part}": taken})
    heads = problem.num_heads
    if problem.w_q is None or heads < 2 or problem.case.kv_heads == "fewer":
        return
    for parts in (*PARTS, "kv", "qkv"):
        for head, called in ((0, "first"), (heads - 1, "last")):
            changes = {
                f"{kind}_{part}": _of_head(problem, array, head)
                for part in parts
                for kind, array in zip("wb", held[part], strict=True)
                if array is not None
            }
            text = f"all heads of {listed(parts)} are projected by the weights of the {called} head"
            yield text, problem.replace(**changes)


def _of_head(problem: Problem, array: Array, head: int) -> Array:
    """Return a weight or bias whose heads all have the rows of one."""
    rows = array.reshape(problem.num_heads, -1, *array.shape[1:])
    if problem.case.projection in head_projections.PROJECTIONS and array.ndim == 2:
        own = rows[head][:, head * problem.head_dim : (head + 1) * problem.head_dim]
        return np.kron(np.eye(problem.num_heads), own).astype(array.dtype)
    return np.asarray(np.tile(rows[head], (problem.num_heads, *[1] * (array.ndim - 1))))
