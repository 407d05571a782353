"""Which scores hidden keys get in place of -inf, read from their weights."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.experiments.designs.effect import Effect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.diagnose.experiments.designs.weights_from_output import SampleWeights

LEAST = 1e-3
FILL = "number for hidden keys"
HIDE = "fill hidden scores with -inf before the softmax"


def hidden_scores(reading: SampleWeights, plain: Array) -> Effect | None:
    """Return the score that hidden keys get, or what is added to theirs, where it is one number.

    Or what is added to the least or the largest score of their row. ``plain`` are the scores
    without a mask, (H, L, S).
    """
    hidden = ~reading.visible
    weights = np.where(reading.weights > 1e-300, reading.weights, np.nan)
    if not (hidden & np.isfinite(weights)).any():
        return None
    rows = np.where(hidden, np.nan, np.log(weights) - plain)
    scores = np.log(weights) - _row_medians(rows)
    elements = hidden & np.isfinite(scores) & (reading.weights > LEAST * reading.noise)
    if 2 * elements.sum() < hidden.sum():
        return None
    fill, added = scores[elements], (scores - plain)[elements]
    if np.ptp(fill) <= LEAST:
        score = _scaled(float(np.median(fill)), reading.problem)
        return Effect(f"hidden keys get the score {score}, not -inf", HIDE, FILL)
    if np.ptp(added) <= LEAST < abs(np.median(added)):
        more = f"{float(np.median(added)):.4g}"
        return Effect(f"hidden keys get {more} added to their score, not -inf", HIDE)
    for words, of_row in _scores_of_rows(plain, hidden):
        beyond = (scores - of_row)[elements]
        if np.ptp(beyond) <= LEAST:
            score = f"{words}{_difference(float(np.median(beyond)))}"
            return Effect(f"hidden keys get {score}, not -inf", HIDE, FILL)
    return None


def _scores_of_rows(plain: Array, hidden: Array) -> Iterator[tuple[str, Array]]:
    """Yield scores that each row has one of, in words, (..., 1)."""
    rows = (("", plain, plain), (
        " that is seen", np.where(hidden, np.inf, plain), np.where(hidden, -np.inf, plain)
    ))  # fmt: skip
    for words, least, largest in rows:
        yield f"the least score of their row{words}", least.min(axis=-1, keepdims=True)
        yield f"the largest score of their row{words}", largest.max(axis=-1, keepdims=True)


def _difference(more: float) -> str:
    """Return what is added to a score, in words."""
    if abs(more) <= LEAST:
        return ""
    return f" {'less' if more < 0 else 'plus'} {abs(more):.4g}"


def _scaled(fill: float, problem: Problem) -> str:
    """Return a score, and what it is before the scale where that is the rounder number."""
    if abs(fill) < LEAST:
        return "0"
    before = fill / (problem.scale or 1.0)
    whole = abs(before - round(before)) < LEAST < abs(fill - round(fill))
    return f"{fill:.4g}" + (f" ({before:.0f} before it is scaled)" if whole else "")


def _row_medians(rows: Array) -> Array:
    """Return the median of each row's numbers, (..., 1); NaN where a row has none."""
    medians = np.full((*rows.shape[:-1], 1), np.nan)
    some = np.isfinite(rows).any(axis=-1)
    medians[some, 0] = np.nanmedian(rows[some], axis=-1)
    return medians


def causal_fill(reading: SampleWeights) -> Effect | None:
    """Return that the keys which a causal rule hides get a score of their own in place of -inf."""
    if reading.visible.all() or reading.key.shape[0] != reading.query.shape[0]:
        return None
    plain = reading.query @ reading.key.swapaxes(-1, -2) * reading.problem.scale
    found = hidden_scores(reading, plain)
    return found and replace(found, operation="number for hidden keys")
