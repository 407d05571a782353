"""Which layouts and arrangements of rows are tried, by the documentation of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mha_parity.targets.interpretations.interpretation import ALONG_ONE_AXIS, LAYOUTS, OF_HEADS
from mha_parity.targets.static.documented_layout import (
    documents_heads,
    documents_heads_first,
    documents_samples_first,
    documents_samples_of_heads,
)

if TYPE_CHECKING:
    from mha_parity.targets.interpretations.parameter_assignment import ParameterAssignment

# Along one axis of positions is tried where the grid is answered (`along_one_axis`). Heads before
# samples differ from heads behind them by masks alone, so that a documentation has to say which.
_TRIED_FIRST = tuple(each for each in LAYOUTS if each[1] not in {*ALONG_ONE_AXIS, "heads_first"})


def layouts_of(subject: Any) -> tuple[tuple[str, str], ...]:
    """Return the layouts and arrangements that the documentation of a subject leaves open."""
    if documents_heads_first(subject):
        without_heads = (each for each in _TRIED_FIRST if each[1] not in OF_HEADS)
        return (*without_heads, ("batch_first", "heads_first"))
    never_first = _never_first(subject)
    return tuple(
        (layout, arrangement)
        for layout, arrangement in _TRIED_FIRST
        if layout == "batch_first" or arrangement not in never_first
    )


def may_have_heads(function: Any, roles: ParameterAssignment) -> bool:
    """Return whether a function may take heads as an axis: what gets their number by its words."""
    return not roles.weights and (not roles.heads or documents_heads(function))


def _never_first(subject: Any) -> frozenset[str]:
    """Return the arrangements whose rows are documented behind the samples."""
    if documents_samples_first(subject):
        return frozenset({"rows", "rows_of_heads"})
    return frozenset({"rows_of_heads"} if documents_samples_of_heads(subject) else ())
