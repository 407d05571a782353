"""Weights that a backward pass computes again from the scores, where it leaves the masks out.

A forward pass that keeps the log-sum-exp of each row lets the backward pass form exp(score - it)
anew. Without the mask the visible keys have their weights, and hidden ones have some too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue import Attention
from mha_parity.oracle.eval_orders_vjp import VJP

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.oracle.eval_orders import EvalOrder, Prepared

RECOMPUTED = (
    "hidden keys take part in the backward pass: it computes the weights again as exp(score - "
    "log-sum-exp of the visible scores), without the mask"
)

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


KINDS: tuple[type[VJP], ...] = (WithoutMaskOfOutputs, WithoutMask)
