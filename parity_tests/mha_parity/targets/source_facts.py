"""Facts about a target that its source and its documentation show, and no call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mha_parity.core.parameters import Role
from mha_parity.targets.loading.library_stubs import imported_in_name
from mha_parity.targets.static.custom_gradients import own_backward
from mha_parity.targets.static.discarded_results import dropped_results
from mha_parity.targets.static.documented_masked_rows import documents_zero_rows
from mha_parity.targets.trials.companion_calls import CallsBeside

if TYPE_CHECKING:
    from mha_parity.core.target_facts import TargetFacts
    from mha_parity.targets.convention_base.convention import Convention


OF_MASKS = frozenset({Role.MASK, Role.SCORE_BIAS})


def source_facts(bound: Convention) -> TargetFacts:
    """Return a target's facts with those that its source and its documentation show."""
    subject, beside = bound.subject, getattr(bound, "beside", None)
    masks = [p.name for p in bound.facts.parameters if p.of == "call" and p.role in OF_MASKS]
    lacks = isinstance(bound, CallsBeside) and bound.lacks_gradients_of(masks)
    return replace(
        bound.facts,
        without_mask_gradients=lacks,
        own_backward=f"`{beside.name}` stands beside it" if beside else own_backward(subject),
        dropped=dropped_results(subject),
        not_installed=imported_in_name(subject),
        zero_rows=documents_zero_rows(subject),
    )
