"""The first call of a layer that makes its parameters in it: whatever goes through shows them."""

from __future__ import annotations

from copy import deepcopy
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.calls.target_call import target_errors
from mha_parity.targets.interpretations.roles import of_layer, with_optional_masks, with_random_keys
from mha_parity.targets.static import call_parameters
from mha_parity.targets.static.call_parameters import modes_of
from mha_parity.targets.static.signatures import forward

if TYPE_CHECKING:
    from mha_parity.targets.static.argument_meanings import LayerSizes

N, L = 2, 3  # samples and rows of the first call
SHAPES = ((N, L), (L,), (N, L, L))  # of rows, their width left out


def make_parameters(layer: Any, sizes: LayerSizes) -> None:
    """Make the parameters of a layer by the first call that its library traces.

    Raises
    ------
    CandidateError
        No call went through; it says what the first one raised.

    """
    key = sizes, layer.arguments()
    if (known := type(layer).known.get(key)) is not None:
        vars(layer).update(deepcopy(known))
        return
    named = call_parameters.of_callable(forward(layer))
    raised: list[CandidateError] = []
    # What went through for one layer of a class does for another: tracing calls takes long.
    went_through = type(layer).first_calls
    ways = [*of_layer(named), *with_random_keys(named), *with_optional_masks(named)]
    calls = product(SHAPES, ways)
    for shape, roles in (*went_through, *(each for each in calls if each not in went_through)):
        rows = np.zeros((*shape, sizes.width), np.float32)
        values: dict[str, Any] = {name: rows for name, _ in roles.inputs}
        values |= roles.without_effect(sizes.case(N, L), np.float32, lambda _, array: array)
        values |= roles.of_lengths(L, L)
        values |= roles.sized(sizes)
        values |= modes_of(named, training=False)
        try:
            with target_errors():
                layer.initialise(**values)
        except CandidateError as error:
            raised.append(error)
        else:
            went_through[:] = [(shape, roles)]
            made = {name: vars(layer)[name] for name in layer.made_by_a_call}
            type(layer).known[key] = deepcopy(made)
            return
    if raised:
        raise raised[0]
