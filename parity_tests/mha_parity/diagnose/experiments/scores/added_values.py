"""A constant added to each weight behind the softmax, found in errors too small for the weights.

output - right output = c sum_s v_s, the same in all rows of a head, or c sum_s (v_s - right output)
where rows are divided by their sums again. A c of 1e-9 is far above the rounding of an output, and
below what weights are read to.
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.scores.row_factors import shortest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.designs.calls import CallResult

REMEDY = "add nothing to the weights: the softmax never divides by 0"
ALIKE = 0.2  # how far the constants of problems may vary, where they are near the last digits
CLEAR = 2.0  # times what rounding allows: errors of one constant that speak for it
EACH = "{c:.4g} is added to each weight, behind the softmax"
SHARE = "{c:.4g} divided by the number of keys is added to each weight, behind the softmax"
AGAIN = "{}, and each row divided by its sum again"


def added_values(wrong: Sequence[CallResult]) -> Effect | None:
    """Return what is added to each weight, where one constant explains the errors of all outputs.

    Hidden keys may have it too, or not.
    """
    trials = [each for each in wrong if each.found is not None and each.expected.size]
    if not trials:
        return None
    keys = np.array([each.right.stages["weights"].shape[-1] for each in trials])
    for hidden_too, again in product((True, False), (False, True)):
        constants = [_constant(each, hidden_too=hidden_too, again=again) for each in trials]
        found = np.array([each for each in constants if each is not None])
        for text, scaled in ((EACH, found), (SHARE, found * keys[: len(found)])):
            if len(found) == len(trials) and (c := _common(scaled)):
                said = text.format(c=c)
                return Effect(AGAIN.format(said) if again else said, REMEDY)
    return None


def _common(constants: Array) -> float:
    """Return the number of fewest digits that all constants are near, 0 where there is none."""
    typical = float(np.median(constants))
    if not typical or (np.abs(constants / typical - 1) > ALIKE).any():
        return 0.0
    return math.copysign(shortest(abs(typical), ALIKE / 2), typical)


def _constant(trial: CallResult, *, hidden_too: bool, again: bool) -> float | None:
    """Return c that explains the errors of an output, None where none does."""
    weights, values = trial.right.stages["weights"], trial.right.stages["value heads"]
    assert trial.found is not None  # noqa: S101  (of answers of the right shape)
    error = trial.found - trial.expected
    if not np.isfinite(error).all():
        return None
    counted = np.ones_like(weights) if hidden_too else (weights > 0).astype(weights.dtype)
    moved = counted @ values
    if again:
        moved -= counted.sum(axis=-1, keepdims=True) * trial.expected
    length = float((moved * moved).sum())
    c = float((moved * error).sum()) / length if length else 0.0
    left = float(np.abs(error - c * moved).max())
    shown = float(np.abs(c * moved).max())
    return c if left <= trial.allowed and shown > CLEAR * trial.allowed else None
