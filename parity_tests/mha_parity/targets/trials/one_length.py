"""The inputs of a target that answers as many keys as queries alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.core.features import UNLIKE_LENGTHS
from mha_parity.targets.interpretations.try_interpretations import NOT_FINITE, SMALL, Search

if TYPE_CHECKING:
    from mha_parity.targets.trials.call_search import SearchedCalls


def inputs_of_one_length(bound: SearchedCalls) -> tuple[str, ...]:
    """Return the inputs with which a target computes attention where there are L keys.

    Why keys of another number are none of its inputs is then said of the lengths alone. What names
    keys and values, and answers with them, is judged with them, right or wrong.
    """
    square = Search(bound.ask, bound.small_dtype, SMALL.replace(keys=SMALL.queries))
    found = [square.tried_with(bound.how, each) for each in bound.offer["inputs"]]
    right = tuple(
        inputs
        for inputs, each in zip(bound.offer["inputs"], found, strict=True)
        if inputs == "self"
        or (each.exact and each.causal == bound.hides_future)
        or (not each.exact and each.correlation >= NOT_FINITE and bound.how.roles.names_keys)
    )
    if len(right) > 1:
        bound.reasons[UNLIKE_LENGTHS] = bound.reasons["inputs", "cross"]
        for inputs in right:
            bound.reasons.pop(("inputs", inputs), None)
    return right
