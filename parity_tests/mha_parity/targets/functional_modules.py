"""Modules of flax.linen and of haiku as layers that hold their parameters, as other layers do.

Such a module makes its weights in a first call within its library, and gets them with each call.
What stands for it has a constructor and a call of the same signatures, and keeps them in `params`.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import sys
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mha_parity.targets.fit.first_call import make_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.targets.fit.argument_meanings import LayerSizes

# Parameters of a constructor that name a module, or say what it stands in.
OF_THE_LIBRARY = frozenset({"name", "parent"})
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
        self.calls = 0  # of which each draws its own random numbers

    def arguments(self) -> tuple[tuple[str, str], ...]:
        """Return what the module is built with; of an object its type and its attributes."""
        given = (*enumerate(self.make.args), *self.make.keywords.items())
        return tuple((str(name), _described(each)) for name, each in given)

    def key(self) -> Any:
        """Return a key of random numbers that no earlier call had."""
        import jax

        self.calls += 1
        return jax.random.PRNGKey(self.calls)

    def make_parameters_for(self, sizes: LayerSizes) -> None:
        """Make the parameters by a first call of these sizes."""
        make_parameters(self, sizes)

    def initialise(self, *args: Any, **kwargs: Any) -> None:
        """Make the parameters that a call with these arguments asks for, all 0."""
        raise NotImplementedError

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module answers with the parameters that are held."""
        raise NotImplementedError


class OfFlax(HoldsParameters):
    """A module of flax.linen."""

    __module__ = "jax"
    made_by_a_call = ("params", "others")
    replaces_modules = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.make()  # raises what the constructor does
        self.others: dict[str, Any] = {}

    def initialise(self, *args: Any, **kwargs: Any) -> None:
        """Make the parameters, and keep the other variables that the first call makes."""
        import jax

        rngs = {"params": self.key(), "dropout": self.key()}
        first = partial(self.make().init, rngs, *args, **kwargs)
        held = dict(jax.eval_shape(first))
        self.params = _zeros(held.pop("params", {}))
        if held:
            self.others = {name: each for name, each in first().items() if name in held}

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        """Return the answer; dropout has a key of its own."""
        linen = import_module("flax.linen")
        held = {"params": self.params, **self.others}
        with linen.intercept_methods(self.called):
            return self.make().apply(held, *args, rngs={"dropout": self.key()}, **kwargs)

    def called(self, function: Any, args: Any, kwargs: Any, context: Any) -> Any:
        """Return what a method of a module within returns, or what stands in its place."""
        path = ".".join(("params", *context.module.path))
        if context.method_name != "__call__" or path not in self.replaced:
            return function(*args, **kwargs)
        return self.replaced[path](args[0])


class OfHaiku(HoldsParameters):
    """A module of haiku, which is built within `transform` alone."""

    __module__ = "jax"
    made_by_a_call = ("params", "modules", "state")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        import haiku

        # All weights are replaced: some modules are not built without a first value of them.
        named = inspect.signature(self.kind).parameters
        if "w_init" in named and "w_init" not in kwargs:
            kwargs["w_init"] = haiku.initializers.Constant(0.0)
        super().__init__(*args, **kwargs)
        self.transformed = haiku.transform_with_state(self.call)
        self.state: Any = {}
        self.modules: dict[str, tuple[str, ...]] = {}

    def initialise(self, *args: Any, **kwargs: Any) -> None:
        """Make the parameters by the paths of the modules within, and keep the state."""
        import jax

        first = partial(self.transformed.init, self.key(), *args, **kwargs)
        held, state = jax.eval_shape(first)
        self.state = first()[1] if state else {}
        self.params, self.modules = {}, {}
        for module, arrays in held.items():
            # The first step is the module's own name, `~` stands for its constructor.
            path = tuple(step for step in module.split("/")[1:] if step != "~")
            self.modules[module] = path
            place = self.params
            for step in path:
                place = place.setdefault(step, {})
            place.update(_zeros(arrays))

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        """Return the answer, and leave out the state."""
        held = {module: self._of(path) for module, path in self.modules.items()}
        answer, _ = self.transformed.apply(held, self.state, self.key(), *args, **kwargs)
        return answer

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Return the answer of a module that is built for the call, as haiku transforms it."""
        return self.make()(*args, **kwargs)

    def _of(self, path: tuple[str, ...]) -> dict[str, Any]:
        place = self.params
        for step in path:
            place = place[step]
        return {name: each for name, each in place.items() if not isinstance(each, dict)}


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


def _zeros(shapes: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays of zeros in the place of shapes, in plain dictionaries."""
    return {
        name: _zeros(each) if hasattr(each, "items") else _zero(each)
        for name, each in shapes.items()
    }


def _zero(shape: Any) -> Array:
    return np.zeros(shape.shape, np.float32)


# The module in which a library has its base class, its name there, and what stands for it.
_BASES: dict[str, tuple[str, type[HoldsParameters]]] = {
    "flax.linen": ("Module", OfFlax), "haiku": ("Module", OfHaiku),
}  # fmt: skip


def as_layer(subject: Any) -> Any:
    """Return a layer class that stands for a class of flax.linen or haiku; any other as it is."""
    if not isinstance(subject, type) or issubclass(subject, HoldsParameters):
        return subject
    for module, (name, stands) in _BASES.items():
        base = getattr(sys.modules.get(module), name, None)
        if isinstance(base, type) and issubclass(subject, base):
            return _standing_for(subject, stands)
    return subject


def _standing_for(kind: Any, stands: type[HoldsParameters]) -> type:
    """Return a class of the name, constructor, call and source of ``kind``."""
    named = inspect.signature(kind)
    own = [each for each in named.parameters.values() if each.name not in OF_THE_LIBRARY]

    def call(self: HoldsParameters, *args: Any, **kwargs: Any) -> Any:
        return self.apply(*args, **kwargs)

    call.__signature__ = inspect.signature(kind.__call__)  # type: ignore[attr-defined]  # is read by inspect
    call.__wrapped__ = kind.__call__  # type: ignore[attr-defined]  # whose source it is
    call.__doc__ = kind.__call__.__doc__
    made = type(kind.__name__, (stands,), {
        "kind": kind, "first_calls": [], "known": {}, "forward": call, "__call__": call,
        "__doc__": kind.__doc__, "__module__": kind.__module__,
        "__qualname__": kind.__qualname__, "__wrapped__": kind,
        "__signature__": named.replace(parameters=own, return_annotation=named.empty),
    })  # fmt: skip
    _register(made)
    return made


def _register(kind: type[HoldsParameters]) -> None:
    """Have JAX take a layer for a tree of its parameters, which it may trace."""
    import jax

    def with_params(made: MadeOf, params: Any) -> HoldsParameters:
        layer = copy.copy(made.layer)
        (layer.params,) = params
        return layer

    jax.tree_util.register_pytree_node(
        kind, lambda layer: ((layer.params,), MadeOf(layer)), with_params
    )


class MadeOf:
    """Class and arguments of a layer, without parameters: equal for layers built alike."""

    def __init__(self, layer: HoldsParameters) -> None:
        self.layer = layer
        self._known = type(layer), layer.arguments()

    def __eq__(self, other: object) -> bool:
        """Compare the classes and the arguments that they are built with."""
        return isinstance(other, MadeOf) and self._known == other._known

    def __hash__(self) -> int:
        """Return what equal ones share."""
        return hash(self._known)
