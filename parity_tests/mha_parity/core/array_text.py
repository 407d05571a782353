"""Arrays as text: the numbers of a small one, the range of a large one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem

ARRAYS = (
    "query", "key", "value", "w_q", "w_k", "w_v", "b_q", "b_k", "b_v", "bias_k", "bias_v",
    "w_out", "b_out", "key_padding_mask", "attn_mask",
)  # fmt: skip
FEW = 16  # the most numbers that are printed; more are summed up


def given_arrays(problem: Problem) -> Iterator[tuple[str, Array, str]]:
    """Yield each array of a problem, its name, and the name under which it was given before."""
    seen: dict[int, str] = {}
    for name in ARRAYS:
        array = getattr(problem, name)
        if array is not None:
            first = seen.setdefault(id(array), name)
            yield name, array, "" if first == name else first


def dtype_and_shape(array: Array) -> str:
    """Return say ``float64(2,3)``."""
    return f"{array.dtype}{array.shape}".replace(" ", "")


def summed_up(array: Array, few: int = FEW) -> str:
    """Return up to ``few`` numbers row by row; of a larger array the range, and what it hides."""
    if 0 < array.size <= few and array.dtype != np.bool_:
        rows = array.reshape(-1, array.shape[-1]).astype(np.float64)
        return "\n".join("  ".join(f"{value:.5g}" for value in row) for row in rows)
    if array.dtype == np.bool_:
        return f"{int(array.sum())} of {array.size} hidden"
    values = array.astype(np.float64)
    finite = values[np.isfinite(values)]
    hidden = int((values == -np.inf).sum())
    also = f", {hidden} of {array.size} hidden" if hidden else ""
    if not finite.size:
        return f"no finite number{also}"
    return f"from {finite.min():.4g} to {finite.max():.4g}{also}"
