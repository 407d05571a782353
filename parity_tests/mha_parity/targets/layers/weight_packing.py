"""How the rows of several projections lie in one packed weight, and names of an output's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.candidate import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.core.arrays import Array

# What people call the Linear of the output, in lower case and without "_".
_OF_OUTPUT = (
    "wo", "out", "outproj", "oproj", "proj", "projection", "toout", "output", "outputproj", "fc",
    "fcout", "fco", "linearout", "outlinear", "wout", "dense", "cproj", "linear", "resproj",
)  # fmt: skip
_INDEX = re.compile(r"(\.\d+)+$")
ROWS = "qkv"


@dataclass(frozen=True, slots=True)
class ProjectionSlot:
    """One Linear, and the projections that it holds, in the order of its rows.

    ``packing`` says how the rows of several parts lie: all of one part, then all of the next
    ("parts"), part by part within each head ("heads"), or within each column ("columns").
    ``transposed``: the weight is (in, out), as `x @ weight` reads it.
    """

    name: str
    parts: tuple[str, ...]
    packing: str = "parts"
    transposed: bool = False

    def pack(self, arrays: Mapping[str, Array], num_heads: int) -> Array:
        """Return weight or bias of this Linear from those of its parts, (out, in) or (out,)."""
        given = [arrays[part] for part in self.parts]
        if self.packing == "parts":
            joined = np.concatenate(given)
        else:
            split = [array.reshape(num_heads, -1, *array.shape[1:]) for array in given]
            by_row = np.stack(split, 2) if self.packing == "columns" else np.concatenate(split, 1)
            joined = by_row.reshape(-1, *given[0].shape[1:])
        return joined.T if self.transposed and joined.ndim == 2 else joined


def unpack(slot: ProjectionSlot, array: Array, num_heads: int) -> dict[str, Array]:
    """Return the parts of a Linear's weight or bias: the inverse of ``pack``."""
    rows = array.T if slot.transposed and array.ndim == 2 else array
    count = len(slot.parts)
    head_dim, rest = divmod(len(rows), num_heads * count)
    if rest:
        parts = f"{num_heads} heads" + f" of {count} projections" * (count > 1)
        raise TargetError(f"got {slot.name} of {len(rows)} rows, but should divide into {parts}.")
    if slot.packing == "columns":
        columns = rows.reshape(num_heads, head_dim, count, *rows.shape[1:])
        found = [columns[:, :, place] for place in range(count)]
    else:
        within = num_heads if slot.packing == "heads" else 1
        found = np.split(rows.reshape(within, -1, *rows.shape[1:]), count, axis=1)
    return {
        part: each.reshape(-1, *rows.shape[1:])
        for part, each in zip(slot.parts, found, strict=True)
    }


def names_output(path: str) -> bool:
    """Return whether a weight is called as that of an output is."""
    last = _INDEX.sub("", path.removesuffix(".weight")).rpartition(".")[2]
    return last.lower().replace("_", "") in _OF_OUTPUT
