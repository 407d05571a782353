"""Gradients of the projections that are taken of rows laid out otherwise, or returned transposed.

A layer with a backward pass of its own merges the heads there as it does in its answer. The
gradients of such mistakes are off by no one factor, and are held against all gradients of the
calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.gradients.gradient_remedies import FORMULAS, comparison_with
from mha_parity.oracle.eval_orders_vjp import VJP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array

UNMERGED = "(N, H, L, D) is read as (N, L, H D) without a transpose"


def projection_gradients() -> Iterator[tuple[Effect, type[VJP]]]:
    """Yield an effect and the backward pass for each such mistake."""
    text = "gradient of out_proj.weight is taken of heads that are not merged"
    yield Effect(f"{text}: {UNMERGED}"), Output
    text = "gradients dQ, dK and dV are not merged before the projections"
    yield Effect(f"{text}: {UNMERGED}", comparison_with(FORMULAS)), Inputs
    yield Effect("gradient of out_proj.weight is the transpose of the right one"), TransposedOutput
    text = "gradient of each part of in_proj_weight is the transpose of the right one"
    yield Effect(text), Transposed


def _unmerged(heads: Array) -> Array:
    samples, count, rows, width = heads.shape
    return heads.reshape(samples, rows, count * width)


class Output(VJP):
    """Heads that are not merged."""

    def merged_output(self) -> Array:
        """Reshape the heads alone."""
        return _unmerged(self.heads)


class Inputs(VJP):
    """Gradients of heads that are not merged."""

    def merged(self, heads: Array) -> Array:
        """Reshape the gradients alone."""
        return _unmerged(heads)


class TransposedOutput(VJP):
    """A weight (in, out) for one (out, in)."""

    def gradients(self, cotangent: Array) -> dict[str, Array]:
        """Turn that of the output's weight."""
        found = super().gradients(cotangent)
        name = "out_proj.weight"
        return found | ({name: found[name].T} if name in found else {})


class Transposed(VJP):
    """Weights (in, out) for those (out, in)."""

    def weight_gradient(self, rows: Array, inputs: Array) -> Array:
        """Turn those of square weights."""
        found = super().weight_gradient(rows, inputs)
        return found.T if found.shape[0] == found.shape[1] else found
