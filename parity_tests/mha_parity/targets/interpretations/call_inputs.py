"""Inputs of a call, and a switch of the causal rule beside them, by names alone."""

from __future__ import annotations

import inspect
from typing import Any

from mha_parity.core.parameters import Role
from mha_parity.targets.interpretations.roles import infer_inputs, is_no_input
from mha_parity.targets.static import call_parameters


def inputs_of_call(call: Any, *, skip_self: bool = False) -> tuple[tuple[str, str], ...]:
    """Return which parameters of a function get query, key and value, masks and such left out."""
    named = call_parameters.of_callable(call, skip_self=skip_self)
    return infer_inputs([p for p in named if not is_no_input(p)])


def switches_rule(call: Any) -> bool:
    """Return whether a call has a switch of the causal rule, which is no mask."""
    named = inspect.signature(call).parameters.values()
    roles = (call_parameters.role(each.name, "call", each.default) for each in named)
    return Role.CAUSAL in roles
