"""Weights below a constant that are raised to it, or set to 0.

One key of five has a score that is larger by a constant: the weights of the others shrink with it.
The constant from which on the output is wrong gives the weight that is no longer passed on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.experiments.calls import WRONG
from mha_parity.diagnose.experiments.clipped_scores import REMEDY as UNCLIPPED
from mha_parity.diagnose.experiments.designed_scores import shifted
from mha_parity.diagnose.experiments.reading import WeightsFinding
from mha_parity.diagnose.experiments.row_factors import shortest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.calls import Caller, CallResult

ADDED = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0, 24.0, 26.0, 28.0, 30.0)
HALVINGS = 30
NEAR = 1e-2  # of a constant: how far the number of fewest digits may be from it
BEYOND = 2.0  # added to the score behind the limit, where the sentence is held against the output
REMEDY = "multiply the values with the weights as the softmax gives them"


def small_weights(caller: Caller) -> WeightsFinding | None:
    """Return what becomes of small weights, None where nothing does that is known."""
    right = 0.0
    for added in ADDED:
        trial = _at(caller, added)
        if trial is None or (trial.wrong and added == ADDED[0]):
            return None
        if trial.wrong:
            text = _sentence(caller, right, added)
            remedy = UNCLIPPED if text.startswith("scores") else REMEDY
            return WeightsFinding(text, remedy) if text else None
        right = added
    return None


def _sentence(caller: Caller, right: float, wrong: float) -> str:
    for _ in range(HALVINGS):
        trial = _at(caller, (right + wrong) / 2)
        if trial is None:
            return ""
        right, wrong = (right, (right + wrong) / 2) if trial.wrong else ((right + wrong) / 2, wrong)
    limit, beyond = _at(caller, wrong), _at(caller, wrong + BEYOND)
    if limit is None or beyond is None or beyond.found is None:
        return ""
    weights, values = beyond.right.stages["weights"], beyond.right.stages["value heads"]
    fitting = [
        (len(f"{number:.2e}".partition("e")[0].rstrip("0")), text.format(c=number))
        for text, number, changed in _changed(weights, limit.right.stages["weights"])
        if np.abs(beyond.found - changed @ values).max() <= WRONG * beyond.allowed
    ]
    # A least weight and a least score are nearly one where one key has nearly all weight.
    return min(fitting, key=lambda each: each[0], default=(0, ""))[1]


def _changed(weights: Array, limit: Array) -> Iterator[tuple[str, float, Array]]:
    """Yield what may become of weights below the least one of ``limit``, with the constant."""
    seen, least_of = weights > 0, np.where(limit > 0, limit, np.inf)  # hidden keys have none
    least = shortest(float(least_of.min()), NEAR)
    for text, changed in (
        ("weights below {c:.3g} are raised to it", np.maximum(weights, least) * seen),
        ("weights below {c:.3g} are set to 0", np.where(weights < least, 0, weights)),
    ):
        yield text, least, changed
        again = changed / changed.sum(axis=-1, keepdims=True)
        yield f"{text}, and each row is divided by its sum again", least, again
    ratio = float((least_of.min(axis=-1) / limit.max(axis=-1)).min())
    below = shortest(-math.log(ratio), NEAR)
    powers = np.maximum(weights / weights.max(axis=-1, keepdims=True), math.exp(-below)) * seen
    clipped = powers / powers.sum(axis=-1, keepdims=True)
    yield "scores are clipped to {c:.3g} below the largest of their row", below, clipped


def _at(caller: Caller, added: float) -> CallResult | None:
    problem = shifted(caller, caller.base.dtype, added, "last key")
    if problem is None or not caller.running():
        return None
    return caller.ask_problems([problem])[0]
