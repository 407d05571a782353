"""Modules of flax.linen and of haiku as layers that hold their parameters, as other layers do.

Such a module makes its weights in a first call within its library, and gets them with each call.
What stands for it has a constructor and a call of the same signatures, and keeps them in `params`.
"""

from __future__ import annotations

import copy
import inspect
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.targets.libraries.first_call_weights import HoldsParameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.core.arrays import Array


class Functional(HoldsParameters):
    """A module that gets its parameters, and a key of random numbers, with each call."""

    __module__ = "jax"  # whose arrays it takes
    calls = 0  # of which each draws its own random numbers

    def key(self) -> Any:
        """Return a key of random numbers that no earlier call had."""
        import jax

        self.calls += 1
        return jax.random.PRNGKey(self.calls)

    @classmethod
    def register(cls) -> None:
        """Have JAX take a layer for a tree of its parameters."""
        register_tree(cls)


def register_tree(kind: type[HoldsParameters]) -> None:
    """Have JAX take layers of a class for trees of their parameters, which it may trace."""
    import jax

    def with_params(made: MadeOf, params: Any) -> HoldsParameters:
        layer = copy.copy(made.layer)
        (layer.params,) = params
        return layer

    jax.tree_util.register_pytree_node(
        kind, lambda layer: ((layer.params,), MadeOf(layer)), with_params
    )


class OfFlax(Functional):
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


class OfHaiku(Functional):
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


def _zeros(shapes: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays of zeros in the place of shapes, in plain dictionaries."""
    return {
        name: _zeros(each) if hasattr(each, "items") else _zero(each)
        for name, each in shapes.items()
    }


def _zero(shape: Any) -> Array:
    return np.zeros(shape.shape, np.float32)


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
