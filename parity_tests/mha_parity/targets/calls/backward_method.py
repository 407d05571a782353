"""Gradients of a layer by a `backward` of its own: what it returns, and what it leaves behind.

`backward` gets the cotangent of the output. It returns the gradient of the input, or those of the
inputs in the order in which the call takes them, and leaves each weight's in an array of the layer
that is named after it: `grads["Wq"]` beside `params["Wq"]`, `dW_q` beside `W_q`, `q.grad` beside
`q.data`. Such arrays are set to 0 before, as some layers add to them; what a layer allocated for
weights of another dtype is rounded to that of the weights in use.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import CandidateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mha_parity.core.arrays import Array

DEPTH = 5  # of holders within a layer
_MARK = re.compile(r"grad(ient)?s?")
# What holders are called that say nothing of which weight they hold.
_HOLDERS = frozenset({"", "params", "parameters", "weights", "data", "modules", "cache"})
NONE_RETURNED = "`backward` returns no gradient for each of {}"
NONE_LEFT = "after `backward` no array of the layer is named after the gradient of `{}`"


def gradients_by_backward(
    layer: Any,
    given: Any,
    paths: Mapping[str, str],
    inputs: Sequence[str],
    leaves: Mapping[str, Any],
    output_of: Callable[[Any], Any],
    *,
    of_one_array: bool = False,
) -> Callable[[Any], dict[str, Any]]:
    """Return what calls `backward` and returns gradients: of inputs by role, of weights by name.

    ``given`` is the cotangent, ``paths`` where each weight lies, by name. Where the layer has no
    `backward`, tensors of its own have: then the sum of output times cotangent is differentiated,
    and ``leaves`` are the tensors of the inputs, by role. Where the inputs are one array
    (``of_one_array``), what is returned for them is summed: the parts of its gradient.

    Raises
    ------
    CandidateError
        When it is called: an input or a weight has no gradient.

    """

    def pulled(result: Any) -> dict[str, Any]:
        arrays = dict(_arrays(layer))
        held = {name: _gradient_of(arrays, path) for name, path in paths.items()}
        for each in held.values():
            if each is not None and each.flags.writeable:
                each[...] = 0
        if callable(getattr(layer, "backward", None)):
            found = _of_inputs(layer.backward(given), inputs, of_one_array=of_one_array)
        else:
            (output_of(result) * given).sum().backward()
            # One tensor that is passed as several inputs has one gradient.
            found = {role: leaves[role].grad for role in inputs if role in leaves}
        if any(each is None for each in found.values()):
            raise CandidateError("structure", f"{NONE_RETURNED.format(' and '.join(inputs))}.")
        arrays = dict(_arrays(layer))
        for name, path in paths.items():
            found[name] = _gradient_of(arrays, path)
            if found[name] is None:
                raise CandidateError("structure", f"{NONE_LEFT.format(path)}.")
            if found[name] is held[name]:
                found[name] = found[name].astype(arrays[path].dtype, copy=False)
        return found

    return pulled


def _of_inputs(returned: Any, inputs: Sequence[str], *, of_one_array: bool) -> dict[str, Any]:
    """Return what `backward` returned by input; one sum where the inputs are one array."""
    several = returned if isinstance(returned, tuple | list) else (returned,)
    found = dict(zip(inputs, (*several, *[None] * len(inputs)), strict=False))
    # Further ones are those of inputs that were left out for the only one.
    if len(inputs) == 1 and several[0] is not None:
        first = np.shape(several[0])
        found[inputs[0]] = sum(each for each in several if np.shape(each) == first)
    if of_one_array and all(each is not None for each in found.values()):
        return {"query": sum(found.values())}
    return found


def _gradient_of(arrays: Mapping[str, Array], path: str) -> Array | None:
    """Return the gradient of the weight at a path: of its shape, and marked by a word or a `d`."""
    shape, own = arrays[path].shape, _named(path)
    for at, array in arrays.items():
        marked = at != path and _MARK.search(at.lower()) and own == _named(at)
        if array.shape == shape and (marked or own == _named(at, without_d=True) != _named(at)):
            return array
    return None


def _named(path: str, *, without_d: bool = False) -> tuple[str, ...]:
    """Return what a path names, in lower case: without marks of gradients and what says nothing."""
    steps = [_MARK.sub("", step).replace("_", "") for step in path.lower().split(".")]
    if without_d:
        steps = [re.sub(r"^d", "", step) for step in steps]
    return tuple(step for step in steps if step not in _HOLDERS)


def _arrays(holder: Any, path: str = "", depth: int = DEPTH) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of floats within a layer by their paths."""
    if isinstance(holder, dict):
        items = [(str(name), value) for name, value in holder.items()]
    elif isinstance(holder, list | tuple):
        items = [(str(place), value) for place, value in enumerate(holder)]
    else:
        items = list(getattr(holder, "__dict__", {}).items())
    for name, value in items:
        at = f"{path}.{name}" if path else name
        if isinstance(value, np.ndarray):
            if value.dtype.kind == "f":
                yield at, value
        elif depth and not isinstance(value, type):
            yield from _arrays(value, at, depth - 1)
