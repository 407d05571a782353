"""The roles of calls in which one parameter gets several inputs, likeliest first."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

from mha_parity.targets.interpretations.packed_inputs import AXES, CONTAINERS, PackedInput
from mha_parity.targets.static import projection_names as names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.targets.interpretations.parameter_assignment import ParameterAssignment


def packed(
    roles: ParameterAssignment, layout: str, arrangement: str, *, many_heads: bool
) -> Iterator[ParameterAssignment]:
    """Yield roles in which the last input of a call without weights holds several."""
    if roles.weights or len(roles.inputs) > 2:
        return
    name = roles.inputs[-1][0]
    alone = len(roles.inputs) == 1
    parts = spelt(name, names.ROWS if alone else ("k", "v"))
    # A name that says nothing is not tried with every mask besides.
    if not parts and (not alone or roles.filler != "none"):
        return
    found = PackedInput(name, parts or names.ROWS, named=bool(parts))
    others = tuple(each for each in roles.inputs[:-1])
    inputs = (*others, *((name, role) for role in found.roles))
    for axes in AXES.get((layout, arrangement), ()):
        groups = tuple(axes.split())
        if "hpd" in groups and not many_heads:  # of one head it is the same
            continue
        for container in ("array",) if groups else CONTAINERS:
            each = replace(found, axes=groups, container=container)
            yield replace(roles, inputs=inputs, packed=each)


def in_containers(roles: ParameterAssignment) -> Iterator[ParameterAssignment]:
    """Yield roles in which the only input of a layer is a tuple or a list of all three."""
    if len(roles.inputs) > 1:
        return
    name = roles.inputs[0][0]
    parts = spelt(name, names.ROWS)
    for container in CONTAINERS:
        found = PackedInput(name, parts or names.ROWS, container=container, named=bool(parts))
        yield replace(roles, inputs=tuple((name, role) for role in found.roles), packed=found)


def spelt(name: str, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return in which order a parameter's name has these parts; () if it does not."""
    if set(names.parts(name)) == set(wanted):
        return names.parts(name)
    plain = names.plain(name)
    return next((order for order in permutations(wanted) if "".join(order) in plain), ())
