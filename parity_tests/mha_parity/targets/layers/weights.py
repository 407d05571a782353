"""Where a target keeps its weights, and how an array of each is laid out.

The axes of a weight of queries, keys or values are h (heads), d (the width of a head) and e (the
input), in torch ``("hd", "e")``: rows of all heads, then inputs. Those of the output's weight are
``("e", "hd")``. Several projections in one array have an axis p as well; in sizes g is h of keys.
Where each head projects its own channels, sizes have i, the e of these, and b, the h of one block.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.head_projections import PROJECTIONS
from mha_parity.targets.calls.problem_weights import KEY_PARTS, with_grouped_heads
from mha_parity.targets.layers.build_layer import is_module
from mha_parity.targets.layers.layer_arrays import READS, leaves, set_array
from mha_parity.targets.layers.weight_assignment import CONVOLUTIONS
from mha_parity.targets.static import projection_names as names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.layers.layer_arrays import Leaf
    from mha_parity.targets.layers.weight_assignment import SortedLeaves

    Axes = tuple[str, ...]
# Where the rows of a part lie together, so do those of a head: "pdh" would pass interleaved heads.
# Where these are merged as they are split, trials have shown it (WIDTH_FIRST_AXES).
PACKED = ("phd", "hpd", "hdp", "dph", "dhp")
UNEVEN = frozenset({"phd", "hpd"})  # of these, what fewer keys and values than queries may lie in
WIDTH_FIRST_AXES = {"hd": "dh", "phd": "pdh"}


# By torch's own names the rows are all of q, then all of k, then all of v.
BY_TORCHS_NAME = frozenset({"in_proj_weight", "in_proj_bias"})


@dataclass(frozen=True, slots=True)
class WeightArgument:
    """One weight or bias that a function takes: its parts, its axes, and the container of them.

    ``container`` is "array", "list" (an array for each head), "dict" (weight and bias, by the names
    in ``leaves``), "pair" (a tuple of weight and bias), "params" (a dictionary of all weights,
    which are in ``entries``, and of the numbers in ``sizes``, by what they mean; if ``within`` is a
    key, in a dictionary under that key) or "tuple" (all
    weights in the order of ``entries``, or a record of the class ``made_by`` with those fields).
    ``optional``: it is left at its default where the problem has none.
    """

    parts: tuple[str, ...]
    axes: Axes
    container: str = "array"
    bias: bool = False
    leaves: tuple[str, str] = ("w", "b")
    entries: tuple[tuple[str, WeightArgument], ...] = ()
    sizes: tuple[tuple[str, str], ...] = ()
    within: str = ""
    optional: bool = False
    made_by: type | None = None

    @property
    def holds_bias(self) -> bool:
        """Whether it holds the bias beside the weight."""
        return self.container in {"dict", "pair"}

    @property
    def bias_slot(self) -> Slot:
        """The bias that it holds beside the weight."""
        rows = tuple(axis for axis in self.axes if axis != "e")
        return Slot("", self.parts, ("e",) if self.parts == ("out",) else rows, bias=True)


@dataclass(frozen=True, slots=True)
class Slot:
    """One array that holds projections: their names in order, and its axes.

    ``bias``: it is their bias. ``head``: it holds this head alone.
    """

    path: str
    parts: tuple[str, ...]
    axes: Axes
    bias: bool = False
    head: int | None = None

    @property
    def holds_fewer_keys(self) -> bool:
        """Whether it may hold fewer heads of keys than of queries: no bias, nor one head alone."""
        uneven = len(self.parts) == 1 or {*self.parts} <= KEY_PARTS or {*self.axes} & UNEVEN
        return not self.bias and self.head is None and bool(uneven)

    def filled(self, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> Array:
        """Return the array from those of its parts, (out, in) or (out,); g key heads share one."""
        if _is_uneven(self.parts, sizes):
            return self._uneven(arrays, sizes)
        sizes = _of_parts(self.parts, sizes)
        own = "hde" if not self.bias else "hd"
        if self.parts == ("out",):
            own = "ehd" if not self.bias else "e"
        split = [arrays[part].reshape([sizes[axis] for axis in own]) for part in self.parts]
        whole = np.stack(split)
        if self.head is not None and "h" in own:  # a bias of the output has no heads
            place = 1 + own.index("h")
            whole = whole.take([self.head], axis=place)
        order = "".join(self.axes)
        source = "p" + own
        missing = [axis for axis in source if axis not in order]  # p of one part, h of one head
        moved = whole.transpose([source.index(axis) for axis in (*missing, *order)])
        held = dict(zip(source, whole.shape, strict=True))
        return moved.reshape([math.prod(held[axis] for axis in group) for group in self.axes])

    def _uneven(self, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> Array:
        """Return the array of queries with fewer keys and values: by parts, or by groups."""
        groups = sizes["g"] if "hpd" in self.axes else 1
        split = [arrays[part].reshape(groups, -1, *arrays[part].shape[1:]) for part in self.parts]
        rows = np.concatenate(split, 1).reshape(-1, *split[0].shape[2:])
        return rows.T if self.axes[0] == "e" else rows


# What objects that hold a weight and a bias call the weight.
ATTRIBUTES = frozenset({"w", "W", "weight", "kernel"})


class WeightAndBias(dict[str, Any]):
    """Both of one projection by their names, and as attributes of any usual name."""

    def __getattr__(self, name: str) -> Any:
        """Return the weight, the first entry, or the bias, the last one."""
        if name in ATTRIBUTES:
            return next(iter(self.values()))
        if name in {"b", "bias"}:
            return next(reversed(self.values()))
        raise AttributeError(f"weight and bias have no attribute '{name}'")


def with_width_first(slot: Slot) -> Slot:
    """Return a slot in which head h has the rows h, h + H, h + 2H and so on."""
    return replace(slot, axes=tuple(WIDTH_FIRST_AXES.get(each, each) for each in slot.axes))


def width_first(found: Sequence[Slot]) -> tuple[str, ...]:
    """Return the paths of the weights in which heads have every H-th row or column."""
    of_heads = {*WIDTH_FIRST_AXES.values()}
    return tuple(slot.path for slot in found if not slot.bias and of_heads & {*slot.axes})


def axes_of(
    parts: Sequence[str], shape: Sequence[int], sizes: Mapping[str, int], owner: str,
    *, bias: bool, by_head: bool,
) -> Iterator[Axes]:  # fmt: skip
    """Yield how an array of this shape can hold these projections, likeliest first."""
    held = {**_of_parts(parts, sizes), "p": len(parts)}
    rows = None
    if _is_uneven(parts, sizes):
        rows = sizes["d"] * sum(sizes["g" if part in KEY_PARTS else "h"] for part in parts)
    if owner in CONVOLUTIONS and set(shape[2:]) == {1}:
        shape = shape[:2]
    bare = tuple(size for size in shape if size != 1) if bias else tuple(shape)
    for groups in _groupings(parts, bias=bias, by_head=by_head):
        orders = [groups] if bias else _orders(groups, owner, is_out=parts == ("out",))
        for order in orders:
            if rows is not None and not {*order} <= {*UNEVEN, "e"}:
                continue
            extents = tuple(
                rows
                if rows is not None and group in UNEVEN
                else math.prod(held[axis] for axis in group)
                for group in order
            )
            if bare == (tuple(n for n in extents if n != 1) if bias else extents):
                yield order


def _groupings(parts: Sequence[str], *, bias: bool, by_head: bool) -> list[Axes]:
    if tuple(parts) == ("out",):
        if bias:
            return [("e",)]
        return [("d", "e")] if by_head else [("hd", "e"), ("h", "d", "e")]
    last: Axes = () if bias else ("e",)
    if by_head:
        return [("pd" if len(parts) > 1 else "d", *last)]
    if len(parts) == 1:
        return [("hd", *last), ("h", "d", *last)]
    packed: list[Axes] = [(each, *last) for each in PACKED]
    return [*packed, ("p", "hd", *last), ("p", "h", "d", *last), ("h", "pd", *last)]


def _orders(groups: Axes, owner: str, *, is_out: bool) -> list[Axes]:
    """Return the orders of the axes: of a Linear (out, in), of a bare array X @ W first."""
    if len(groups) > 2:
        return [tuple(order) for order in permutations(groups)]
    inner, outer = (groups[0], groups[1])
    as_torch = (outer, inner) if is_out else (inner, outer)
    if owner.endswith("Linear") or owner in CONVOLUTIONS:
        return [as_torch]
    return [as_torch[::-1], as_torch] if owner != "Conv1D" else [as_torch[::-1]]


def candidate_slots(kept: SortedLeaves, sizes: Mapping[str, int]) -> list[tuple[Slot, ...]]:
    """Return the candidates for all slots of a layer, likeliest first; none if one does not fit.

    Bare square matrices are all applied one way, and packed ones all packed one way.
    """
    options: list[list[Slot]] = []
    for _, found in _options(kept, sizes):
        if not found:
            return []
        options.append(found)
    packed = max((len(each) for each in options if len(each[0].parts) > 1), default=1)
    single = max((len(each) for each in options if len(each[0].parts) == 1), default=1)
    return [
        tuple(_chosen(each, *places) for each in options)
        for places in product(range(packed), range(single))
    ]


def _options(kept: SortedLeaves, sizes: Mapping[str, int]) -> Iterator[tuple[Leaf, list[Slot]]]:
    """Yield every array with the slots that it may be; none where its shape is no projection's."""
    for entries, bias in ((kept.weights, False), (kept.biases, True)):
        for leaf, parts, head in entries:
            # A layer may call a Linear `qvk` that it splits as torch does.
            orders = [parts, names.ROWS] if set(parts) == set(names.ROWS) else [parts]
            by_torch = leaf.path in BY_TORCHS_NAME and len(leaf.shape) == 2 - bias
            by_torch |= kept.parts_first and len(parts) > 1
            if head is not None and head >= _of_parts(parts, sizes)["h"]:
                orders = []  # it was built with more heads than it should have
            yield (
                leaf,
                [
                    Slot(leaf.path, order, axes, bias, head)
                    for order in dict.fromkeys(orders)
                    for axes in axes_of(
                        order, leaf.shape, sizes, leaf.owner, bias=bias, by_head=head is not None
                    )
                    if not by_torch or axes[-1 if axes[0] == "e" else 0] == "phd"
                ],
            )


def unfit(kept: SortedLeaves, sizes: Mapping[str, int]) -> list[Leaf]:
    """Return the arrays whose shapes are those of no projection of these sizes."""
    width = sizes["h"] * sizes["d"]
    return [leaf for leaf, found in _options(kept, {**sizes, "e": width}) if not found]


def _chosen(options: Sequence[Slot], packed: int, single: int) -> Slot:
    """Return the option of one array, by its place among those of its kind, or the last one."""
    place = packed if len(options[0].parts) > 1 else single
    return options[min(place, len(options) - 1)]


def slot_array(
    slot: Slot, problem: Problem, arrays: Mapping[str, Array], sizes: Mapping[str, int]
) -> Array:
    """Return the array of a slot; of keys and values, one head of each group."""
    held = {part: arrays[part] for part in slot.parts}
    return slot.filled(with_grouped_heads(held, problem.case), sizes)


def shapes_of(layer: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a layer's arrays by their paths."""
    if is_module(layer) and not hasattr(type(layer), READS):  # without what its modules are
        return {name: tuple(each.shape) for name, each in layer.named_parameters()}
    return {leaf.path: leaf.shape for leaf in leaves(layer)}


def slots_by_head(found: Sequence[Slot], sizes: Mapping[str, int]) -> list[Slot]:
    """Return the slots of a layer of these sizes, where each head has arrays of its own.

    The paths of the first two heads show the number that counts heads: read anew by its names, a
    layer of three heads with q, k and v packed would be one of three arrays, q, k and v.
    """
    if all(slot.head is None for slot in found):
        return list(found)
    held: list[Slot] = []
    for slot in found:
        paths = [each.path for each in found if (each.parts, each.bias) == (slot.parts, slot.bias)]
        counted = _counted(*paths[:2]) if slot.head is not None else None
        heads = range(_of_parts(slot.parts, sizes)["h"])
        if counted is None:
            held += [slot] if slot.head is None or slot.head in heads else []
        elif slot.head == 0:
            before, first, after = counted
            held += [replace(slot, path=f"{before}{first + n}{after}", head=n) for n in heads]
    return held


def _counted(first: str, second: str) -> tuple[str, int, str] | None:
    """Return the first of two paths around the number in which they differ by one, if they do."""
    for number in re.finditer(r"\d+", first):
        before, after = first[: number.start()], first[number.end() :]
        if second == f"{before}{int(number.group()) + 1}{after}":
            return before, int(number.group()), after
    return None


def set_array_of_slot(layer: Any, path: str, handed: Any) -> Any:
    """Set an array of a layer, and return what holds its gradient."""
    set_array(layer, path, handed)
    return layer.get_parameter(path) if is_module(layer) else handed


def sizes_of(problem: Problem) -> dict[str, int]:
    """Return the sizes of heads, of the width of one, of the input, and of key heads."""
    kv_heads = problem.case.kv_heads_count or problem.num_heads
    heads = {"h": problem.num_heads, "g": kv_heads, "d": problem.head_dim}
    sizes = {**heads, "e": problem.query.shape[-1]}
    return sizes | own_channels(problem.case.projection, problem.head_dim)


def own_channels(projection: str, head_dim: int) -> dict[str, int]:
    """Return the sizes of projections of each head's own channels: i in, and b heads' blocks."""
    if projection not in PROJECTIONS:
        return {}
    return {"i": head_dim} | ({"b": 1} if projection == "shared" else {})


def _of_parts(parts: Sequence[str], sizes: Mapping[str, int]) -> Mapping[str, int]:
    """Return the sizes of an array of these parts: of keys and values alone, with their heads."""
    if tuple(parts) == ("out",):
        return sizes
    heads = sizes.get("g", sizes["h"]) if set(parts) <= KEY_PARTS else sizes["h"]
    return {**sizes, "h": sizes.get("b", heads), "e": sizes.get("i", sizes["e"])}


def _is_uneven(parts: Sequence[str], sizes: Mapping[str, int]) -> bool:
    """Return whether these parts have unlike sizes: queries, and fewer keys or values."""
    some_keys = bool(KEY_PARTS & {*parts}) and not {*parts} <= KEY_PARTS
    return some_keys and sizes.get("g", sizes["h"]) != sizes["h"]
