"""Switches of a constructor that a layer which is built already has set: they cannot be passed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.convention_base.always_causal import CAUSAL, HIDES, hides_the_future
from mha_parity.targets.instances.instance_trials import built_case, own_problem

if TYPE_CHECKING:
    from mha_parity.targets.convention_base.instance_calls import InstanceCalls

MADE = "constructor"  # of a parameter: where it is passed


def settle_switches(bound: InstanceCalls) -> None:
    """Offer the causal rule where the layer hides the future, and nowhere else.

    Trials of its class showed that a parameter of the constructor decides it; which way the layer
    was built only the layer shows.
    """
    plan = bound.masks
    made = () if plan is None else [p for f in plan.by_layout.values() for p in f if p.taken]
    if plan is None or not any(each.parameter.of == MADE for each in made):
        return
    case = built_case(bound).replace(attn="none", inputs="self")
    try:
        hides = hides_the_future(bound, own_problem(bound, case.replace(keys=case.queries)))
    except CandidateError:
        return  # the run says what it raised
    left = {
        layout: tuple(each for each in found if each.parameter.of != MADE)
        for layout, found in plan.by_layout.items()
    }
    bound.masks = replace(plan, by_layout=left, causal_inside=hides, with_gradients=())
    bound.hides_future = hides
    bound.offer = bound.masks.offered(bound.offer, built_case(bound))
    bound.masks = bound.masks.of_gradients(bound.offer, built_case(bound))
    if hides:
        bound.offer = bound.offer | {"inputs": ("self",)}
        bound.reasons["attn", "none"] = HIDES
        bound.remarks = (*bound.remarks, CAUSAL)
