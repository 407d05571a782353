"""Expressions of an adapter's call for keys and values of no rows, which a target requires."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.targets.caches.cache_objects import arguments_of_maker, first_maker
from mha_parity.targets.interpretations.empty_past import KEYS, OBJECT, VALUES
from mha_parity.targets.static.signatures import forward

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.targets.trials.fitted_target import Fitted

_AXES = {"G": "call.num_heads", "0": "0", "D": "call.head_dim", "C": "call.embed_dim"}
_EMPTY = {
    "torch": "call.query.new_zeros({})", "jax": "jnp.zeros({}, call.query.dtype)",
    "numpy": "np.zeros({}, call.query.dtype)",
}  # fmt: skip


def state_expressions(fitted: Fitted, sizes: Mapping[str, str]) -> dict[str, str]:
    """Return what each parameter gets that keeps the keys and values of earlier calls.

    ``sizes`` are expressions by meaning, for the caches that the target's own code makes.
    """
    states = fitted.how.roles.states
    of_code = (name for name, form in states if form == OBJECT)
    made = {name: _made(fitted, name, sizes) for name in of_code}
    return {name: made.get(name) or _empty(fitted, form) for name, form in states}


def _empty(fitted: Fitted, form: str) -> str:
    """Return arrays of no row, with the axes that trials have shown."""
    kind, axes = form.split()
    if axes == "none":
        return "(None, None)"
    samples = "1" if fitted.how.layout == "unbatched" else "len(call.query)"
    width = "call.value.shape[-1] // call.num_heads"  # of values, which is one of its own
    widths = {"D": _AXES["D"] if fitted.how.parts else width, "C": "call.value.shape[-1]"}
    keys, values = (
        _EMPTY[fitted.library.name].format(f"({', '.join(sizes[axis] for axis in axes)})")
        for sizes in ({"N": samples, **_AXES}, {"N": samples, **_AXES, **widths})
    )
    return {KEYS: keys, VALUES: values}.get(kind, f"({keys}, {values})")


def _made(fitted: Fitted, name: str, sizes: Mapping[str, str]) -> str:
    """Return the call of what makes a cache: of the target's module, a class there, or the layer.

    Raises
    ------
    CandidateError
        It needs what no expression says.

    """
    problem = make_problem(fitted.trial_case())
    call, entry = fitted.prepare(problem), fitted.entry()
    parameter = next(each for each in fitted.call_parameters if each.name == name)
    made_by, _ = first_maker(parameter, entry, fitted.subject, call, problem)
    given = arguments_of_maker(made_by, entry, call)
    if not {*given.values()} <= sizes.keys():
        raise CandidateError("structure", f"no expression says what `{made_by}` takes")
    said = ", ".join(f"{each}={sizes[meaning]}" for each, meaning in given.items())
    kind, _, method = made_by.partition(".")
    if kind not in inspect.unwrap(entry).__globals__:
        return f"layer.{made_by}({said})"
    of_class = isinstance(fitted.subject, type)
    place = f"Target.{forward(fitted.subject).__name__}" if of_class else "Target"
    place += ".__wrapped__" * hasattr(entry, "__wrapped__")
    return f"{place}.__globals__[{json.dumps(kind)}]{f'.{method}' * bool(method)}({said})"
