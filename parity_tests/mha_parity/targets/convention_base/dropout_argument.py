"""Dropout whose probability is taken in the call, or by the constructor of a layer."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.parameters import Role
from mha_parity.targets.calls.layer_modes import has_modes, is_of_equinox, set_mode
from mha_parity.targets.calls.target_call import Arguments, with_arguments
from mha_parity.targets.static.call_parameters import role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mha_parity.core.problem import Problem
    from mha_parity.targets.backends.base import Library
    from mha_parity.targets.calls.target_call import Call
    from mha_parity.targets.convention_base.convention import Convention
    from mha_parity.targets.convention_base.interpreted import InterpretedCalls

GENERATORS = ("rng", "generator")  # what the argument for a generator of NumPy's is called
WITHOUT_KEY = "dropout was not judged: its call takes no key, without which it raises in training."
_SEED = re.compile(r"(\w+_)?seed")
_SOURCE = re.compile(
    r"generator|rng|key|((dropout|drop|rng|prng|random|attn_dropout)_?)(key|rng|generator)"
)


def generator_argument(
    convention: Convention, named: Iterable[str], problem: Problem
) -> dict[str, Any]:
    """Return a NumPy generator under the first of the names it usually goes by."""
    if convention.library.name != "numpy":
        return {}
    taken = [name for name in GENERATORS if name in set(named)][:1]
    return {name: np.random.default_rng(problem.case.seed) for name in taken}


def with_sources(convention: Convention, problem: Problem, call: Call) -> Call:
    """Return the call with what it may draw random numbers from, where it would get nothing.

    These are seeds, which are whole numbers, and parameters that are None by default: generators,
    and keys of JAX. Without them some targets drop nothing.
    """
    named = convention.call_parameters
    taken = {each.name for each in named[: len(call.args)]} | {*call.kwargs}
    # Beside `value` a key is one of rows.
    of_rows = {"key"} if "value" in {each.name for each in named} else set()
    seed = problem.case.seed
    taken |= of_rows if convention.library.name == "jax" else {"key"}
    found: dict[str, Any] = {}
    for each in named:
        if each.name in taken or each.default is each.empty:
            continue
        if _SEED.fullmatch(each.name.lower()):
            found[each.name] = seed
        elif each.default is None and _SOURCE.fullmatch(each.name.lower()):
            found[each.name] = _source(convention.library, seed)
    return with_arguments(call, named, found)


def _source(library: Library, seed: int) -> Any:
    """Return what a library draws random numbers from, on its device."""
    if library.name == "jax":
        import jax

        return jax.random.PRNGKey(seed)
    if library.name == "torch":
        import torch

        return torch.Generator(getattr(library, "device", "cpu")).manual_seed(seed)
    return np.random.default_rng(seed)


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
        call = with_sources(convention, problem, convention.prepare(problem))
        more = convention.modes(training=training) | {named[0]: p * training}
        return with_arguments(call, convention.call_parameters, more)

    return asked


def untracked(call: Call, library: Library) -> Call:
    """Return a call of torch's tensors that tracks no gradients; another as it is."""
    if library.name != "torch":
        return call
    import torch

    return replace(call, function=torch.no_grad()(call.function))


def with_layer_dropout(
    convention: InterpretedCalls, problem: Problem, p: float
) -> Callable[[bool], Call] | None:
    """Return what makes calls of a layer in train() and in eval() mode; None if it never drops.

    A layer that knows no evaluation drops in it as well, unless it asks whether gradients are
    tracked: it is evaluated where they are not.
    """
    layer = convention.dropping(problem, p)
    # No dropout of a target's own promises what 0 / 0 is.
    if layer is None or (p == 1 and not has_modes(layer)):
        return None
    # What equinox drops needs a key, which a call without one cannot have.
    named = (each.name.lower() for each in convention.call_parameters)
    if is_of_equinox(layer) and not any(map(_SOURCE.fullmatch, named)):
        convention.remarks = tuple(dict.fromkeys((*convention.remarks, WITHOUT_KEY)))
        return None

    def asked(training: bool) -> Call:
        held = set_mode(layer, training) if has_modes(layer) else layer
        arguments = Arguments(problem, convention.library)
        call = convention.layer_call(held, arguments, training=training)
        if not training and not has_modes(layer):
            call = untracked(call, convention.library)
        return with_sources(convention, problem, call)

    return asked
