"""Weights that are right but for the order of keys, rows or heads, where that is a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.designs.weights_from_output import SampleWeights

COMPARED = 16  # elements of each other axis by which indices are distinguished
KEYS = "value j is multiplied with the weight of key {}"
ROWS = "row i of the output has the weights of row {}"
HEADS = "the values of head h are mixed by the weights of head {}"
RESHAPED = (
    "k (S, D) is reshaped to (D, S) in each head, where its axes should be swapped",
    "k (S, H, D) is reshaped to (H, D, S), where its axes should be moved there",
)
SWAP_AXES = "transpose k: a reshape leaves all numbers in their order in memory"
SAME_ORDER = "keep q, k and v in one order of heads and positions: look for flips and rolls"


def other_order(readings: Sequence[SampleWeights]) -> str:
    """Return in which other order the right weights come, the same in all readings; "" in none."""
    for axis, letter, size, text in (
        (2, "j", "S", KEYS),
        (1, "i", "L", ROWS),
        (0, "h", "H", HEADS),
    ):
        orders = [
            order_along(each.weights, each.expected, axis, 10 * each.noise)
            for each in readings
            if each.weights.shape[axis] > 1
        ]
        found = [each for each in orders if each is not None]
        if found and len(found) == len(orders):
            common = [set(order_rules(order, letter, size)) for order in found]
            rules = [r for r in order_rules(found[-1], letter, size) if all(r in c for c in common)]
            if rules:
                return text.format(rules[0])
    return ""


def reshaped_keys(readings: Sequence[SampleWeights]) -> str:
    """Return how keys were reshaped in the place of a transposition; "" where none explains all."""
    found = [set(_reshapes(each)) for each in readings]
    return next((said for said in RESHAPED if found and all(said in each for each in found)), "")


def _reshapes(reading: SampleWeights) -> Iterator[str]:
    """Yield which reshapes of the keys (H, S, D) to (H, D, S) give the weights that were read."""
    heads, keys, width = reading.key.shape
    if heads != len(reading.query):
        return
    for said, held in zip(RESHAPED, (reading.key, reading.key.swapaxes(0, 1)), strict=True):
        scores = reading.problem.scale * reading.query @ held.reshape(heads, width, keys)
        scores = np.where(reading.visible, scores, -np.inf)
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = powers / powers.sum(axis=-1, keepdims=True)
        if np.abs(reading.weights - weights).max(initial=0) <= 10 * reading.noise:
            yield said


def order_along(found: Array, expected: Array, axis: int, atol: float) -> Array | None:
    """Return at which index of what is expected each of an axis is right, if not at its own.

    None where an index is right nowhere, or two are right at the same.
    """
    found, expected = (np.moveaxis(x, axis, 0) for x in (found, expected))
    few = (slice(None), *[slice(COMPARED)] * (found.ndim - 1))
    others = tuple(range(2, found.ndim + 1))
    distances = np.abs(found[few][:, None] - expected[few][None]).max(axis=others, initial=0)
    order = distances.argmin(axis=1)
    if np.array_equal(order, np.arange(len(order))) or len(np.unique(order)) < len(order):
        return None
    return order if np.abs(found - expected[order]).max(initial=0) <= atol else None


def order_rules(order: Array, letter: str, size: str) -> Iterator[str]:
    """Yield the rules by which indices are in this order, of a letter below a size."""
    count, own = len(order), np.arange(len(order))
    if np.array_equal(order, own[::-1]):
        yield f"{size} - 1 - {letter}"
    shift = int(order[0])
    if np.array_equal(order, (own + shift) % count):
        yield f"({letter} + {shift}) % {size}"
        yield f"({letter} - {count - shift}) % {size}"
    if np.array_equal(order, np.minimum(own ^ 1, count - 1)):
        yield f"{letter} + 1 for even {letter}, {letter} - 1 for odd {letter}"
