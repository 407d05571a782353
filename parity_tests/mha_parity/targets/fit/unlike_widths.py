"""Layers whose value heads, or whose context, are narrower than their query heads or queries.

They are judged by the layer of equal widths in whose weights the missing channels are zero.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from mha_parity.targets.fit.argument_meanings import is_of_values, meanings
from mha_parity.targets.fit.names import snake_case
from mha_parity.targets.fit.weights import slot_array
from mha_parity.targets.problem_arrays import KEY_PARTS

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.fit.weights import Slot

OTHER = 20  # a width of the context that no other size of a small layer has
PARTS = frozenset({"v", "out"})  # the projections that have the channels of values
# The width of the rows that keys and values are made of, as a constructor names it.
CONTEXT = re.compile(
    r"(ctx|context|cond\w*|cross\w*|enc|encoder\w*|kv|memory|mem|source|src)_?"
    r"(dim|width|channels?|features?|size|emb\w*)|[kv]dim"
)


def context_names(
    named: Iterable[inspect.Parameter],
    slots: Sequence[Slot],
    shapes_with: Callable[[Mapping[str, int]], Mapping[str, tuple[int, ...]]],
) -> tuple[str, ...]:
    """Return the parameters of a constructor for the width of its context, where it can differ.

    No matrix projects keys or values and queries at once. ``shapes_with`` has the shapes of a
    layer's arrays by path where parameters get other values, and shows what no name says.
    """
    of_keys = [slot.parts for slot in slots if KEY_PARTS & {*slot.parts}]
    if not of_keys or any(not {*parts} <= KEY_PARTS for parts in of_keys):
        return ()
    widths = [each.name for each in named if meanings(each.name)[:1] == ("width",)]
    found = [name for name in widths if CONTEXT.fullmatch(snake_case(name))]
    plain = {} if found else shapes_with({})
    changed = ((name, shapes_with({name: OTHER}) if plain else {}) for name in widths)
    return tuple(found or (n for n, shapes in changed if _is_of_keys(plain, shapes, slots)))


def _is_of_keys(
    plain: Mapping[str, tuple[int, ...]],
    changed: Mapping[str, tuple[int, ...]],
    slots: Iterable[Slot],
) -> bool:
    """Return whether shapes differ in the inputs of keys or values alone."""
    inputs = {s.path: s.axes.index("e") for s in slots if "e" in s.axes and {*s.parts} <= KEY_PARTS}
    unlike = {path for path in {*plain, *changed} if plain.get(path) != changed.get(path)}
    return bool(unlike) and all(
        path in inputs and changed.get(path) == (*plain[path][:i], OTHER, *plain[path][i + 1 :])
        for path in unlike
        for i in (inputs.get(path, 0),)
    )


def value_names(meanings: Iterable[tuple[str, str]], slots: Iterable[Slot]) -> tuple[str, ...]:
    """Return the parameters of a constructor for the width of value heads, where it can differ.

    Heads have a width of their own besides; values are projected alone, and so is the output.
    """
    widths = [name for name, meaning in meanings if meaning == "head_dim"]
    held = {slot.parts for slot in slots if not slot.bias and PARTS & {*slot.parts}}
    of_values = [name for name in widths if is_of_values(name)]
    separate = held == {("v",), ("out",)} and len(of_values) < len(widths)
    return tuple(of_values) if separate else ()


def with_narrow_values(width: int) -> Callable[..., Array]:
    """Return what fills a slot of values or of the output for value heads of this width."""
    return partial(_filled, width)


def _filled(
    width: int, slot: Slot, problem: Problem, arrays: Mapping[str, Array], sizes: Mapping[str, int]
) -> Array:
    heads = problem.num_heads

    def cut(part: str, array: Array) -> Array:
        if part == "out":
            if slot.bias:
                return array
            split = array.reshape(array.shape[0], heads, -1)
            return split[..., :width].reshape(array.shape[0], -1)
        split = array.reshape(heads, -1, *array.shape[1:])
        return split[:, :width].reshape(-1, *array.shape[1:])

    shorter = {part: cut(part, arrays[part]) for part in slot.parts}
    return slot_array(slot, problem, shorter, {**sizes, "d": width})
