"""A single key whose weights are off while those of all other keys are right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.experiments.designs.effect import Effect

if TYPE_CHECKING:
    from mha_parity.diagnose.experiments.scores.transfer_curve import Curve

REMEDY = (
    "compute the score of this key as that of each other one; where keys are combined in tiles, "
    "merge a tail of one key as any other tile"
)
LEAST_ROWS = 4  # in which the same key is off, and no other
LEAST_KEYS = 4  # weights in each of these rows, of which the median is right


def of_one_key(found: Curve) -> Effect | None:
    """Return that the weights of one key alone are off, with its score where that is a constant.

    A row's log-ratios are compared with their median: the key that they are read from may be it.
    """
    rest = np.where(found.usable, found.y - found.x, np.nan)
    enough = found.usable.sum(axis=-1) >= LEAST_KEYS
    if not enough.any():
        return None
    rest = rest[enough]
    rest -= np.nanmedian(rest, axis=-1, keepdims=True)
    off = np.nan_to_num(np.abs(rest)) > 10 * found.atol * found.spread[enough]
    keys = np.unique(np.nonzero(off)[-1])
    if len(keys) != 1 or off.sum() < LEAST_ROWS:
        return None
    key, count = int(keys[0]), rest.shape[-1]
    rows = off[:, key]
    scores = (found.reading.scores[enough][:, key] + rest[:, key])[rows]
    constant = bool(np.ptp(scores) <= 10 * found.atol * np.max(found.spread[enough][:, key][rows]))
    score = scores.mean() if abs(scores.mean()) > 10 * found.atol else 0.0
    names = {0: "the first key", count - 1: "the last key"}
    said = f"the weights of {names.get(key, f'key {key}')} of {count} alone are off"
    return Effect(f"{said}{f': its score is {score:.3g} in each row' * constant}", REMEDY)
