"""Masks that a target requires, and reads the opposite way from what it documents or is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import Answer, ask
from mha_parity.core.verdict import Diagnosis
from mha_parity.diagnose.evidence import Observation
from mha_parity.diagnose.read_weights import plain_case_for
from mha_parity.targets.calls.mask_format import VALUES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.candidate import Candidate
    from mha_parity.targets.calls.mask_format import MaskSearchResult
    from mha_parity.targets.calls.mask_plan import MaskPlan

# The axis and the value of cases that have a mask of torch's name.
TORCHS = {"key_padding_mask": ("padding", "bool"), "attn_mask": ("attn", "bool2d")}
EVIDENCE = "small calls: of a mask of some keys the others take part"


def inverted_masks(candidate: Candidate) -> tuple[Diagnosis, ...]:
    """Return what is said of required masks whose values mean the opposite of what they should.

    A mask that hides nothing is passed in every case, and hides every key: no case is right, and
    none shows more. Of masks that may be left out, the cases show it.
    """
    plan: MaskPlan | None = candidate.masks
    if plan is None:
        return tuple(map(_diagnosis, _of_torchs_name(candidate)))
    every = (found for results in plan.by_layout.values() for found in results)
    return tuple(
        {each.title: each for each in map(_of_search, filter(_is_inverted, every))}.values()
    )


def _of_torchs_name(candidate: Candidate) -> Iterator[str]:
    """Yield the required masks of torch's names whose True keeps, as the answer to one shows."""
    for each in candidate.facts.parameters:
        axis, value = TORCHS.get(each.name, ("", ""))
        if not (each.required and value in candidate.offer.get(axis, ())):
            continue
        problem = make_problem(plain_case_for(candidate, **{axis: value}))
        mask = np.zeros_like(getattr(problem, each.name))
        mask[..., ::2] = True
        asked, opposite = (problem.replace(**{each.name: hidden}) for hidden in (mask, ~mask))
        answer = next(ask(candidate, [asked]))
        if isinstance(answer, Answer):
            right, other = (
                Observation(p, answer, failing=False).error_in_tolerances for p in (asked, opposite)
            )
            if other <= 1 < right:
                yield each.name


def _is_inverted(found: MaskSearchResult) -> bool:
    marked = [taken for taken in found.taken if taken.kind in VALUES]
    return found.parameter.required and bool(marked) and all(each.opposite for each in marked)


def _of_search(found: MaskSearchResult) -> Diagnosis:
    hides = next(taken.hides for taken in found.taken if taken.kind in VALUES)
    return _diagnosis(found.parameter.name, hides=hides)


def _diagnosis(name: str, *, hides: bool = True) -> Diagnosis:
    does, should = ("keeps", "hide") if hides else ("hides", "keep")
    return Diagnosis(
        bug=None,
        title=f"the mask is inverted: True or 1 of `{name}` {does} a key that it should {should}",
        remedy=f"invert `{name}` before it is applied, or say in its documentation what it does",
        explains=1.0,
        evidence=EVIDENCE,
    )
