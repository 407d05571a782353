"""Tensors of a target's own class, which holds a NumPy array as `data`, as small autograd has them.

A target gets its inputs so, and its answer is the `data` of what it returns. Masks of booleans and
integers stay NumPy's, as such classes hold floats.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.features import AXES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array

LIKELY = ("Tensor", "Variable", "Parameter", "Array", "Node", "Value")
PLAIN = np.array([[0.5, -0.25], [2.0, 1.0]])


class OwnTensors:
    """One such class: its dtypes are those that it keeps."""

    memory: tuple[str, ...] = ("c",)

    def __init__(self, kind: type) -> None:
        self.name = f"its own {kind.__qualname__}"
        self._kind = kind
        self.differentiates = callable(getattr(kind, "backward", None))
        self.dtypes = tuple(name for name in AXES["dtype"] if self._keeps(name))

    def _keeps(self, dtype: str) -> bool:
        if dtype == "bfloat16":  # NumPy's products have none of it
            return False
        held = _held(self._kind, PLAIN.astype(dtype))
        return held is not None and held.dtype == dtype

    def from_numpy(self, array: Array) -> Any:
        """Return a tensor of the numbers; other arrays than of floats as they are."""
        return self._kind(array) if array.dtype.kind == "f" else array

    def to_numpy(self, value: Any) -> Array:
        """Return the numbers of a tensor."""
        return np.asarray(value.data)


def own_tensors(subject: object) -> Iterator[OwnTensors]:
    """Yield the classes of tensors of the packages or files that a class or function stands in.

    Looked for in what it and the classes of its module see, by the names that such classes have.
    """
    seen: set[int] = set()
    scopes = [_scope(subject)]
    scopes += [_scope(each) for each in [*scopes[0].values()] if isinstance(each, type)]
    for scope in scopes:
        for name in LIKELY:
            kind = scope.get(name)
            if isinstance(kind, type) and id(kind) not in seen and _is_own(kind):
                seen.add(id(kind))
                if (found := OwnTensors(kind)).dtypes:
                    yield found


def _scope(subject: object) -> dict[str, Any]:
    """Return the names that a class or function sees."""
    found = sys.modules.get(str(getattr(subject, "__module__", "")))
    return dict(vars(found)) if found is not None else {}


def _is_own(kind: type) -> bool:
    """Return whether a class is of no library, and its objects can be multiplied as matrices."""
    root = kind.__module__.partition(".")[0]
    multiplies = any(hasattr(kind, name) for name in ("__matmul__", "matmul", "dot"))
    return root not in {"torch", "numpy", "jax", "jaxlib", "keras", "tensorflow"} and multiplies


def _held(kind: type, array: Array) -> Array | None:
    """Return what a tensor of an array holds; None where it holds no such array."""
    with suppress(Exception):
        held = kind(array).data
        if type(held) is np.ndarray and np.array_equal(held, array):
            return held
    return None
