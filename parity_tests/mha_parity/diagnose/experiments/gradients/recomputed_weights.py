"""Weights that a backward pass computes again from the scores, without the masks or otherwise.

A forward pass that keeps the log-sum-exp of each row lets the backward pass form exp(score - it)
anew. Without the mask the visible keys have their weights, and hidden ones have some too. Kernels
that compute exp2 keep the logarithm to base 2, log2(e) times the natural one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue import Attention
from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.oracle.eval_orders_vjp import VJP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.oracle.eval_orders import EvalOrder, Prepared

RECOMPUTED = (
    "hidden keys take part in the backward pass: it computes the weights again as exp(score - "
    "log-sum-exp of the visible scores), without the mask"
)

_RECOMPUTED_FOR = (
    "hidden keys have a part in {}: for it the backward pass computes the weights again as "
    "exp(score - log-sum-exp of the visible scores), without the mask"
)
RECOMPUTED_FOR_VALUES = _RECOMPUTED_FOR.format("dV")
RECOMPUTED_FOR_QUERIES = _RECOMPUTED_FOR.format("dQ")
OTHER_BASE = (
    "the backward pass computes the weights again as {}, expected exp(score - log-sum-exp), both "
    "to one base"
)
# What is subtracted from the scores, in natural log-sum-exps, by how it comes about.
BASES = {
    "exp(score - log-sum-exp to base 2)": math.log2(math.e),
    "exp2(score / ln 2 - natural log-sum-exp)": math.log(2),
}
LARGEST = 50.0  # an exponent that a finite number for -inf in a whole row passes, and nothing else


class WithoutMask(VJP):
    """The weights of the backward pass are those of all scores; sum(P * dP) is theirs too."""

    def __init__(self, prepared: Prepared, order: EvalOrder) -> None:
        super().__init__(prepared, order)
        right = Attention(self.problem)
        right.answer()
        scores, masked = right.stages["scores"], right.stages["masked scores"]
        with np.errstate(all="ignore"):
            top = masked.max(axis=-1, keepdims=True)
            total = np.exp(masked - top).sum(axis=-1, keepdims=True)
            weights = np.exp(np.minimum(scores - top, LARGEST)) / total
        unseen = np.asarray(self.problem.masked_rows())[..., None]
        self.p = np.where(unseen, 0, weights).astype(self.p.dtype)


class WithoutMaskOfOutputs(WithoutMask):
    """The same, where sum(P * dP) is computed as sum(dO * O) from the right outputs."""

    def subtracted_row_term(self, d_p: Array, d_heads: Array) -> Array:  # noqa: ARG002  (of the softmax's rule)
        """Return sum(dO * O) of each row."""
        return np.asarray((d_heads * self.heads).sum(axis=-1, keepdims=True))


class WithoutMaskForValues(WithoutMaskOfOutputs):
    """The same in dV alone: the gradient of the scores is set to 0 where the mask hides."""

    def score_gradient(self, d_heads: Array) -> Array:
        """Return the right gradient of the scores."""
        return np.where(self.problem.hidden(), 0, super().score_gradient(d_heads))


class WithoutMaskForQueries(WithoutMaskOfOutputs):
    """The same in dQ alone: dK and dV are set to 0 for keys that all rows of a sample miss."""

    def summed_over_group(self, which: str, gradient: Array) -> Array:  # noqa: ARG002  (of both)
        """Return the gradient of keys or values, 0 where no row sees one."""
        unseen = np.asarray(self.problem.hidden().all(axis=-2))
        return np.where(unseen[..., None], 0, gradient)


def of_other_bases() -> Iterator[tuple[Effect, type[VJP]]]:
    """Yield a sentence and the backward pass for each log-sum-exp to another base."""
    for said, factor in BASES.items():
        for of_outputs in (True, False):
            yield Effect(OTHER_BASE.format(said)), _of_base(factor, of_outputs=of_outputs)


def _of_base(factor: float, *, of_outputs: bool) -> type[VJP]:
    class OfBase(VJP):
        """The weights of the backward pass do not sum to 1."""

        def __init__(self, prepared: Prepared, order: EvalOrder) -> None:
            super().__init__(prepared, order)
            right = Attention(self.problem)
            right.answer()
            scores = right.stages["masked scores"]
            with np.errstate(all="ignore"):
                top = scores.max(axis=-1, keepdims=True)
                log_sum = top + np.log(np.exp(scores - top).sum(axis=-1, keepdims=True))
                weights = np.exp(scores - factor * log_sum)
            unseen = np.asarray(self.problem.masked_rows())[..., None]
            self.p = np.where(unseen, 0, weights).astype(self.p.dtype)

        def subtracted_row_term(self, d_p: Array, d_heads: Array) -> Array:
            """Return sum(dO * O) of each row, or sum(P * dP)."""
            if of_outputs:
                return np.asarray((d_heads * self.heads).sum(axis=-1, keepdims=True))
            return super().subtracted_row_term(d_p, d_heads)

    return OfBase


KINDS: tuple[tuple[type[VJP], str], ...] = (
    (WithoutMaskOfOutputs, RECOMPUTED),
    (WithoutMask, RECOMPUTED),
    (WithoutMaskForValues, RECOMPUTED_FOR_VALUES),
    (WithoutMaskForQueries, RECOMPUTED_FOR_QUERIES),
)
