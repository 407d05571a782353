"""Layers whose heads, or whose context, are narrower than their rows make them.

They are judged by the layer of equal widths in whose weights the missing channels are zero.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from mha_parity.targets.calls.problem_weights import KEY_PARTS
from mha_parity.targets.layers.weights import slot_array
from mha_parity.targets.static.argument_meanings import LayerSizes, is_of_values, meanings
from mha_parity.targets.static.projection_names import snake_case

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.layers.weights import Slot

SMALL = LayerSizes(12, 2)  # of the layers whose shapes are compared
OTHER = 4  # a width that no other size of these has
PARTS = frozenset({"v", "out"})  # the projections that have the channels of values
QUERIES = frozenset({"q", "k"})  # those that have the channels of queries
OF_HEADS = (PARTS | QUERIES, QUERIES, PARTS)
_WIDTHS = frozenset({"head_dim", "width"})
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
    if {*plain} != {*changed}:  # the parameter says how many arrays there are
        return False
    inputs = {s.path: s.axes.index("e") for s in slots if "e" in s.axes and {*s.parts} <= KEY_PARTS}
    unlike = {path for path in {*plain, *changed} if plain.get(path) != changed.get(path)}
    return bool(unlike) and all(
        path in inputs and changed.get(path) == (*plain[path][:i], OTHER, *plain[path][i + 1 :])
        for path in unlike
        for i in (inputs.get(path, 0),)
    )


@dataclass(frozen=True, slots=True)
class HeadWidth:
    """Projections that parameters set the width of heads of, by head or in total."""

    parts: frozenset[str]
    in_total: bool = False

    def width(self, size: int, heads: int) -> int:
        """Return the width of a head where the parameters get this size."""
        return size // heads if self.in_total else size

    def size(self, width: int, heads: int) -> int:
        """Return what the parameters get for heads of this width."""
        return width * heads if self.in_total else width


def head_widths(
    named: Iterable[str],
    made: Sequence[tuple[str, str]],
    slots: Sequence[Slot],
    shapes_with: Callable[[Mapping[str, int]], Mapping[str, tuple[int, ...]]],
) -> dict[tuple[str, ...], HeadWidth]:
    """Return the parameters of a constructor for the width of heads, where it can differ.

    ``named`` are the names of all, ``made`` are those that are passed, with their meanings: widths
    of heads are tried together where no one is answered alone. ``shapes_with`` is that of
    ``context_names``.
    What a name says of values is believed: of which shapes it changes the check tells.
    """
    of_values: dict[tuple[str, ...], HeadWidth] = {
        (name,): HeadWidth(PARTS) for name in value_names(made, slots)
    }
    single = [(name,) for name in named if _WIDTHS & {*meanings(name)}]
    plain = shapes_with({}) if single else {}

    def found(tried: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], HeadWidth]:
        widths = ((names, _width_of_heads(plain, shapes_with, names, slots)) for names in tried)
        return {names: width for names, width in widths if width is not None}

    alone = found(single)
    together = tuple(name for name, meaning in made if meaning == "head_dim")
    by_shapes = alone if {*alone} & {(name,) for name in together} else found([together])
    return {**of_values, **alone, **by_shapes}


def _width_of_heads(
    plain: Mapping[str, tuple[int, ...]],
    shapes_with: Callable[[Mapping[str, int]], Mapping[str, tuple[int, ...]]],
    names: tuple[str, ...],
    slots: Iterable[Slot],
) -> HeadWidth | None:
    """Return what a parameter is for whose value cuts projections to a width, and nothing else."""
    changed = shapes_with(dict.fromkeys(names, OTHER)) if plain and names else {}
    if not changed:
        return None
    held = {slot.path: slot for slot in slots}
    # Without a projection of the output narrower values make narrower rows of it.
    projected = any(slot.parts == ("out",) for slot in held.values())
    parted = [parts for parts in OF_HEADS if projected or not parts & PARTS]
    tried = (HeadWidth(parts, total) for total in (False, True) for parts in parted)
    return next((each for each in tried if _are_cut(plain, changed, held, each)), None)


def _are_cut(
    plain: Mapping[str, tuple[int, ...]],
    changed: Mapping[str, tuple[int, ...]],
    held: Mapping[str, Slot],
    found: HeadWidth,
) -> bool:
    width = found.width(OTHER, SMALL.heads)

    def expected(path: str) -> int:
        slot, size = held.get(path), math.prod(plain[path])
        outputs = slot is not None and slot.bias and slot.parts == ("out",)
        if slot is None or outputs or not found.parts & {*slot.parts}:
            return size
        whole = {*slot.parts} <= found.parts
        return size * width // (SMALL.width // SMALL.heads) if whole else -1

    return {*plain} == {*changed} and all(
        math.prod(changed[path]) == expected(path) for path in plain
    )


def value_names(made: Iterable[tuple[str, str]], slots: Iterable[Slot]) -> tuple[str, ...]:
    """Return the parameters of a constructor for the width of value heads, where it can differ.

    Heads have a width of their own besides; values are projected alone, and so is the output.
    """
    widths = [name for name, meaning in made if meaning == "head_dim"]
    held = {slot.parts for slot in slots if not slot.bias and PARTS & {*slot.parts}}
    of_values = [name for name in widths if is_of_values(name)]
    separate = held == {("v",), ("out",)} and len(of_values) < len(widths)
    return tuple(of_values) if separate else ()


def with_narrow_heads(width: int) -> Callable[..., Array]:
    """Return what fills a slot of a layer whose heads are cut to this width."""
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
