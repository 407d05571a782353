"""Rotations of positions by an angle of 0, for calls that need a table of them.

torch's layer knows no positions. A layer whose call gets rotations of queries and keys from outside
is attention all the same where they turn nothing: cosines of 1, sines of 0, complex numbers of 1.
Rows of positions that are added have no effect where they are zeros. How the table lies is tried,
as its name says first: ``freqs_cis`` of L rows of D / 2 complex numbers, ``position_embeddings`` of
a pair of cosines and sines, numbers of positions. What the layer does with other positions is not
judged, and the report says so.
"""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case

NOTHING_TURNED = "positions without effect in every call: what it does with others is not judged"
ODD_WIDTH = "a rotation turns pairs of channels, so that heads of an odd width were not asked"
PREFIX = "prefix"  # of rows that all others see: one of no row has no effect
# Axes of a table: L rows, the width D of a head, P pairs or the width E of the input, and axes of 1
# of samples and heads.
_BY_CHANNEL = ("LD", "LP", "1LD", "11LD", "1L1D", "1LP", "11LP", "1L1P")
_COMPLEX = ("LP", "1LP", "1L1P", "11LP")
_FORMS = {
    "complex": tuple(f"complex {axes}" for axes in _COMPLEX),
    "pair": tuple(f"pair {axes}" for axes in _BY_CHANNEL),
    "stacked": ("stacked LP", "stacked LD", "stacked 1L1P", "first LD", "first LP"),
    "angles": tuple(f"0 {axes}" for axes in _BY_CHANNEL),
    "added": ("0 NLE", "0 LE"),
    "numbers": ("numbers L", "numbers NL"),
    PREFIX: (f"{PREFIX} N", f"{PREFIX} 1"),
}
# The kinds of table that a name speaks of first; the others follow.
_BY_NAME = (
    (PREFIX, (PREFIX,)),
    (r"cis|complex", ("complex", "stacked", "pair", "angles")),
    (r"cos_?sin|emb|enc|rope|rotary", ("pair", "complex", "angles", "stacked", "added")),
    (r"^pos(itions?)?$|pos(itions?)?_ids?$", ("numbers", "added", "pair", "complex", "angles")),
    (r"", ("complex", "angles", "pair", "stacked")),
)
_COSINES, _SINES = re.compile(r"(^|_)cos"), re.compile(r"(^|_)sin(?!usoid)")
_STACKED = {"stacked": -1, "first": 0}  # the axis of cosines and sines in one array
_WORDS = {
    "complex": "complex numbers of 1", "pair": "a pair of cosines and sines",
    "stacked": "cosines and sines in a last axis", "first": "cosines and sines in a first axis",
    "0": "zeros", "1": "cosines of 1",
    "numbers": "positions of 0", PREFIX: "a prefix of no row",
}  # fmt: skip


def rotations(names: Sequence[str]) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield how tables of these names may lie, each with its form, likeliest first."""
    cosines = [name for name in names if _COSINES.search(name) and not _SINES.search(name)]
    sines = [name for name in names if _SINES.search(name) and not _COSINES.search(name)]
    paired = bool(cosines) and bool(sines)
    others = [name for name in names if not (paired and name in (*cosines, *sines))]
    by_axes: list[tuple[tuple[str, str], ...]] = [()]
    if paired:
        by_axes = [
            (*((name, f"1 {axes}") for name in cosines), *((name, f"0 {axes}") for name in sines))
            for axes in _BY_CHANNEL
        ]
    alike = _FORMS["numbers"] if paired else [*_forms(others[0])] if others else []
    tables = [tuple((name, form) for name in others) for form in alike] if others else [()]
    for waves, table in product(by_axes, tables):
        yield (*waves, *table)


def _forms(name: str) -> Iterator[str]:
    """Yield the forms of a table by its name."""
    kinds = next(kinds for pattern, kinds in _BY_NAME if re.search(pattern, name.lower()))
    for kind in kinds:
        yield from _FORMS[kind]


def rotation_by_nothing(form: str, case: Case, dtype: Any, array: Callable[[Array], Any]) -> Any:
    """Return what a table of rotations gets in a call; ``array`` makes one of its library."""
    kind, axes = form.split()
    sizes = {
        "L": case.queries, "D": case.head_dim, "P": case.head_dim // 2, "1": 1, "N": case.batch,
        "E": case.embed_dim,
    }  # fmt: skip
    shape = tuple(sizes[axis] for axis in axes)
    if kind == "complex":
        wide = np.dtype(dtype) == np.float64
        return array(np.ones(shape, np.complex128 if wide else np.complex64))
    if kind == "pair":
        return array(np.ones(shape, dtype)), array(np.zeros(shape, dtype))
    if kind in _STACKED:
        return array(np.stack([np.ones(shape, dtype), np.zeros(shape, dtype)], _STACKED[kind]))
    if kind == PREFIX and axes == "1":
        return 0
    if kind in {"numbers", PREFIX}:
        return array(np.zeros(shape, np.int64))
    return array(np.full(shape, int(kind), dtype))


def rotation_text(form: str) -> str:
    """Say what a table of rotations gets."""
    kind, axes = form.split()
    shape = ", ".join({"P": "D / 2"}.get(axis, axis) for axis in axes)
    if kind == "first":
        shape = f"2, {shape}"
    more = ", 2" if kind == "stacked" else "," if len(axes) == 1 else ""
    return f"{_WORDS[kind]} of shape ({shape}{more})"
