"""Dropout whose probability is taken in the call, or by the constructor of a layer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.parameters import Role
from mha_parity.targets.conventions.calls import Arguments
from mha_parity.targets.conventions.layer_modes import has_modes, set_mode
from mha_parity.targets.parameters import role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mha_parity.core.problem import Problem
    from mha_parity.targets.conventions.base import Convention
    from mha_parity.targets.conventions.calls import Call
    from mha_parity.targets.conventions.interpreted import InterpretedCalls

GENERATORS = ("rng", "generator")  # what the argument for a generator of NumPy's is called


def generator_argument(
    convention: Convention, named: Iterable[str], problem: Problem
) -> dict[str, Any]:
    """Return a NumPy generator under the first of the names it usually goes by."""
    if convention.library.name != "numpy":
        return {}
    taken = [name for name in GENERATORS if name in set(named)][:1]
    return {name: np.random.default_rng(problem.case.seed) for name in taken}


def with_dropout_passed(
    convention: Convention, problem: Problem, p: float
) -> Callable[[bool], Call] | None:
    """Return what makes calls with the dropout probability, 0 in evaluation; None without one."""
    named = [
        each.name
        for each in convention.call_parameters
        if role(each.name, "call", each.default) is Role.DROPOUT and isinstance(each.default, float)
    ]
    if len(named) != 1 or p == 1:  # no dropout of a target's own promises what 0 / 0 is
        return None

    def asked(training: bool) -> Call:
        call = convention.prepare(problem)
        return replace(call, kwargs={**call.kwargs, named[0]: p * training})

    return asked


def with_layer_dropout(
    convention: InterpretedCalls, problem: Problem, p: float
) -> Callable[[bool], Call] | None:
    """Return what makes calls of a layer in train() and in eval() mode; None if it never drops.

    A layer that knows no evaluation drops in it as well.
    """
    layer = convention.dropping(problem, p)
    # No dropout of a target's own promises what 0 / 0 is.
    if layer is None or (p == 1 and not has_modes(layer)):
        return None

    def asked(training: bool) -> Call:
        held = set_mode(layer, training) if has_modes(layer) else layer
        arguments = Arguments(problem, convention.library)
        return convention.layer_call(held, arguments, training=training)

    return asked
