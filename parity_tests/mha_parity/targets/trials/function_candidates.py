"""The interpretations of a function that names leave open, likeliest first."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from mha_parity.targets.interpretations import roles as call_roles
from mha_parity.targets.interpretations.interpretation import (
    HEADS_OF_ONE,
    OF_CONVOLUTIONS,
    OF_HEADS,
    OF_ONE_INPUT,
    Interpretation,
)
from mha_parity.targets.interpretations.layouts import layouts_of, may_have_heads
from mha_parity.targets.interpretations.packed_roles import packed
from mha_parity.targets.layers.module_constants import numbers_read
from mha_parity.targets.static import call_parameters
from mha_parity.targets.static.names_in_code import keys_read, names_unpacked, records_annotated

if TYPE_CHECKING:
    from collections.abc import Iterator


def function_interpretations(function: Any) -> Iterator[Interpretation]:
    """Yield how a function may be meant, by its parameters and by the names that its code reads."""
    named = call_parameters.of_callable(function)
    records, tuples = records_annotated(function), names_unpacked(function)
    numbers = numbers_read(function)
    for roles in call_roles.function_roles(named, keys_read(function), [*records, *tuples]):
        many = roles.has_many_heads or not {"heads", "head_dim"}.isdisjoint(numbers.values())
        # What takes heads as an axis takes rows of one head too, and mixes heads unseen in these.
        # What gets their number splits rows by it: one that ignores it is right with an axis of
        # heads, which is tried where the documentation has it, and after all else.
        for layout, arrangement in sorted(
            layouts_of(function),
            key=lambda e: (e == HEADS_OF_ONE, (e[1] in OF_HEADS) == bool(roles.heads)),
        ):
            heads = arrangement in OF_HEADS
            if heads and not may_have_heads(function, roles):
                continue
            many_heads = many or heads
            # Rows behind their channels, which are cut into the heads, as convolutions leave them.
            channels = arrangement == "channels" and roles.heads and not roles.weights
            if channels or arrangement not in OF_CONVOLUTIONS | OF_ONE_INPUT | {"grid"}:
                yield Interpretation(roles, layout, arrangement, many_heads=many_heads)
            for each in packed(roles, layout, arrangement, many_heads=many_heads):
                yield Interpretation(each, layout, arrangement, many_heads=many_heads)
    # Last, masks that default to None and hide nothing instead: None may raise.
    calls = itertools.product(call_roles.with_optional_masks(named), layouts_of(function))
    for roles, (layout, arrangement) in calls:
        if arrangement in OF_HEADS and may_have_heads(function, roles):
            yield Interpretation(roles, layout, arrangement, many_heads=True)
