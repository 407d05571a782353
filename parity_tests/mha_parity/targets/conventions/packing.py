"""Where a layer of torch keeps its four weights: a Linear each, or several packed into one.

Names vary, and so does how packed rows lie: what the names do not tell is asked of the layer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import TargetError
from mha_parity.targets.fit import names
from mha_parity.targets.problem_arrays import KEY_PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from mha_parity.core.arrays import Array

    Shapes = Mapping[str, tuple[int, ...]]

# What people call a Linear of its own, in lower case and without "_".
_OF_ROWS = ("w{}", "{}", "{}proj", "proj{}", "to{}", "{}linear", "linear{}", "fc{}", "w{}s")
_WORDS = {"q": ("query", "queries"), "k": ("key", "keys"), "v": ("value", "values")}
_OF_OUTPUT = (
    "wo", "out", "outproj", "oproj", "proj", "projection", "toout", "output", "outputproj", "fc",
    "fcout", "fco", "linearout", "outlinear", "wout", "dense", "cproj", "linear", "resproj",
)  # fmt: skip
_IN_A_LIST = re.compile(r"(?:.*\.)?\w+\.(?P<head>\d+)\.(?P<name>[^.]*[^.\d][^.]*)")
_INDEX = re.compile(r"(\.\d+)+$")
ROWS = "qkv"


@dataclass(frozen=True, slots=True)
class ProjectionSlot:
    """One Linear, and the projections that it holds, in the order of its rows.

    ``packing`` says how the rows of several parts lie: all of one part, then all of the next
    ("parts"), part by part within each head ("heads"), or within each column ("columns").
    ``transposed``: the weight is (in, out), as `x @ weight` reads it. ``head``: it holds the rows
    of this head alone.
    """

    name: str
    parts: tuple[str, ...]
    packing: str = "parts"
    transposed: bool = False
    head: int | None = None

    def pack(self, arrays: Mapping[str, Array], num_heads: int, kv_heads: int = 0) -> Array:
        """Return weight or bias of this Linear from those of its parts, (out, in) or (out,).

        Keys and values may have fewer heads than queries: "heads" are then those of one group.
        """
        given, groups = [arrays[part] for part in self.parts], kv_heads or num_heads
        if self.head is not None:
            heads = [array.reshape(num_heads, -1, *array.shape[1:]) for array in given]
            given, groups = [array[self.head] for array in heads], 1
        if self.packing == "parts":
            joined = np.concatenate(given)
        else:
            split = [array.reshape(groups, -1, *array.shape[1:]) for array in given]
            by_row = np.stack(split, 2) if self.packing == "columns" else np.concatenate(split, 1)
            joined = by_row.reshape(-1, *given[0].shape[1:])
        return joined.T if self.transposed and joined.ndim == 2 else joined


def unpack(
    slot: ProjectionSlot, array: Array, num_heads: int, kv_heads: int = 0
) -> dict[str, Array]:
    """Return the parts of a Linear's weight, bias or gradient: the inverse of ``pack``."""
    rows = array.T if slot.transposed and array.ndim == 2 else array
    heads, groups = (1, 1) if slot.head is not None else (num_heads, kv_heads or num_heads)
    counts = [groups if part in KEY_PARTS else heads for part in slot.parts]
    head_dim, rest = divmod(len(rows), sum(counts))
    if rest:
        parts = f"{heads} heads" + f" of {len(slot.parts)} projections" * (len(slot.parts) > 1)
        raise TargetError(f"got {slot.name} of {len(rows)} rows, but should divide into {parts}.")
    if slot.packing == "columns":
        columns = rows.reshape(heads, head_dim, len(slot.parts), *rows.shape[1:])
        found = [columns[:, :, place] for place in range(len(slot.parts))]
    else:
        within = groups if slot.packing == "heads" else 1
        ends = np.cumsum(counts)[:-1] * head_dim // within
        found = np.split(rows.reshape(within, -1, *rows.shape[1:]), ends, axis=1)
    return {
        part: each.reshape(-1, *rows.shape[1:])
        for part, each in zip(slot.parts, found, strict=True)
    }


def projection_slots(shapes: Shapes) -> tuple[ProjectionSlot, ...]:
    """Return the Linears of a layer of a state with these names and shapes; () if they are others.

    Biases and what has no weight (masks) are passed over.
    """
    linears = {n.removesuffix(".weight"): s for n, s in shapes.items() if n.endswith(".weight")}
    if any(len(shape) != 2 for shape in linears.values()):
        return ()
    square = len({*linears.values(), *(shape[::-1] for shape in linears.values())}) == 1
    alike = (_separate(linears) or _numbered(linears)) if square else ()
    found = alike or _by_head(linears) or _packed(linears)
    return found if found and {"q", "k", "v"} <= {p for slot in found for p in slot.parts} else ()


def _separate(linears: Collection[str]) -> tuple[ProjectionSlot, ...]:
    """Return a Linear each for q, k, v and perhaps the output, by their names."""
    left = {_plain(name): name for name in linears}
    spellings = {
        part: [form.format(each) for form in _OF_ROWS for each in (part, *words)]
        for part, words in _WORDS.items()
    }
    if len(left) < len(linears):
        return ()
    found = []
    for part, spelt in (spellings | {"out": [*_OF_OUTPUT]}).items():
        known = next((each for each in spelt if each in left), None)
        if known is not None:
            found.append(ProjectionSlot(left.pop(known), (part,)))
    if len(left) == 1 and [slot.parts for slot in found] == [(part,) for part in ROWS]:
        found.append(ProjectionSlot(left.popitem()[1], ("out",)))  # whatever it is called
    return () if left else tuple(found)


def _numbered(linears: Collection[str]) -> tuple[ProjectionSlot, ...]:
    """Return the Linears of one list: q, k, v and perhaps the output, in that order."""
    names = list(linears)
    if len({_INDEX.sub("", name) for name in names}) != 1 or len(names) not in {3, 4}:
        return ()
    return tuple(
        ProjectionSlot(name, (part,)) for name, part in zip(names, (*ROWS, "out"), strict=False)
    )


def _by_head(linears: Shapes) -> tuple[ProjectionSlot, ...]:
    """Return a Linear each for q, k and v of every head, kept in a list of heads."""
    heads: dict[int, dict[str, str]] = {}
    rest = []
    for name in linears:
        found = _IN_A_LIST.fullmatch(name)
        if found is None:
            rest.append(name)
        else:
            heads.setdefault(int(found["head"]), {})[found["name"]] = name
    ones = {head: _separate(names) for head, names in heads.items()}
    out = _separate(rest)
    if any([slot.parts for slot in one] != [(part,) for part in ROWS] for one in ones.values()):
        return ()
    if not heads or [slot.parts for slot in out] != [("out",)] * len(rest):
        return ()
    named = [
        ProjectionSlot(heads[head][slot.name], slot.parts, head=head)
        for head, one in ones.items()
        for slot in one
    ]
    width = linears[named[0].name][1]
    expected = (width // len(heads), width)
    fit = all(linears[slot.name] == expected for slot in named)
    return (*named, *out) if fit else ()


def _packed(linears: Shapes) -> tuple[ProjectionSlot, ...]:
    """Return one Linear for q, k and v, or one for q and one for both others, by their shapes."""
    width = min((min(shape) for shape in linears.values()), default=0)
    if not width:  # a layer of more heads than channels
        return ()
    found, square = [], []
    for name, shape in linears.items():
        if shape == (width, width):
            square.append(name)
            continue
        many, rest = divmod(max(shape), width)
        if rest or min(shape) != width or many not in {2, 3}:
            return ()
        found.append(ProjectionSlot(name, _spelt(name, many), transposed=shape[0] == width))
    if len(found) != 1:
        return ()
    if len(found[0].parts) == len("kv"):
        queries = [n for n in square if _plain(n) in {"q", "query", "toq", "qproj", "wq"}]
        if len(queries) != 1:
            return ()
        square.remove(queries[0])
        found.append(ProjectionSlot(queries[0], ("q",), transposed=found[0].transposed))
    if len(square) > 1:
        return ()
    return (
        *found,
        *(ProjectionSlot(name, ("out",), transposed=found[0].transposed) for name in square),
    )


def _spelt(name: str, many: int) -> tuple[str, ...]:
    """Return the parts of a packed Linear in the order of its name: kqv, say; else q, k, v."""
    usual = ROWS if many == len(ROWS) else "kv"
    spelt = re.search(f"[{usual}]{{{many}}}", _plain(name))
    order = spelt.group() if spelt and set(spelt.group()) == set(usual) else usual
    return tuple(order)


def _plain(name: str) -> str:
    return _INDEX.sub("", name).rpartition(".")[2].lower().replace("_", "")


def infer_packing(
    slot: ProjectionSlot, num_heads: int, width: int, answer: Callable[[Mapping[str, Array]], Array]
) -> ProjectionSlot:
    """Return the packed slot with its rows as the layer reads them, as far as it shows.

    Where every other row is 0 all logits are 0 and every key weighs the same: then a row of the
    values shows in its own column of the output, and any other row in none. ``answer`` returns the
    layer's output (rows, width) on ones for that weight of the slot, with the identity behind it.
    """
    seen = np.zeros((len(slot.parts) * width, width))
    for row in range(len(seen)):
        weight = np.zeros_like(seen)
        weight[row] = 1
        given = weight.T if slot.transposed else weight
        seen[row] = np.abs(answer({slot.name: given})).max(axis=0) > 0
    spelt = "".join(slot.parts) in _plain(slot.name)  # a name decides the order of its parts
    places = [slot.parts.index("v")] if spelt and "v" in slot.parts else range(len(slot.parts))
    for each in ("parts", "heads", "columns"):
        for place in places:
            parts = [part for part in slot.parts if part != "v"]
            parts.insert(place, "v")
            tried = ProjectionSlot(slot.name, tuple(parts), each, slot.transposed)
            none = np.zeros((width, width))
            expected = ProjectionSlot(slot.name, tried.parts, each).pack(
                dict.fromkeys(tried.parts, none) | {"v": np.eye(width)}, num_heads
            )
            if np.array_equal(expected, seen):
                return tried
    return slot


def names_rows(found: Sequence[ProjectionSlot], inputs: int) -> bool:
    """Return whether Linears other than the output's are called after what they project.

    Numbers are names where the call takes query, key and value.
    """
    kept = [slot.name for slot in found if slot.parts != ("out",)]
    numbered = all(re.search(r"\.\d+(\.|$)", name) for name in kept)
    return (inputs == len(ROWS) and numbered) or all(map(names.parts, kept))


def names_output(path: str) -> bool:
    """Return whether a weight is called as that of an output is."""
    return _plain(path.removesuffix(".weight")) in _OF_OUTPUT


def state_shapes(layer: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a layer's state by name."""
    return {name: tuple(array.shape) for name, array in layer.state_dict().items()}
