"""Features that are taken back from an offer, by what is documented or a further call shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.targets.convention_base.cubic_backward import longest_with_gradients
from mha_parity.targets.convention_base.float32_masks import passes_float32_masks
from mha_parity.targets.masks.documented_meaning import documents_booleans
from mha_parity.targets.static.custom_gradients import own_backward

if TYPE_CHECKING:
    from mha_parity.core.case import Case
    from mha_parity.targets.convention_base.convention import Convention

FLOAT_MASKS = (
    ("attn", "attn_mask", ("float2d", "float3d")),
    ("padding", "key_padding_mask", ("float",)),
)


def gradients_of_nothing(convention: Convention) -> Case | None:
    """Return a case of no rows and no keys with gradients, by a backward pass of the target's own.

    None where no such case is offered.
    """
    offer = convention.offer
    if "empty" not in offer["size"] or "yes" not in offer["gradients"]:
        return None
    if not own_backward(convention.subject):
        return None
    return convention.trial_case().replace(queries=0, keys=0, gradients="yes")


def leave_out_empty(convention: Convention, reason: str) -> None:
    """Take no rows and no keys back where gradients of them raise; "" where they do not."""
    if not reason:
        return
    kept = tuple(each for each in convention.offer["size"] if each != "empty")
    convention.offer = convention.offer | {"size": kept}
    convention.reasons["size", "empty"] = f"with gradients it {reason}"


def leave_out_floats(convention: Convention) -> None:
    """Take floats back of masks of torch's names that the documentation says are booleans."""
    for axis, name, values in FLOAT_MASKS:
        held = name if name in {p.name for p in convention.parameters} else "attn_mask"
        if convention.masks is not None or held not in convention.own_masks:
            continue
        if documents_booleans(convention.subject, convention.entry(), held):
            left = tuple(each for each in convention.offer[axis] if each not in values)
            taken_back = [each for each in values if each in convention.offer[axis]]
            convention.offer = convention.offer | {axis: left}
            reason = f"its documentation says that `{held}` is boolean"
            convention.reasons |= {(axis, each): reason for each in taken_back}


def see_float32_masks(convention: Convention) -> None:
    """Keep whether it gives torch's function masks that its kernel misreads."""
    convention.float32_masks = passes_float32_masks(convention)


def limit_lengths(convention: Convention) -> None:
    """Keep of how many rows gradients can be asked, where their time is the cube of that."""
    convention.longest = longest_with_gradients(convention)
