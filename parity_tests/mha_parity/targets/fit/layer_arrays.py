"""The arrays of a layer: where they are, and how one is set."""

from __future__ import annotations

import json
import re
from dataclasses import FrozenInstanceError, dataclass
from typing import TYPE_CHECKING, Any

from mha_parity.targets.fit.build import is_module

if TYPE_CHECKING:
    from collections.abc import Iterator

# What a layer that is no module of torch keeps besides its weights.
_NO_WEIGHTS = re.compile(r"grad|mask|tril|causal|^_*d_?[wb](_|[qkvo]|$)")
# A target's own Linear: next to its weight and bias an optimizer keeps arrays of their shapes.
_OWN_LINEAR = frozenset({"w", "weight", "weights", "kernel"})
_OWN_BIAS = frozenset({"b", "bias", "biases"})


@dataclass(frozen=True, slots=True)
class Leaf:
    """An array of a layer: where it is, its shape, and whether a Linear holds it."""

    path: str
    shape: tuple[int, ...]
    owner: str = ""  # the type of the module that holds it


def leaves(layer: Any) -> list[Leaf]:
    """Return the arrays of a layer that are no buffers."""
    if is_module(layer):
        owners = {name: type(module).__name__ for name, module in layer.named_modules()}
        return [
            Leaf(name, tuple(each.shape), owners.get(name.rpartition(".")[0], ""))
            for name, each in layer.named_parameters()
        ]
    found = {id(value): (path, value) for path, value in reversed([*_arrays(layer, "", 4)])}
    return [Leaf(path, tuple(value.shape)) for path, value in reversed(found.values())]


def _arrays(holder: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    items = [each for each in _items(holder) if not _NO_WEIGHTS.search(each[0].lower())]
    is_linear = bool(path) and any(name.lower() in _OWN_LINEAR for name, _ in items)
    for name, value in items:
        at = f"{path}.{name}" if path else name
        if isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "dtype"):
            is_state = is_linear and name.lower() not in _OWN_LINEAR | _OWN_BIAS
            if len(value.shape) and "float" in str(value.dtype) and not is_state:
                yield at, value
        elif depth and _may_hold_arrays(value):
            yield from _arrays(value, at, depth - 1)


def _may_hold_arrays(value: Any) -> bool:
    if isinstance(value, type) or callable(getattr(value, "random", None)):  # a generator
        return False
    return isinstance(value, dict | list | tuple) or hasattr(value, "__dict__")


def _items(holder: Any) -> list[tuple[str, Any]]:
    if isinstance(holder, dict):
        return [(str(name), value) for name, value in holder.items()]
    if isinstance(holder, list | tuple):
        return [(str(place), value) for place, value in enumerate(holder)]
    return list(getattr(holder, "__dict__", {}).items())


def set_array(layer: Any, path: str, value: Any) -> None:
    """Set one array of a layer."""
    if is_module(layer):
        held = layer.get_parameter(path)
        held.data = value.to(held.dtype) if held.dtype != value.dtype else value
        return
    *way, last = path.split(".")
    holder = layer
    for step in way:
        holder = _step(holder, step)
    if type(value) is type(holder):  # a tensor of the target's own, whose array lies in it
        value = getattr(value, last)
    if isinstance(holder, dict):
        holder[last] = value
    elif isinstance(holder, list):
        holder[int(last)] = value
    else:
        assign(holder, last, value)


def assign(holder: Any, name: str, value: Any) -> None:
    """Set an attribute of a layer that was built to be filled, also of a frozen one."""
    try:
        setattr(holder, name, value)
    except FrozenInstanceError:
        object.__setattr__(holder, name, value)


def path_expression(layer: Any, path: str, name: str) -> str:
    """Return the expression of where an array of the layer called ``name`` is set."""
    holder, said = layer, name
    for step in path.split("."):
        index = step if isinstance(holder, list | tuple) else json.dumps(step)
        said += f".{step}" if not isinstance(holder, dict | list | tuple) else f"[{index}]"
        holder = _step(holder, step)
    return said


def _step(holder: Any, step: str) -> Any:
    if isinstance(holder, dict):
        return holder[step]
    return holder[int(step)] if isinstance(holder, list | tuple) else getattr(holder, step)
