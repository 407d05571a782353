"""Keys and values of no rows, for calls that need those of the rows before them.

torch's layer keeps none. A layer whose call requires a state of earlier calls is attention where
that holds no row yet: a pair of arrays with an axis of 0 rows, or of None. How the axes lie is
tried; what calls with the state of rows before them answer is judged as that of any cache.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case

# Axes: N samples, G heads of keys and values, 0 rows, the width D of a head or C of all of them.
_AXES = ("NG0D", "N0GD", "G0D", "0GD", "N0C", "none")
PAIR, KEYS, VALUES = "pair", "keys", "values"
OBJECT = "object"  # what the user's code makes, for each call anew
OF_TWO = 2  # parameters of which one gets keys, the other one values


def empty_pairs() -> tuple[str, ...]:
    """Return the forms of a pair of arrays that hold no row, likeliest first."""
    return tuple(f"{PAIR} {axes}" for axes in _AXES if axes != "none")


def empty_states(names: Sequence[str]) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield how states of these names may be empty, each with its form, likeliest first."""
    if len(names) == OF_TWO:
        for axes in _AXES[:-1]:
            yield (names[0], f"{KEYS} {axes}"), (names[1], f"{VALUES} {axes}")
    for forms in product(_AXES, repeat=len(names) == 1):
        yield tuple((name, f"{PAIR} {axes}") for name, axes in zip(names, forms, strict=False))
    if len(names) == 1:
        yield ((names[0], OBJECT),)


def empty_state(
    form: str, case: Case, dtype: Any, array: Callable[[Array], Any], *, rows: int = 0
) -> Any:
    """Return what a state gets that holds no row, or rows of 1.

    ``array`` makes an array of its library.
    """
    kind, axes = form.split()
    if axes == "none":
        return None, None
    found = []
    heads = case.kv_heads_count or case.heads_count
    for width in (case.head_dim, case.v_head_dim or case.head_dim):
        sizes = {"N": case.batch, "G": heads, "0": rows, "D": width, "C": heads * width}
        found.append(array(np.ones([sizes[axis] for axis in axes], dtype)))
    return {PAIR: tuple(found), KEYS: found[0], VALUES: found[1]}[kind]


def state_text(form: str) -> str:
    """Say what a state gets."""
    if form == OBJECT:
        return "an empty cache that its own code makes"
    kind, axes = form.split()
    if axes == "none":
        return "a pair of None"
    words = {"G": "H", "C": "E"}
    shape = ", ".join(words.get(axis, axis) for axis in axes)
    held = {PAIR: "a pair of keys and values", KEYS: "keys", VALUES: "values"}[kind]
    return f"{held} of no rows, of shape ({shape})"
