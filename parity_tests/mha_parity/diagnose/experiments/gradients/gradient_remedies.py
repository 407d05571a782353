"""Remedies of wrong gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

FORMULAS = {
    "dQ": "dQ = scale dS K",
    "dK": "dK = scale dS^T Q",
    "dV": "dV = P^T dO",
}
SCORES = "dS = P * (dP - sum(P * dP)) with dP = dO V^T"
COMPARE_SCORES = f"compare with {SCORES}"
ONCE = "multiply by the scale once: q, k or dS that is used here has it already"
DETACHED = "look for detach, no_grad, .data or an integer index on the way to the output"
SAME_KEYS = "hide the same keys where the backward pass computes the scores again"
SAME_SCALE = "multiply dS by the scale that the forward pass took, given or not"
BEFORE_SCALE = "take dS for what is added to the scores before it is multiplied by the scale"
SUM_BROADCAST = "sum dS over the axes along which the mask is broadcast; do not average it"


def comparison_with(names: Collection[str], more: str = "") -> str:
    """Return the formulas of dQ, dK and dV that are among the names, to compare with."""
    formulas = [formula for name, formula in FORMULAS.items() if name in names]
    if "dQ" in names and "dK" in names:
        formulas.append(SCORES)
    formulas += [more] if more else []
    return f"compare with {'; '.join(formulas)}" if formulas else ""
