"""Terms that are added to the denominator of the softmax, and its least values.

Log-ratios of weights do not depend on it, and rows of weights sum to less than 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.experiments.designs.effect import Effect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.scores.transfer_curve import Curve

WIDEST_TILE = 256  # keys: kernels have no wider ones that cases reach beyond
NEAR = 1e-4  # of a constant of the denominator: how far it may vary from row to row
LEAST_ROWS = 2  # that show one
ALIKE = 0.1  # of what sums of rows miss 1 by: how far they vary where they miss it alike
REMEDY = "divide by the sum of exp over the keys of the row, and by nothing else"
OWN_MAXIMUM = f"subtract each row's own maximum; {REMEDY}"
PADDED = Effect(
    "exp(0) is added to the denominator {c:.4g} times: padded keys that are not masked", REMEDY
)
CONSTANT = Effect(
    "{c:.4g} is added to the denominator, after the row maximum is subtracted",
    REMEDY,
    "denominator",
)
OF_ALL_ROWS = Effect(
    "{c:.4g} is added to the denominator, and the largest score of all rows is subtracted, not "
    "that of each row",
    OWN_MAXIMUM,
)
LEAST_SUM = Effect(
    "the denominator is {least}{c:.4g}, and nothing is subtracted from the scores",
    REMEDY,
    "denominator",
)
LEAST_WHOLE = Effect(
    "the largest score of all rows is subtracted, not that of each row, and the denominator is "
    "{least}{c:.4g}",
    OWN_MAXIMUM,
    "denominator",
)


def denominator(found: Curve) -> Effect | None:
    """Return what is added to the denominator, where log-ratios are right and rows sum to less."""
    reading = found.reading
    sums = np.where(reading.visible, reading.weights, 0).sum(axis=-1)
    if not (np.abs(sums - 1) > 100 * reading.noise).any() or (sums <= 0).any():
        return None
    # Weights of keys that should be hidden take from the others: the denominator is theirs too.
    if np.abs(reading.weights.sum(axis=-1) - sums).max() > 100 * reading.noise:
        return None
    scores = np.where(reading.visible, reading.scores, -np.inf)
    top = scores.max(axis=-1)
    shifted = np.exp(scores - top[..., None]).sum(axis=-1)
    low, high = float(sums.min()), float(sums.max())
    for effect, extra in added_to_sum(1 / sums - 1, shifted, top):
        mean = float(extra.mean())
        if is_possible(effect, mean) and np.ptp(extra) <= NEAR * np.abs(extra).max():
            return replace(effect, text=effect.text.format(c=mean))
    if least := _least_sum(found, sums, shifted, top):
        return least
    text = f"rows of weights sum to {near_one(low, 4)} … {near_one(high, 4)}, expected 1"
    if np.ptp(sums) <= ALIKE * np.abs(sums - 1).max():
        text = f"every row of weights sums to {near_one(low, 6)}, expected 1"
    return Effect(text, REMEDY, understood=False)


def _least_sum(found: Curve, sums: Array, shifted: Array, top: Array) -> Effect | None:
    """Return which least value the denominator has, where rows that sum to less than 1 show it.

    Where all do, it may be the value of every row. It is a number of two digits at most: what is
    subtracted from all scores changes it alone. A multiple of the keys' number may be no constant.
    """
    atol, keys = 100 * found.reading.noise, found.x.shape[-1]
    below = sums < 1 - atol
    if (sums > 1 + atol).any():
        return None
    for effect, size in (
        (LEAST_SUM, shifted * np.exp(top)),
        (LEAST_WHOLE, shifted * np.exp(top - top.max())),
    ):
        least, others = (size / sums)[below], size[~below]
        alike = len(least) >= LEAST_ROWS and np.ptp(least) <= NEAR * least.max()
        if alike and others.min(initial=np.inf) >= (1 - NEAR) * least.max():
            least_sum = float(least.mean())
            known = abs(float(f"{least_sum:.1e}") / least_sum - 1) <= NEAR
            if known and not _is_multiple(least_sum, keys):
                said = "" if below.all() else "at least "
                return replace(effect, text=effect.text.format(c=least_sum, least=said))
    return None


def _is_multiple(number: float, keys: int) -> bool:
    """Return whether a number is that of all keys, or a multiple of it."""
    times = number / keys
    return times >= 1 - NEAR and abs(times - round(times)) <= NEAR * times


def is_possible(effect: Effect, constant: float) -> bool:
    """Return whether a constant may be added so: keys that fill a tile up are whole, and fewer."""
    is_whole = abs(constant - round(constant)) <= 1e-3 * abs(constant)
    return effect != PADDED or (is_whole and constant < WIDEST_TILE)


def near_one(value: float, digits: int) -> str:
    """Return a number, one that these digits do not tell from 1 by its distance to it."""
    said, more = f"{value:.{digits}g}", value - 1
    return f"1 {'+' if more > 0 else '-'} {abs(more):.2g}" if said == "1" and more else said


def added_to_sum(excess: Array, shifted: Array, top: Array) -> Iterator[tuple[Effect, Array]]:
    """Yield what may be added to the denominator, with its size in every row.

    ``excess`` is by which share of it, ``shifted`` the sum of exp(score - ``top``).
    """
    yield PADDED, excess * shifted * np.exp(top)
    yield CONSTANT, excess * shifted
    yield OF_ALL_ROWS, excess * shifted * np.exp(top - top.max())
