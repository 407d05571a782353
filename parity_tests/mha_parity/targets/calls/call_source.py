"""Write a call of a target as Python: how the layer is built, what it is loaded with, the call."""

from __future__ import annotations

import inspect
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.core.problem import INPUTS
from mha_parity.targets.backends import to_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.targets.calls.target_call import Call

FEW = 16  # elements of a mask that are written out
FEW_NUMBERS = 4  # elements of a weight
SHOWN = (bool, int, float, str, type(None))
WITHOUT_PLACE = (
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


def python_of_call(
    subject: Any,
    built_with: tuple[Sequence[Any], Mapping[str, Any]] | None,
    named: Sequence[inspect.Parameter],
    call: Call,
) -> str:
    """Return lines of Python that make the call, with what each array is behind a "#".

    ``built_with`` are the arguments of the constructor that built the layer, None where nothing
    was built; ``named`` are the parameters of the call.
    """
    name = getattr(subject, "__name__", type(subject).__name__)
    arguments = dict(_by_name(named, call))
    lines = []
    if built_with is not None:
        args, kwargs = built_with
        given = [*map(_short, args), *(f"{key}={_short(value)}" for key, value in kwargs.items())]
        lines.append(f"layer = {name}({', '.join(given)})")
        weights = [each for each in call.given if each[0] not in {*INPUTS, *arguments}]
        lines += [f"layer.{path} = {_few(array)}  # {_shape(array)}" for path, array in weights]
    lines.append(f"{_function(subject, call, 'layer' if built_with is not None else name)}(")
    lines += [_line(*each, call.given) for each in arguments.items()]
    return "\n".join([*lines, ")"])


def _by_name(named: Sequence[inspect.Parameter], call: Call) -> Iterator[tuple[str, Any]]:
    """Yield what the call passes by the names of the parameters, ``*0`` where they have none."""
    places = [each.name for each in named if each.kind not in WITHOUT_PLACE]
    for place, value in enumerate(call.args):
        yield (places[place] if place < len(places) else f"*{place}"), value
    for name, value in call.kwargs.items():
        yield from value.items() if isinstance(value, dict) else [(name, value)]


def _function(subject: Any, call: Call, name: str) -> str:
    """Return what is called: the target, its layer, or a method of that."""
    owner = getattr(call.function, "__self__", None)
    is_itself = inspect.unwrap(call.function) is owner  # a layer that is called
    is_method = isinstance(subject, type) and isinstance(owner, subject) and not is_itself
    return f"{name}.{call.function.__name__}" if is_method else name


def _line(name: str, value: Any, given: Sequence[tuple[str, Array]]) -> str:
    """Return the line of one argument, an array with its kind, dtype and shape behind it."""
    shown = "" if name.startswith("*") else f"{name}="
    if not hasattr(value, "shape"):
        return f"    {shown}{_short(value)},"
    kind = type(value).__name__
    return f"    {shown}{_content(name, value, given)},  # {kind} {_shape(value)}"


def _content(name: str, value: Any, given: Sequence[tuple[str, Array]]) -> str:
    """Return which array of the case it is, or the elements of a small mask."""
    with suppress(CandidateError):
        array = to_numpy(value, name)
        for of, other in given:
            if of != name and other.shape == array.shape and np.array_equal(other, array):
                return of
        if name not in INPUTS and array.size <= FEW:
            return str(array.tolist())
    return name if name in INPUTS else "..."


def _few(array: Array) -> str:
    """Return a weight's elements to five digits where these are few, and whether all are 0."""
    if not array.any():
        return "zeros"
    if array.size > FEW_NUMBERS:
        return "..."
    return str(np.vectorize(lambda number: float(f"{number:.5g}"))(array).tolist())


def _shape(value: Any) -> str:
    """Return the dtype and the shape of an array; of a large boolean one, how many are True."""
    dtype = str(value.dtype).removeprefix("torch.")
    shape = tuple(value.shape)
    is_counted = dtype == "bool" and math.prod(shape) > FEW
    return f"{dtype} {shape}" + (f", {int(value.sum())} True" if is_counted else "")


def _short(value: Any) -> str:
    """Return an argument that is no array: a plain value, or the kind of anything else."""
    kind = type(value).__name__
    is_dtype = kind.lower().endswith("dtype")
    return str(value) if is_dtype else repr(value) if isinstance(value, SHOWN) else f"<{kind}>"
