"""The arrays of a layer: where they are, and how one is set."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mha_parity.targets.layers.build_layer import assign, is_module

if TYPE_CHECKING:
    from collections.abc import Iterator

# What a layer that is no module of torch keeps besides its weights.
_NO_WEIGHTS = re.compile(r"grad|mask|tril|causal|^_*d_?[wb](_|[qkvo]|$)")
# A target's own Linear: next to its weight and bias an optimizer keeps arrays of their shapes.
_OWN_LINEAR = frozenset({"w", "weight", "weights", "kernel"})
_OWN_BIAS = frozenset({"b", "bias", "biases"})


DEPTH = 4  # of objects in objects that arrays are looked for in
# The attribute of a layer's class that names what its call reads, where that is not all.
READS = "read_by_its_method"


@dataclass(frozen=True, slots=True)
class Leaf:
    """An array of a layer: where it is, its shape, and whether a Linear holds it."""

    path: str
    shape: tuple[int, ...]
    owner: str = ""  # the type of the module that holds it: outside of torch, of a norm alone
    dtype: str = ""  # outside of torch


def leaves(layer: Any) -> list[Leaf]:
    """Return the arrays of a layer that are no buffers, and that its call may read."""
    read = getattr(type(layer), READS, None)
    if is_module(layer):
        owners = {name: _type_of(module) for name, module in layer.named_modules()}
        found = [
            Leaf(name, tuple(each.shape), owners.get(name.rpartition(".")[0], ""))
            for name, each in layer.named_parameters()
        ]
    else:
        found = [
            Leaf(path, tuple(value.shape), _norm_around(layer, path), str(value.dtype))
            for path, value in _distinct(layer, read)
        ]
    return [each for each in found if read is None or each.path.partition(".")[0] in read]


def _type_of(module: Any) -> str:
    """Return the name of a module's type; one called Linear that is not torch's is of its own.

    It may keep its weights (in, out).
    """
    name = type(module).__name__
    torchs = sys.modules["torch"].nn.Linear
    return (
        name if isinstance(module, torchs) or not name.endswith("Linear") else f"{name} of its own"
    )


def _norm_around(layer: Any, path: str) -> str:
    """Return the type of the norm that holds an array; "" where something else does."""
    kind = type(_held(layer, path.split(".")[:-1])).__name__
    return kind if "Norm" in kind else ""


def _distinct(layer: Any, read: frozenset[str] | None) -> list[tuple[str, Any]]:
    """Return each array of a layer once, under the shortest of its paths that its call may read."""
    held: dict[int, list[tuple[str, Any]]] = {}
    for path, value in _arrays(layer, "", DEPTH):
        held.setdefault(id(value), []).append((path, value))

    def length(found: tuple[str, Any]) -> tuple[bool, int]:
        path = found[0]
        return read is not None and path.partition(".")[0] not in read, path.count(".")

    return [min(paths, key=length) for paths in held.values()]


def _arrays(holder: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the arrays of floats that an object holds; one without elements holds no weights."""
    items = [each for each in _items(holder) if not _NO_WEIGHTS.search(each[0].lower())]
    is_linear = bool(path) and any(name.lower() in _OWN_LINEAR for name, _ in items)
    for name, value in items:
        at = f"{path}.{name}" if path else name
        if _has_shape(value) and hasattr(value, "dtype"):
            is_state = is_linear and name.lower() not in _OWN_LINEAR | _OWN_BIAS
            held = bool(value.shape) and 0 not in tuple(value.shape) and not is_state
            if held and "float" in str(value.dtype):
                yield at, value
        elif depth and _may_hold_arrays(value):
            yield from _arrays(value, at, depth - 1)


def _has_shape(value: Any) -> bool:
    """Return whether a value has a shape: that of TensorFlow's tensors is no tuple."""
    shape = getattr(value, "shape", None)
    return isinstance(shape, tuple) or type(shape).__name__ == "TensorShape"


def _may_hold_arrays(value: Any) -> bool:
    if isinstance(value, type) or callable(getattr(value, "random", None)):  # a generator
        return False
    return isinstance(value, dict | list | tuple) or hasattr(value, "__dict__")


def _items(holder: Any) -> list[tuple[str, Any]]:
    """Return what an object holds, by name; what equinox declares as static is no weight."""
    if isinstance(holder, dict):
        return [(str(name), value) for name, value in holder.items()]
    if isinstance(holder, list | tuple):
        return [(str(place), value) for place, value in enumerate(holder)]
    declared = getattr(type(holder), "__dataclass_fields__", {})
    static = {name for name, each in declared.items() if each.metadata.get("static")}
    return [each for each in getattr(holder, "__dict__", {}).items() if each[0] not in static]


def set_array(layer: Any, path: str, value: Any) -> None:
    """Set one array of a layer, wherever it keeps it."""
    if is_module(layer):
        layer.get_parameter(path).data = value
        return
    old = _held(layer, _way(layer, path))
    if hasattr(type(old), "value") and callable(getattr(old, "replace", None)):
        value = old.replace(value)  # a variable of flax.nnx, of which a layer may read `.value`
    for each in {path, *(at for at, held in _arrays(layer, "", DEPTH) if held is old)}:
        _set(layer, each, value)


def _way(layer: Any, path: str) -> list[str]:
    """Return the steps of a path; a key of a dictionary may have dots, as `to_out.conv`."""
    way: list[str] = []
    while path:
        keys = (
            [k for k in layer if f"{path}.".startswith(f"{k}.")] if isinstance(layer, dict) else []
        )
        way.append(max(keys, key=len) if keys else path.partition(".")[0])
        path = path[len(way[-1]) + 1 :]
        layer = _step(layer, way[-1]) if path else layer
    return way


def _held(layer: Any, way: list[str]) -> Any:
    for step in way:
        layer = _step(layer, step)
    return layer


def _set(layer: Any, path: str, value: Any) -> None:
    *way, last = _way(layer, path)
    holder = _held(layer, way)
    if isinstance(holder, tuple):
        entries = [*holder]
        entries[int(last)] = value
        rebuilt = type(holder)(*entries) if hasattr(holder, "_fields") else tuple(entries)
        _set(layer, ".".join(way), rebuilt)
        return
    if type(value) is type(holder):  # a tensor of the target's own, whose array lies in it
        value = getattr(value, last)
    if isinstance(holder, dict):
        holder[last] = value
    elif isinstance(holder, list):
        holder[int(last)] = value
    else:
        assign(holder, last, value)


def path_expression(layer: Any, path: str, name: str) -> str:
    """Return the expression of where an array of the layer called ``name`` is set."""
    holder, said = layer, name
    for step in _way(layer, path):
        index = step if isinstance(holder, list | tuple) else json.dumps(step)
        said += f".{step}" if not isinstance(holder, dict | list | tuple) else f"[{index}]"
        holder = _step(holder, step)
    return said


def _step(holder: Any, step: str) -> Any:
    if isinstance(holder, dict):
        return holder[step]
    return holder[int(step)] if isinstance(holder, list | tuple) else getattr(holder, step)
