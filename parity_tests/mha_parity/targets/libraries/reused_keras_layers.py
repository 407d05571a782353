"""Layers of Keras that are built once for several calls, each as new as it was after its first.

Keras takes tens of milliseconds to build an attention, and a call a few. A layer that is asked for
again gets back what its attributes, lists, dictionaries, arrays and variables held.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.targets.backends import to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

TRACKED = "_self_"  # how TensorFlow's names of what it tracks in an object begin
MODULES = "_modules"  # where torch's modules keep those within
SEEDS = "seed_generator"  # in the names of variables from which dropout draws


class RestorableLayer:
    """A layer in a dtype, and what it held; no ``__dict__``: its arrays are no target's weights."""

    __slots__ = ("_held", "dtype", "layer")

    def __init__(self, layer: Any, dtype: str) -> None:
        self.layer = layer
        self.dtype = dtype
        self._held = [
            (part, dict(vars(part)), {n: _contents(each) for n, each in vars(part).items()})
            for part in layers_within(layer)
        ]

    def restore(self) -> None:
        """Put back what the layer and those within it held."""
        for part, attributes, contents in self._held:
            vars(part).clear()
            vars(part).update(attributes)
            for name, each in contents.items():
                _put_back(attributes[name], each)


class FirstCall:
    """The call that makes a layer's weights, and layers that are through with it, by their dtype.

    Without a ``__dict__``: its arrays are no target's weights.
    """

    __slots__ = ("_raised", "_spare", "_values")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)
        self._spare: dict[str, list[RestorableLayer]] = {}
        self._raised: dict[str, Exception] = {}

    def __deepcopy__(self, memo: object) -> FirstCall:
        """Return itself: layers of the same sizes and arguments share what is built."""
        return self

    def take(self, make: Callable[[], Any], dtype: str) -> RestorableLayer:
        """Return a layer that nothing else has, made by ``make`` where none is spare.

        What the first call raises in a dtype it raises again, without another try.
        """
        if dtype in self._raised:
            raise self._raised[dtype].with_traceback(None)
        spare = self._spare.setdefault(dtype, [])
        if spare:
            return spare.pop()
        try:
            return RestorableLayer(self.made(make(), dtype), dtype)
        except Exception as error:
            self._raised[dtype] = error
            raise

    def give_back(self, built: RestorableLayer) -> None:
        """Keep a layer for others."""
        built.restore()
        self._spare[built.dtype].append(built)

    def made(self, layer: Any, dtype: str) -> Any:
        """Return the layer after this call."""
        if _has_no_build(layer):
            layer.built = True  # else Keras traces the whole call, and builds the layers in that
        layer(**{name: _tensor(each, dtype) for name, each in self._values.items()})
        return layer


def keras_module() -> Any:
    """Return Keras, which a target has imported."""
    return sys.modules["keras"]


def layers_within(layer: Any) -> Iterator[Any]:
    """Yield a layer and those that its attributes hold, in lists and dictionaries too, once."""
    seen: set[int] = set()
    waiting = [layer]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, keras_module().Layer):
            yield each
            waiting += attributes(each).values()
        elif isinstance(each, list | tuple):
            waiting += each
        elif isinstance(each, dict):
            waiting += each.values()


def attributes(layer: Any) -> dict[str, Any]:
    """Return the attributes of a layer; on torch's backend layers within it are its modules."""
    held: dict[str, Any] = vars(layer)
    return held | held.get(MODULES, {}) if MODULES in held else held


def is_variable(value: Any) -> bool:
    """Return whether a value is a variable of Keras or of TensorFlow."""
    tensorflow = sys.modules.get("tensorflow")
    kinds = (keras_module().Variable, *(() if tensorflow is None else (tensorflow.Variable,)))
    return isinstance(value, kinds)


def _contents(value: Any) -> Any:
    """Return a copy of what a value holds that can be changed in place; None of any other."""
    if isinstance(value, list | dict):
        return value.copy()
    if isinstance(value, np.ndarray):
        return value.copy()
    if is_variable(value) and SEEDS not in value.name:
        # Keras's own conversion of a variable warns of NumPy 2 on torch's backend.
        held = value.value if isinstance(value, keras_module().Variable) else value
        return np.array(to_numpy(held, "a variable"))
    return None


def _put_back(value: Any, contents: Any) -> None:
    if contents is None:
        return
    if isinstance(value, list):
        list.__setitem__(value, slice(None), contents)  # not through what Keras tracks
    elif isinstance(value, dict):
        dict.clear(value)
        dict.update(value, contents)
    elif isinstance(value, np.ndarray):
        value[...] = contents
    else:
        value.assign(contents)


def _has_no_build(layer: Any) -> bool:
    """Return whether its author does not say how a layer's weights are made before a call."""
    own = getattr(type(layer), "build", None)
    return own is getattr(keras_module().Layer, "build", None)


def _tensor(value: Any, dtype: str) -> Any:
    """Return an array as a tensor, of floats in a dtype; anything else as it is."""
    if not isinstance(value, np.ndarray):
        return value
    kind = dtype if value.dtype.kind == "f" else value.dtype.name
    return keras_module().ops.convert_to_tensor(value, dtype=kind)
