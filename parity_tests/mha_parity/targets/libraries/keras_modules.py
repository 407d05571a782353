"""Layers of one's own in Keras as layers that hold their parameters, as other layers do.

Such a layer makes its weights, and those of the layers within, in a first call, and knows them by
names that Keras numbers. What stands for it keeps them in ``params`` by the attributes that they
lie in, and puts them into a layer of the dtype that it is called with.
"""

from __future__ import annotations

import inspect
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.targets.layers.layer_arrays import READS
from mha_parity.targets.libraries.first_call_weights import HoldsParameters
from mha_parity.targets.libraries.flax_haiku_modules import register_tree
from mha_parity.targets.libraries.reused_keras_layers import (
    MODULES,
    TRACKED,
    FirstCall,
    RestorableLayer,
    attributes,
    is_variable,
    keras_module,
)
from mha_parity.targets.static.signatures import forward

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FLOATS = ("float64", "float32", "float16", "bfloat16")


class OfKeras(HoldsParameters):
    """A layer of Keras 3, on whatever backend."""

    __module__ = "keras"
    made_by_a_call = ("params", "first_call")
    replaces_modules = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.first_call = FirstCall({})
        self.held: RestorableLayer | None = None
        if (key := ("constructed", self.arguments())) not in self.known:
            self.make()  # raises what the constructor does, and takes long
            self.known[key] = {}

    @classmethod
    def register(cls) -> None:
        """Have JAX take it for a tree of its parameters, where Keras runs on JAX."""
        if keras_module().backend.backend() == "jax":
            register_tree(cls)

    @classmethod
    def stands_for(cls, kind: type) -> bool:
        """Return whether a class is not Keras's own attention, which has a convention."""
        return not issubclass(kind, keras_module().layers.MultiHeadAttention)

    @classmethod
    def call_of(cls, kind: type) -> Any:
        """Return the call that its author wrote: Keras's own makes that of ``call``."""
        return forward(kind)

    def initialise(self, *args: Any, **kwargs: Any) -> None:
        """Make the parameters that a call with these arguments asks for, all 0."""
        del args  # the first call names all of them
        self.first_call = FirstCall(kwargs)
        with floatx("float32"):
            self.params = _zeros(variables_of(self.first_call.made(self.make(), "float32")))

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        """Return what a layer of the dtype of its first array answers with these parameters."""
        # By name: Keras refuses what is no tensor, as a switch, by its place.
        _, *names = inspect.signature(self.call_of(self.kind)).parameters
        named = {**dict(zip(names, args, strict=False)), **kwargs}
        dtype = _dtype_of(tuple(named.values()))
        with floatx(dtype):
            layer = self._of(dtype)
            # Not assigned, which copies: gradients lead through the layer to the parameters.
            with keras_module().StatelessScope([*_given(variables_of(layer), self.params)]):
                return layer(**named)

    def _of(self, dtype: str) -> Any:
        if self.held is None or self.held.dtype != dtype:
            self.held = self.first_call.take(self.make, dtype)
            # At the end of the process nothing is given back: its libraries may be gone.
            weakref.finalize(self, self.first_call.give_back, self.held).atexit = False
            for path, function in self.replaced.items():
                _replace(self.held.layer, path.split(".")[1:], function)
        return self.held.layer


setattr(OfKeras, READS, frozenset({"params"}))


@contextmanager
def floatx(dtype: str) -> Iterator[None]:
    """Let Keras build and compute in a dtype, as a user of that dtype sets it for all layers."""
    config = keras_module().config
    held = config.floatx(), config.dtype_policy()
    config.set_floatx(dtype)
    config.set_dtype_policy(dtype)
    try:
        yield
    finally:
        config.set_floatx(held[0])
        config.set_dtype_policy(held[1])


def variables_of(layer: Any) -> dict[str, Any]:
    """Return the variables of floats of a layer and of those within, by attributes, nested."""
    return _nested(layer, {id(layer)}, frozenset(vars(keras_module().Layer())))


def _nested(holder: Any, seen: set[int], internal: frozenset[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in _items(holder, internal):
        if id(value) in seen:
            continue
        if is_variable(value) and any(each in str(value.dtype) for each in FLOATS):
            seen.add(id(value))
            found[name] = value
        elif isinstance(value, keras_module().Layer | list | tuple | dict):
            seen.add(id(value))
            if within := _nested(value, seen, internal):
                found[name] = within
    return found


def _items(holder: Any, internal: frozenset[str]) -> list[tuple[str, Any]]:
    """Return what a layer or a container holds; a variable `_kernel` of Keras's own as `kernel`."""
    if isinstance(holder, dict):
        return [(str(name), value) for name, value in holder.items()]
    if isinstance(holder, list | tuple):
        return [(str(place), value) for place, value in enumerate(holder)]
    if isinstance(holder, keras_module().Sequential):
        return [(str(place), value) for place, value in enumerate(holder.layers)]
    own = type(holder).__module__.partition(".")[0] == "keras"
    return [
        (name.removeprefix("_") if own else name, value)
        for name, value in attributes(holder).items()
        if name not in internal and not name.startswith(TRACKED)
    ]


def _zeros(variables: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _zeros(each) if isinstance(each, dict) else np.zeros(tuple(each.shape), np.float32)
        for name, each in variables.items()
    }


def _given(variables: Mapping[str, Any], params: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield Keras's variables with what they stand for in a call; TensorFlow's get it."""
    for name, each in variables.items():
        if name not in params:  # what a call has made since
            continue
        if isinstance(each, dict):
            yield from _given(each, params[name])
        elif isinstance(each, keras_module().Variable):
            yield each, params[name]
        else:
            each.assign(params[name])


def _replace(layer: Any, path: list[str], function: Any) -> None:
    """Put a function of rows in the place of a layer within; one with fewer heads may lack it."""
    *way, name = path
    for step in way:
        layer = layer[int(step)] if isinstance(layer, list | tuple) else getattr(layer, step)
    vars(layer).get(MODULES, {}).pop(name, None)  # torch lets no function take a module's place
    setattr(layer, name, lambda rows, *_args, **_kwargs: function(rows))


def _dtype_of(values: tuple[Any, ...]) -> str:
    """Return the dtype of the first array of floats."""
    for each in values:
        if hasattr(each, "dtype") and hasattr(each, "shape"):
            name = str(keras_module().backend.standardize_dtype(each.dtype))
            if name in FLOATS:
                return name
    return "float32"
