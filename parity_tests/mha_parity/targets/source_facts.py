"""Facts about a target that its source and its documentation show, and no call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mha_parity.targets.dropped_results import dropped_results
from mha_parity.targets.masks.documented_rows import documents_zero_rows
from mha_parity.targets.own_backward import own_backward
from mha_parity.targets.stand_ins import imported_in_name

if TYPE_CHECKING:
    from typing import Any

    from mha_parity.core.target_facts import TargetFacts


def with_source_facts(facts: TargetFacts, subject: Any) -> TargetFacts:
    """Return the facts with those that the source of a target and its documentation show."""
    return replace(
        facts,
        own_backward=own_backward(subject),
        dropped=dropped_results(subject),
        not_installed=imported_in_name(subject),
        zero_rows=documents_zero_rows(subject),
    )
