"""Keys that rows see by a rule other than the right one, and what to do about it."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.masks.influence import (
    keys_lost,
    largest_kept,
    visibility,
)
from mha_parity.diagnose.experiments.scores.skipped_tiles import skipped_below, skipped_tiles

if TYPE_CHECKING:
    from mha_parity.diagnose.experiments.designs.weights_from_output import SampleWeights
    from mha_parity.diagnose.experiments.masks.influence import KeysRule

SEE_ALL = (
    "let each row see the keys that it should: look at the bounds of the loop over keys, at window "
    "and offset of a mask"
)
IN_SCORES = "apply the mask to the scores, before the softmax, as it is"
AFTER = "mask behind the softmax"
# By the kind of a rule: what to do about it, and the operation of the source.
REMEDIES = {
    "score": (
        "take the softmax over all keys: exp makes small what may be neglected", "largest scores",
    ),
    "sum": ("sum P V over all keys, or hide the others by -inf before the softmax", AFTER),
    "softmax": (IN_SCORES, AFTER),
}  # fmt: skip


def effect_of_rule(rule: KeysRule | None) -> Effect | None:
    """Return a rule of the keys that rows see with what to do about it."""
    return rule and Effect(rule.text, *REMEDIES.get(rule.kind, (SEE_ALL, "")))


def wrong_keys(wrong: list[SampleWeights]) -> Effect | None:
    """Return which keys are seen, from the longest reading: a rule shows best there."""
    normal = [each for each in wrong if each.problem.case.regime == "normal"]
    if rule := keys_lost(normal):
        return Effect(rule, "let the loop over keys end with the last key")
    if rule := largest_kept(normal):
        return Effect(
            f"{rule}, expected all",
            "take the softmax over all keys: remove the top-k",
            operation="largest scores",
        )
    if skipped := skipped_tiles(normal):
        return skipped
    tried = product((False, True), reversed(normal))
    rules = (visibility(each, of_most=of_most) for of_most, each in tried)
    return next((found for each in rules if (found := effect_of_rule(each))), None)


def skipped_at_peaks(wrong: list[SampleWeights]) -> Effect | None:
    """Return which tiles of keys are skipped, and by which threshold, where peaked rows show it."""
    return skipped_below([each for each in wrong if each.problem.case.regime != "normal"])
