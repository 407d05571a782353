"""Keys and values that may be left out: by their names, or where a small call shows them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import CandidateError
from mha_parity.core.parameters import Role
from mha_parity.targets import parameters
from mha_parity.targets.fit.roles import inputs_of_call
from mha_parity.targets.fit.search import attention_in_float64, is_rounding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.core.problem import Problem
    from mha_parity.targets.conventions.base import Convention

# Names that keys and values have together, which may be a pair of another layer's or call's.
PAIR = re.compile(r"^(kv|key_?values?)(_|s?$)")


def optional_inputs(
    call: Any, required: Sequence[str], rows: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Return keys and values that may be left out: the names of their parameters and roles."""
    found, first = inputs_of_call(call), tuple(required[: len(rows)])
    known = first == tuple(name for name, _ in found[: len(rows)])
    return found[len(rows) :] if known else ()


def unknown_inputs(call: Any) -> tuple[str, ...]:
    """Return the parameters of a call that default to None and of which the name says nothing."""
    named = parameters.of_callable(call)
    return tuple(
        each.name
        for each in named
        if each.default is None and parameters.role(each.name, "call", None) is Role.OTHER
    )


def raised(convention: Convention, problem: Problem) -> str:
    """Return what a call raises, "" where it is answered."""
    try:
        convention(problem)
    except CandidateError as error:
        return str(error)
    return ""


def attends(convention: Convention, problem: Problem) -> bool:
    """Return whether a target computes torch's attention on a problem, up to rounding."""
    try:
        output = convention(problem).output
    except CandidateError:
        return False
    same = output.shape == problem.output_shape
    return same and is_rounding(output, attention_in_float64(problem, causal=False))
