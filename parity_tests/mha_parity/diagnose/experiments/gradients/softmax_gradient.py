"""Term subtracted in dS = P * (dP - sum(P * dP)), where it is not the sum over the row's keys.

dQ and dK both follow from dS, so that one wrong sum has no factor in either. Sums and means over
further axes, those of dP without the weights, and sums over a tile of keys alone are held against
all gradients of the calls.
"""

from __future__ import annotations

from itertools import chain, combinations
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.designs.shortest_rules import TILES
from mha_parity.diagnose.experiments.gradients.gradient_remedies import COMPARE_SCORES
from mha_parity.oracle.eval_orders_vjp import VJP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array

AXES = {0: "samples", 1: "heads", 2: "rows"}
EXPECTED = "expected sum(P * dP) over the keys of each row alone"


def subtracted_sums() -> Iterator[tuple[Effect, type[VJP]]]:
    """Yield an effect and the backward pass for each other number subtracted, plainest first."""
    sets = chain.from_iterable(combinations(AXES, n) for n in range(1, len(AXES) + 1))
    for axes in sets:
        for mean in (False, True):
            how = "averaged" if mean else "summed"
            over = " and ".join(AXES[axis] for axis in axes)
            text = f"what is subtracted from dP is {how} over {over} as well"
            yield Effect(f"{text}, {EXPECTED}", COMPARE_SCORES), _over(axes, mean=mean)
    for mean in (False, True):
        how = "mean" if mean else "sum"
        text = f"what is subtracted from dP is the {how} of dP over the keys, without the weights"
        yield Effect(f"{text}, {EXPECTED}", COMPARE_SCORES), _unweighted(mean=mean)
    text = "what is subtracted from dP is summed over the rows, for each key"
    yield Effect(f"{text}, {EXPECTED}", COMPARE_SCORES), OfColumns
    text = "what is subtracted from dP is P * dP of each key alone: dS = P * (1 - P) * dP"
    yield (
        Effect(f"{text}, the diagonal of the softmax's derivative; {EXPECTED}", COMPARE_SCORES),
        OwnScoreAlone,
    )
    for tile in TILES:
        text = f"what is subtracted from dP is summed over each tile of {tile} keys alone"
        yield Effect(f"{text}, {EXPECTED}", COMPARE_SCORES), _of_tiles(tile)


class OwnScoreAlone(VJP):
    """Each weight by its own score alone."""

    def subtracted_row_term(self, d_p: Array, d_heads: Array) -> Array:  # noqa: ARG002  (of the softmax's rule)
        """Return P * dP."""
        return np.asarray(self.p * d_p)


class OfColumns(VJP):
    """One number for each key."""

    def subtracted_row_term(self, d_p: Array, d_heads: Array) -> Array:  # noqa: ARG002  (of the softmax's rule)
        """Sum P * dP over the rows."""
        return np.asarray((self.p * d_p).sum(axis=-2, keepdims=True))


def _over(axes: tuple[int, ...], *, mean: bool) -> type[VJP]:
    class Over(VJP):
        """One number for all samples, heads or rows."""

        def subtracted_row_term(self, d_p: Array, d_heads: Array) -> Array:
            """Sum or average over the axes."""
            own = super().subtracted_row_term(d_p, d_heads)
            reduce = np.mean if mean else np.sum
            return np.broadcast_to(reduce(own, axis=axes, keepdims=True), own.shape)

    return Over


def _unweighted(*, mean: bool) -> type[VJP]:
    class Unweighted(VJP):
        """The gradients of the weights, unweighted."""

        def subtracted_row_term(self, d_p: Array, d_heads: Array) -> Array:  # noqa: ARG002  (of the softmax's rule)
            """Sum or average dP."""
            return np.asarray((np.mean if mean else np.sum)(d_p, axis=-1, keepdims=True))

    return Unweighted


def _of_tiles(tile: int) -> type[VJP]:
    class OfTiles(VJP):
        """One number for each tile of keys."""

        def subtracted_row_term(self, d_p: Array, d_heads: Array) -> Array:  # noqa: ARG002  (it is that of whole rows)
            """Sum P * dP over the keys of a tile."""
            keys = d_p.shape[-1]
            sums = np.add.reduceat(self.p * d_p, range(0, keys, tile), axis=-1)
            return np.asarray(sums.repeat(tile, axis=-1)[..., :keys])

    return OfTiles
