"""A module whose library makes its weights in a first call, as a layer that holds its parameters.

What stands for it has a constructor and a call of the same signatures, and keeps them in `params`.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from mha_parity.targets.libraries.first_call import make_parameters

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.targets.static.argument_meanings import LayerSizes

PLAIN = (int, float, str, type, type(None))


class HoldsParameters:
    """A module of a target's class with its parameters, which its first call makes."""

    __module__ = "jax"  # whose arrays it takes
    kind: type
    made_by_a_call: tuple[str, ...] = ("params",)
    first_calls: ClassVar[list[Any]]  # those that went through, by shape and roles
    known: ClassVar[dict[Any, dict[str, Any]]]  # what these made, by sizes and arguments
    replaces_modules = False  # whether a function may stand in the place of a module within

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.params: dict[str, Any] = {}
        # Functions of the rows in the place of modules within, by the paths of their parameters.
        self.replaced: dict[str, Callable[[Any], Any]] = {}
        self.make = partial(self.kind, *args, **kwargs)

    @classmethod
    def register(cls) -> None:
        """Have its library know a class of it, where it has to."""

    @classmethod
    def stands_for(cls, kind: type) -> bool:
        """Return whether a class of its library is called through it."""
        del kind
        return True

    @classmethod
    def call_of(cls, kind: type) -> Any:
        """Return the function by which objects of its library's class are called."""
        return kind.__call__

    def arguments(self) -> tuple[tuple[str, str], ...]:
        """Return what the module is built with; of an object its type and its attributes."""
        given = (*enumerate(self.make.args), *self.make.keywords.items())
        return tuple((str(name), _described(each)) for name, each in given)

    def make_parameters_for(self, sizes: LayerSizes) -> None:
        """Make the parameters by a first call of these sizes."""
        make_parameters(self, sizes)

    def initialise(self, *args: Any, **kwargs: Any) -> None:
        """Make the parameters that a call with these arguments asks for, all 0."""
        raise NotImplementedError

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module answers with the parameters that are held."""
        raise NotImplementedError


def _described(value: Any, depth: int = 3) -> str:
    """Return a text that is equal for arguments of equal numbers: of an object by its attributes.

    What is deeper within counts by its identity: a program is then compiled once more.
    """
    if isinstance(value, PLAIN) or callable(value):
        return repr(value)
    held = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    if dataclasses.is_dataclass(value):
        held = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if held is None or not depth:
        return f"{type(value)} {id(value)}"
    items = (f"{name}: {_described(each, depth - 1)}" for name, each in held.items())
    return f"{type(value)} {{{', '.join(items)}}}"
