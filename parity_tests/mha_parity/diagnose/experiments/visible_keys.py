"""Keys that rows see by a rule other than the right one, and what to do about it."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from mha_parity.diagnose.experiments.influence import (
    CUT_OFF,
    OUT_OF_SUM,
    keys_lost,
    largest_kept,
    visibility,
)
from mha_parity.diagnose.experiments.reading import WeightsFinding
from mha_parity.diagnose.experiments.skipped_tiles import EVERY_TILE, SKIPPED, skipped_tiles

if TYPE_CHECKING:
    from mha_parity.diagnose.experiments.reading import SampleWeights

SEE_ALL = (
    "let each row see the keys that it should: look at the bounds of the loop over keys, at window "
    "and offset of a mask"
)
KEEP_ALL = "take the softmax over all keys: exp makes small what may be neglected"


def wrong_keys(wrong: list[SampleWeights]) -> WeightsFinding | None:
    """Return which keys are seen, from the longest reading: a rule shows best there."""
    normal = [each for each in wrong if each.problem.case.regime == "normal"]
    if rule := keys_lost(normal):
        return WeightsFinding(rule, "let the loop over keys end with the last key")
    if rule := largest_kept(normal):
        return WeightsFinding(
            f"{rule}, expected all",
            "take the softmax over all keys: remove the top-k",
            operation="largest scores",
        )
    if rule := skipped_tiles(normal):
        return WeightsFinding(rule, EVERY_TILE)
    tried = product((False, True), reversed(normal))
    rules = (visibility(each, of_most=of_most) for of_most, each in tried)
    return next((_of_rule(rule) for rule in rules if rule), None)


def skipped_at_peaks(wrong: list[SampleWeights]) -> WeightsFinding | None:
    """Return which tiles of keys are skipped, and by which threshold, where peaked rows show it."""
    rule = skipped_tiles([each for each in wrong if each.problem.case.regime != "normal"])
    return WeightsFinding(rule, EVERY_TILE) if SKIPPED in rule else None


def _of_rule(rule: str) -> WeightsFinding:
    """Return what to do about keys that are seen by a rule."""
    if OUT_OF_SUM in rule:
        summed = "sum P V over all keys, or hide the others by -inf before the softmax"
        return WeightsFinding(rule, summed, operation="mask behind the softmax")
    if rule.startswith(CUT_OFF):
        return WeightsFinding(rule, KEEP_ALL, operation="largest scores")
    return WeightsFinding(rule, SEE_ALL)
