"""Classes of libraries that make weights in a first call, as layers that hold their parameters."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from mha_parity.targets.libraries.first_call_weights import HoldsParameters
from mha_parity.targets.libraries.flax_haiku_modules import OfFlax, OfHaiku
from mha_parity.targets.libraries.keras_modules import OfKeras

# Parameters of a constructor that name a module, or say what it stands in.
OF_THE_LIBRARY = frozenset({"name", "parent"})
# The module in which a library has its base class, its name there, and what stands for it.
_BASES: dict[str, tuple[str, type[HoldsParameters]]] = {
    "flax.linen": ("Module", OfFlax), "haiku": ("Module", OfHaiku), "keras": ("Layer", OfKeras),
}  # fmt: skip


def as_layer(subject: Any) -> Any:
    """Return a layer class that stands for one of flax, haiku or Keras; others as they are."""
    if not isinstance(subject, type) or issubclass(subject, HoldsParameters):
        return subject
    for module, (name, stands) in _BASES.items():
        base = getattr(sys.modules.get(module), name, None)
        if isinstance(base, type) and issubclass(subject, base) and stands.stands_for(subject):
            return _standing_for(subject, stands)
    return subject


def _standing_for(kind: Any, stands: type[HoldsParameters]) -> type:
    """Return a class of the name, constructor, call and source of ``kind``."""
    named = inspect.signature(kind)
    own = [each for each in named.parameters.values() if each.name not in OF_THE_LIBRARY]

    def call(self: HoldsParameters, *args: Any, **kwargs: Any) -> Any:
        return self.apply(*args, **kwargs)

    own_call = stands.call_of(kind)
    call.__signature__ = inspect.signature(own_call)  # type: ignore[attr-defined]  # is read by inspect
    call.__wrapped__ = own_call  # type: ignore[attr-defined]  # whose source it is
    call.__doc__ = own_call.__doc__
    made: type[HoldsParameters] = type(kind.__name__, (stands,), {
        "kind": kind, "first_calls": [], "known": {}, "forward": call, "__call__": call,
        "__doc__": kind.__doc__, "__module__": kind.__module__,
        "__qualname__": kind.__qualname__, "__wrapped__": kind,
        "__signature__": named.replace(parameters=own, return_annotation=named.empty),
    })  # fmt: skip
    made.register()
    return made
