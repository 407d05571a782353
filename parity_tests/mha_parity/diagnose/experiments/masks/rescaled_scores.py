"""Scores that are multiplied by another factor where a mask is passed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.masks.hidden_scores import LEAST
from mha_parity.diagnose.experiments.scores.transfer_curve import curve

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.designs.weights_from_output import SampleWeights

REPLACED = Effect(
    "the mask stands in the place of the scores, where it should be added to them",
    "add the mask: a number in it that is finite replaces no score",
)


def rescaled(reading: SampleWeights, plain: Array) -> Effect | None:
    """Return the factor on the scores without the mask, which is added as it should be; or None.

    The logarithms of visible weights, less the mask, are then a line through the true scores
    ``plain``, whose slope is not 1.
    """
    found = curve(reading)
    if found is None:
        return None
    mask = np.where(reading.visible, reading.scores - plain, 0)
    x = found.relative(plain)[found.usable]
    y = found.y[found.usable] - found.relative(mask)[found.usable]
    if not x.any():
        return None
    factor = float((x * y).sum() / (x * x).sum())
    if np.abs(y - factor * x).max() > found.atol or abs(factor - 1) <= LEAST:
        return None
    if abs(factor) <= LEAST:
        return REPLACED
    root = math.sqrt(reading.problem.head_dim)
    laws = {" = 1/sqrt(D)": 1 / root, " = sqrt(D)": root}
    law = next((text for text, value in laws.items() if abs(factor - value) < LEAST * value), "")
    by = f"{factor:.4g}{law}"
    return Effect(
        f"the scores are multiplied by {by} where the mask is passed, expected by 1",
        "scale the scores once, with a mask as without",
    )
