"""One way in which a parameter takes masks: shape, kind of values, and what a value means.

Shapes are tuples of axes: N samples, H heads, L queries, S keys, "1" an axis of one, "NH" samples
times heads. A mask is handed over as the target takes it, or not at all where it cannot say it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.parameters import Parameter
    from mha_parity.core.problem import Problem

Axes = tuple[str, ...]
LENGTHS, SWITCH, ADDED = "lengths", "switch", "added"
# Whole masks first: where one is taken, padding and masks per query can be said together.
SHAPES: tuple[Axes, ...] = (
    ("N", "H", "L", "S"), ("NH", "L", "S"), ("N", "1", "L", "S"), ("N", "L", "S"),
    ("1", "1", "L", "S"), ("H", "L", "S"), ("L", "S"),
    ("N", "1", "1", "S"), ("N", "1", "S"), ("N", "S"), ("S",), ("N", "S", "1"),
)  # fmt: skip
# Where each new shape is compiled, those that most people use.
FEW_SHAPES: tuple[Axes, ...] = (
    ("N", "1", "L", "S"), ("N", "L", "S"), ("L", "S"), ("N", "1", "1", "S"), ("N", "S")
)  # fmt: skip
TORCH_HEADS: Axes = ("NH", "L", "S")  # torch's mask of a sample and head
THREE_AXES: tuple[Axes, ...] = (
    ("N", "L", "S"),
    ("H", "L", "S"),
)  # what else three axes are read as
# Of rows (L, N, E), the samples last.
SAMPLES_LAST: tuple[Axes, ...] = (("L", "S", "N"), ("L", "S", "1"), ("1", "S", "N"), ("S", "N"))
# Where each of the shapes above raises with S unlike L.
KEYS_FIRST: tuple[Axes, ...] = (("S", "L"), ("N", "S", "L"), ("N", "1", "S", "L"))
# Of one sample without its axis.
SINGLE_SHAPES: tuple[Axes, ...] = (("H", "L", "S"), ("1", "L", "S"), ("L", "S"), ("S",))
LENGTH_SHAPES: tuple[Axes, ...] = (("N",), ("N", "L"))
ONE_NUMBER: Axes = ()  # of all samples
SINGLE_LENGTHS: tuple[Axes, ...] = (ONE_NUMBER, ("L",))  # of one sample without its axis
LAST = (
    ", counted from the last ones, as torch.nn.attention.bias.causal_lower_right does: judged at "
    "L = S alone, and the last queries by their rows among as many as keys"
)
VALUES = ("bool", "int", "float")  # of True and False, or 1 and 0
_PLACE = {"N": 0, "H": 1, "L": 2, "S": 3}


@dataclass(frozen=True, eq=False, slots=True)
class MaskContent:
    """Keys that a case hides and scores that it adds, (N, H, L, S) each.

    ``added`` has -inf where a key is hidden. ``masks`` are the fields of the problem that the
    content stands for.
    """

    hidden: Array
    added: Array | None = None
    masks: tuple[str, ...] = ()

    def joined(self, other: MaskContent) -> MaskContent:
        """Return what both hide and add together."""
        hidden = self.hidden | other.hidden
        floats = [each.added for each in (self, other) if each.added is not None]
        masks = (*self.masks, *other.masks)
        if not floats:
            return MaskContent(hidden, masks=masks)
        total = np.where(hidden, -np.inf, sum(np.where(self.hidden, 0.0, f) for f in floats))
        return MaskContent(hidden, total, masks)


@dataclass(frozen=True, eq=False, slots=True)
class MaskObject:
    """A mask that is handed over as an object: under which attributes the array stands."""

    array: Array
    attributes: tuple[str, ...]

    def made(self, handed: Any) -> Any:
        """Return the object; an attribute that asks whether nothing is hidden says no."""
        return MaskHolder(handed, self.attributes)


class MaskHolder:
    """An object that holds a mask under some attributes, or under each that is asked for."""

    def __init__(self, mask: Any, attributes: tuple[str, ...] | None = None) -> None:
        self._held = mask, attributes

    def __getattr__(self, name: str) -> Any:
        """Return the mask, or False of an attribute that asks for a property of it."""
        mask, attributes = self._held
        if name.startswith("__") or (attributes is not None and name not in attributes):
            raise AttributeError(f"'mask' object has no attribute '{name}'")
        return False if _ASKS.search(name) else mask


# Attributes of mask objects that are True or False: `all_ones`, `lower_triangular`.
_ASKS = re.compile(r"^(is|has|all)_|^(lower|upper)_triangular$")


@dataclass(frozen=True, eq=False, slots=True)
class MaskArgument:
    """A value for a mask parameter, its axes, and the fields of the problem that it stands for."""

    value: Any
    axes: Axes = ()
    masks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MaskFormat:
    """A shape, a kind of values and their meaning.

    ``kind``: "bool", "int" (0 and 1), "float" (0 and 1), "added" (to the scores), "lengths" (how
    many keys are visible), or "switch" (True or False: causal or not). ``hides``: whether True or 1
    hides. ``fit`` is how near the experiment came to it, 1: exactly, and rows keep their sums.
    ``square``: a call raises wherever L and S differ; ``last``: a switch that aligns queries and
    keys at their ends, as torch.nn.attention.bias.causal_lower_right. ``attributes``: under which
    names an object holds the mask, () where the parameter takes the array. ``without_gradients``:
    the backward pass raises at this shape, and the call alone does not. ``opposite``: ``hides`` is
    what is demanded, and the experiment shows the other meaning.
    """

    axes: Axes
    kind: str
    hides: bool = True
    fit: float = 1.0
    square: bool = False
    last: bool = False
    attributes: tuple[str, ...] = ()
    without_gradients: bool = False
    opposite: bool = False

    @property
    def only_square(self) -> bool:
        """Whether it raises, or is a switch that is not torch's, where L and S differ."""
        return self.square or self.last

    def value(self, content: MaskContent, dtype: np.dtype[Any]) -> Any:
        """Return what to pass for a content, None where this cannot say it."""
        found = self._value(content, dtype)
        return (
            MaskObject(found, self.attributes) if self.attributes and found is not None else found
        )

    def hiding_nothing(self, problem: Problem) -> MaskArgument:
        """Return the value that hides nothing of a problem."""
        nothing = MaskContent(np.zeros(problem.weights_shape, dtype=bool))
        return MaskArgument(self.value(nothing, problem.dtype), self.axes)

    def _value(self, content: MaskContent, dtype: np.dtype[Any]) -> Any:
        if self.kind == SWITCH:
            return self._switch(content)
        if self.square and content.hidden.shape[-2] != content.hidden.shape[-1]:
            return None
        if self.kind == LENGTHS:
            return self._lengths(content)
        if self.kind != ADDED:
            hidden = None if content.added is not None else reduce_axes(content.hidden, self.axes)
            return None if hidden is None else self._of_hidden(hidden, dtype)
        added = content.added
        if added is None:
            added = np.where(content.hidden, -np.inf, 0.0)
        found = reduce_axes(added, self.axes)
        return None if found is None else found.astype(dtype)

    def _of_hidden(self, hidden: Array, dtype: np.dtype[Any]) -> Array:
        marked = hidden if self.hides else ~hidden
        types = {"bool": np.dtype(np.bool_), "int": np.dtype(np.int64), "float": dtype}
        return np.asarray(marked, dtype=types[self.kind])

    def _switch(self, content: MaskContent) -> bool | None:
        length, keys = content.hidden.shape[-2:]
        behind = keys - length if self.last else 0
        causal = np.triu(np.ones((length, keys), dtype=bool), k=1 + behind)
        if content.added is not None:
            return None
        if not content.hidden.any():
            return not self.hides
        served = length == keys or not self.square
        return self.hides if served and (content.hidden == causal).all() else None

    def _lengths(self, content: MaskContent) -> Array | int | None:
        keys = content.hidden.shape[-1]
        counts = (~content.hidden).sum(axis=-1)
        whole = np.arange(keys) >= counts[..., None]
        if content.added is not None or not np.array_equal(whole, content.hidden):
            return None
        found = reduce_axes(counts[..., None], (*self.axes, "1"))
        if found is None:
            return None
        return found[..., 0].astype(np.int64) if self.axes else int(found[0])

    @property
    def of_one_sample(self) -> bool:
        """Whether it is one number of visible keys, which samples of other lengths cannot have."""
        return self.kind == LENGTHS and self.axes == ONE_NUMBER

    @property
    def meaning(self) -> str:
        """Effect of a value, and the calls that it is limited to."""
        if self.last:
            return f"{self._effect}{LAST}"
        taken = "taken " if self.kind == SWITCH else ""  # of others, the shapes follow
        held = " and ".join(f"`{name}`" for name in self.attributes if not _ASKS.search(name))
        effect = f"an object that holds it as {held}: {self._effect}" if held else self._effect
        return f"{effect}, {taken}at L = S alone" if self.square else effect

    @property
    def _effect(self) -> str:
        if self.kind == SWITCH:
            return f"{self.hides} hides the keys behind a query"
        if self.kind == LENGTHS:
            return "the number of visible keys"
        if self.kind == ADDED:
            return "floats are added to the scores"
        value = {"int": "1", "float": "1.0"}.get(self.kind, "True")
        if self.hides:
            return f"{value} hides, as in torch.nn.MultiheadAttention"
        return f"{value} keeps, the opposite of torch.nn.MultiheadAttention's"


@dataclass(frozen=True, slots=True)
class MaskSearchResult:
    """Mask formats of one parameter in one layout, best first, or the reason why none is known.

    ``three_axes``: as what it reads a mask of torch's shape (N * H, L, S), () where as that.
    ``short``: the shapes that a short call takes, while a longer one raises. ``integers_unlike``:
    whether a mask of 0 and 1, which is promised, hides other keys than the same one of booleans,
    ``integers_raise`` whether it raises: the cases show it, no trial of a feature passes one.
    ``raises``: each shape that is taken raises at other lengths. ``inputs``: the kind of inputs,
    "self" or "cross", with which alone it is read. ``replaces_causal``: a target that is causal by
    itself is not where the mask is passed. ``raising``: the documented shapes that raise.
    """

    parameter: Parameter
    taken: tuple[MaskFormat, ...] = ()
    reason: str = ""
    three_axes: Axes = ()
    short: tuple[Axes, ...] = ()
    integers_unlike: bool = False
    integers_raise: bool = False
    raises: bool = False
    inputs: str = ""
    replaces_causal: bool = False
    raising: tuple[Axes, ...] = ()

    def with_raising_integers(self) -> MaskSearchResult:
        """Return the result with the promised integers that raise, in the shapes of booleans."""
        booleans = (each for each in self.taken if each.kind == "bool" and self.integers_raise)
        return replace(self, taken=(*self.taken, *(replace(e, kind="int") for e in booleans)))


def length_shapes(layout: str) -> tuple[Axes, ...]:
    """Return the shapes of numbers of visible keys in a layout, likeliest first."""
    if layout == "unbatched":
        return (*SINGLE_LENGTHS, *LENGTH_SHAPES)
    return (*LENGTH_SHAPES, ONE_NUMBER)


def axes_text(axes: Axes) -> str:
    """Return a shape as one writes it."""
    words = ["N*H" if axis == "NH" else axis for axis in axes]
    return f"({', '.join(words)}{',' if len(words) == 1 else ''})"


def reduce_axes(array: Array, axes: Axes) -> Array | None:
    """Return a (N, H, L, S) array in a shape, None where it varies along an axis left out."""
    named = {"N", "H"} | set(axes) if "NH" in axes else set(axes)
    last = array.shape[-1] == 1 and axes[-1] == "1"  # counts, of which S is gone
    kept = tuple(
        slice(None) if axis in named or (axis == "S" and last) else slice(0, 1) for axis in _PLACE
    )
    part = array[kept]
    if not np.array_equal(np.broadcast_to(part, array.shape), array, equal_nan=True):
        return None
    sizes = dict(zip("NHLS", array.shape, strict=True)) | {"1": 1}
    sizes["NH"] = sizes["N"] * sizes["H"]
    if 0 in array.shape:
        return np.zeros([sizes[axis] for axis in axes], dtype=array.dtype)
    ordered = [axis for axis in _PLACE if axis in axes]
    wanted = [axis for axis in axes if axis in ordered]
    if wanted != ordered:
        part = part.reshape([sizes[axis] for axis in ordered])
        part = part.transpose([ordered.index(axis) for axis in wanted])
    return part.reshape([sizes[axis] for axis in axes])


def passed_text(passed: Mapping[str, Sequence[Axes]]) -> str:
    """Say what was passed for a parameter: the kinds of values, and their shapes."""
    kinds = " or ".join(passed)
    shapes = list(dict.fromkeys(axes for each in passed.values() for axes in each))
    if shapes in ([], [()]):
        return kinds
    if len(shapes) == 1:
        return f"{kinds} of shape {axes_text(shapes[0])}"
    ends = f"{axes_text(shapes[0])} to {axes_text(shapes[-1])}"
    return f"{kinds}, in {len(shapes)} shapes, {ends}"


def of_one_meaning(found: list[MaskFormat]) -> list[MaskFormat]:
    """Return the formats with a True of one meaning: that of the first of those that fit best.

    A parameter whose True hides in one shape or dtype and keeps in another is wrong in one of them.
    """
    marked = [taken for taken in found if taken.kind != ADDED]
    if not marked:
        return found
    hides = max(marked, key=lambda each: round(each.fit, 2)).hides
    return [each if each.kind == ADDED else replace(each, hides=hides) for each in found]
