"""Remedies for wrong effects of a mask, and the operation of the source that each one changes."""

from __future__ import annotations

from mha_parity.diagnose.experiments.hidden_scores import HIDE
from mha_parity.diagnose.experiments.masks import HIDDEN_QUERIES, NAN_OF_HIDDEN
from mha_parity.diagnose.experiments.moved import BY_LENGTH, IN_ORDER, PADDED_ROWS, UNSORTED
from mha_parity.diagnose.experiments.variants import AS_BOOLEAN, OF_HEADS
from mha_parity.diagnose.experiments.weights import RESCALED

MASK_OPERATIONS = {
    "is inverted: ": "inverted mask", "is repeated in the wrong order": "order of masks",
    "hidden keys get the ": "number for hidden keys",
    "set to 0 after the softmax": "mask behind the softmax",
}  # fmt: skip
SEEN = "sees keys"
BOOLEANS_FIRST = "make booleans of the mask before all else: ~ of the integers 0 and 1 is never 0"
MASK_REMEDIES = {
    OF_HEADS: "say by the number of axes, not by their lengths, what the first axis of a mask is",
    "is repeated in the wrong order":
        "repeat each sample's mask for all its heads: repeat_interleave, not repeat or tile",
    "is inverted: ": "negate the mask once more, or once less: `~mask`, or `mask == 0` and not 1",
    AS_BOOLEAN: "add a float mask to the scores; only a boolean one hides where it is not 0",
    HIDDEN_QUERIES: "give the mask (N, S) the shape (N, 1, 1, S): its last axis is that of keys",
    PADDED_ROWS: "return all rows as torch does, and let the caller set those of padding to 0",
    NAN_OF_HIDDEN: "let -inf reach the exponential alone: 0 times -inf is NaN",
    "tile of keys is hidden are":
        "take 0 for a running maximum of -inf before it is subtracted",
    "keys are combined in tiles": RESCALED,
    "where the mask is passed, expected by 1": "scale the scores once, with a mask as without",
    BY_LENGTH: UNSORTED,
    " of the output hold those of ": IN_ORDER,
    "hidden keys get ": HIDE,
    SEEN: "let each row see the keys that it should: look at the bounds of loops over keys",
}  # fmt: skip


def mask_remedy(effect: str, name: str) -> str:
    """Return what to do about an effect of a mask, or of two at once."""
    of_both = " and " in name
    for said, remedy in MASK_REMEDIES.items():
        if said in effect and not (of_both and said == SEEN):
            return remedy
    if of_both:
        return "hide a key where either mask hides it, and add both where they are float"
    return "apply the mask to the scores, before the softmax, as it is"
