"""Values for required parameters of a call that are neither inputs nor weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

# What a required parameter gets that is neither input nor weight: None, or a mask that hides
# nothing if its True hides, if its True keeps, or if it is added; by its axes. Last, the numbers
# of keys, ones for a layer that takes 1 - mask, one number for all rows (as documents have that
# are packed), and objects that hold a mask under any attribute.
FILLERS = (
    "none", "False LS", "True LS", "0 LS", "False NS", "True NS", "False NLS", "True NLS",
    "False N11S", "True N11S", "0 N11S", "False NHLS", "True NHLS", "0 NHLS", "S N",
    "1 NLS", "same L",
    "object 0 1S", "object True 1S", "object False 1S",
)  # fmt: skip

PLAINEST = ("False LS", "0 LS")
NUMBERS = frozenset({"S", "same"})


def filler_text(filler: str) -> str:
    """Say what a required parameter gets that is neither input nor weight."""
    if filler == "none":
        return "None"
    value, axes = filler.split()
    shape = f"({', '.join(axes)}{',' if len(axes) == 1 else ''})"
    said = {"S": "numbers of keys", "same": "one number"}.get(value, f"all {value}")
    return f"{said} of shape {shape}"


def filler_mask(filler: str, sizes: dict[str, int], dtype: Any) -> Array | None:
    """Return what a required mask gets that should hide nothing; ``sizes`` are N, H, L and S."""
    if filler == "none":
        return None
    value, axes = filler.removeprefix("object ").split()
    shape = [sizes.get(axis, 1) for axis in axes]
    if value in NUMBERS:
        return np.full(shape, sizes["S"] if value == "S" else 0)
    return np.full(shape, int(value), dtype) if value in "01" else np.full(shape, value == "True")
