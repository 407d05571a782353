"""Weights and biases of a function that default to None, as its other weights are given."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mha_parity.targets.fit import names
from mha_parity.targets.fit.roles import givens, is_other

if TYPE_CHECKING:
    import inspect
    from collections.abc import Iterable, Sequence

    from mha_parity.targets.fit.roles import ParameterAssignment, WeightArgument
    from mha_parity.targets.fit.search import InterpretationResult, Search


def with_optional(
    fit: InterpretationResult, named: Sequence[inspect.Parameter], search: Search
) -> InterpretationResult:
    """Return the fit with weights of a function that default to None, where a call then answers.

    Their names say what they are: whether they are used so is for the judge.
    """
    how = fit.interpretation
    roles = with_optional_weights(how.roles, named)
    if roles is None or how.construction is not None:
        return fit
    found = search.tried(replace(how, roles=roles))
    return fit if found.raised else replace(fit, interpretation=found.interpretation)


def with_optional_weights(
    roles: ParameterAssignment, named: Sequence[inspect.Parameter]
) -> ParameterAssignment | None:
    """Return the roles in which what is called after a projection gets its weight or bias.

    None where nothing is left at None that is, or where it is called as what is passed already.
    """
    held = dict(roles.weights)
    passed = _projections(held.values())
    optional = [
        p.name
        for p in named
        if p.default is None
        and p.name not in roles.filled
        and names.is_part(p.name)
        and not is_other(p)
    ]
    if not held or not optional:
        return None
    for given in givens([*held, *optional]):
        found = dict(given)
        more = {name: replace(found[name], optional=True) for name in optional}
        said = _projections(more.values())
        alike = all(found[name] == each for name, each in held.items())
        if alike and not said & passed and len(said) == sum(len(e.parts) for e in more.values()):
            return replace(roles, weights=(*roles.weights, *more.items()))
    return None


def _projections(given: Iterable[WeightArgument]) -> set[tuple[str, bool]]:
    """Return the projections that have an array, each with whether it is the bias."""
    return {(part, each.bias) for each in given for part in each.parts}
