"""Masks that a target requires, and reads the opposite way from what it documents or is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.core.verdict import Diagnosis
from mha_parity.targets.masks.mask_format import VALUES

if TYPE_CHECKING:
    from mha_parity.core.candidate import Candidate
    from mha_parity.targets.masks.mask_format import MaskSearchResult
    from mha_parity.targets.masks.plan import MaskPlan

EVIDENCE = "small calls: of a mask of some keys the others take part"


def inverted_masks(candidate: Candidate) -> tuple[Diagnosis, ...]:
    """Return what is said of required masks whose values mean the opposite of what they should.

    A mask that hides nothing is passed in every case, and hides every key: no case is right, and
    none shows more. Of masks that may be left out, the cases show it.
    """
    plan: MaskPlan | None = getattr(candidate, "masks", None)
    if plan is None:
        return ()
    every = (found for results in plan.by_layout.values() for found in results)
    return tuple(
        {each.title: each for each in map(_diagnosis, filter(_is_inverted, every))}.values()
    )


def _is_inverted(found: MaskSearchResult) -> bool:
    marked = [taken for taken in found.taken if taken.kind in VALUES]
    return found.parameter.required and bool(marked) and all(each.opposite for each in marked)


def _diagnosis(found: MaskSearchResult) -> Diagnosis:
    name = found.parameter.name
    hides = next(taken.hides for taken in found.taken if taken.kind in VALUES)
    does, should = ("keeps", "hide") if hides else ("hides", "keep")
    return Diagnosis(
        bug=None,
        title=f"the mask is inverted: True or 1 of `{name}` {does} a key that it should {should}",
        remedy=f"invert `{name}` before it is applied, or say in its documentation what it does",
        explains=1.0,
        evidence=EVIDENCE,
    )
