"""Clips of the scores that only rows of large scores reach.

Where all scores of a row are beyond a clip, they are alike, and the output is the mean of V. The
constant is found by halving, and the clip is held against a row that it reaches in part.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.experiments.designs.calls import WRONG
from mha_parity.diagnose.experiments.designs.designed_scores import SIZES, SMALL, shifted
from mha_parity.diagnose.experiments.scores.row_factors import shortest

if TYPE_CHECKING:
    from mha_parity.diagnose.experiments.designs.calls import Caller, CallResult

REMEDY = "remove the clip: the softmax subtracts the row's maximum and needs none"
SCALE = 1 / math.sqrt(SIZES["head_dim"])
HALVINGS = 40
NEAR = 1e-4  # of a constant: how far the number of fewest digits may be from it


def clip_of_scores(caller: Caller, dtype: str, limits: dict[int, tuple[int, int]]) -> str:
    """Return at which constant scores are clipped; "" where a clip does not give the output.

    ``limits`` has by sign up to which constant added to all scores the output is right, and from
    which on it is the mean of V.
    """
    found = {sign: _constant(caller, dtype, sign, *each) for sign, each in limits.items()}
    clips = {sign: c for sign, c in found.items() if c is not None}
    if set(clips) == {1, -1} and clips[1] == clips[-1]:
        return f"scores are clipped to ±{clips[1]:.4g} before the softmax"
    said = [
        f"at {sign * c:.4g} from {'above' if sign > 0 else 'below'}" for sign, c in clips.items()
    ]
    return f"scores are clipped {' and '.join(said)} before the softmax" if said else ""


def _constant(caller: Caller, dtype: str, sign: int, right: float, wrong: float) -> float | None:
    """Return the magnitude of the clip on one side, None where none gives the output."""
    for _ in range(HALVINGS):
        middle = (right + wrong) / 2
        trial = _at(caller, dtype, sign * middle)
        if trial is None:
            return None
        right, wrong = (right, middle) if trial.wrong else (middle, wrong)
    # The outermost of the small scores meets the clip first.
    outermost = (max(SMALL) if sign > 0 else -min(SMALL)) * SCALE
    clip = shortest(right + outermost, NEAR)
    trial = _at(caller, dtype, sign * clip - SCALE * sum(SMALL) / len(SMALL))
    return clip if trial is not None and _is_clipped(trial, sign * clip) else None


def _at(caller: Caller, dtype: str, added: float) -> CallResult | None:
    problem = shifted(caller, dtype, added, "all")
    if problem is None or not caller.running():
        return None
    return caller.ask_problems([problem])[0]


def _is_clipped(trial: CallResult, clip: float) -> bool:
    """Return whether an output is wrong, and that of scores which end at a number."""
    if trial.found is None or not trial.wrong:
        return False
    stages = trial.right.stages
    scores = stages["masked scores"].astype(np.float64)
    clipped = np.minimum(scores, clip) if clip > 0 else np.maximum(scores, clip)
    powers = np.where(np.isneginf(scores), 0, np.exp(clipped - clipped.max(-1, keepdims=True)))
    output = powers / powers.sum(axis=-1, keepdims=True) @ stages["value heads"]
    error = np.abs(trial.found - output).max()
    return bool(math.isfinite(error) and error <= WRONG * trial.allowed)
