"""The border between NumPy and torch: exact casts in, plain arrays out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping

Array: TypeAlias = NDArray[Any]

DTYPES: Mapping[str, torch.dtype] = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype called `name`; ml_dtypes is imported only for bfloat16."""
    if name == "bfloat16":
        import ml_dtypes  # optional, and wanted for bfloat16 only

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    if name in DTYPES:
        return np.dtype(name)
    msg = f"`dtype`={name!r}, but should be one of {', '.join(DTYPES)}."
    raise ValueError(msg)


def to_tensor(array: Array, dtype: str, name: str) -> torch.Tensor:
    """Return a contiguous copy of `array` as a tensor; booleans stay booleans.

    Raises
    ------
    ValueError
        If some value cannot be represented in `dtype`: the oracle would then answer for another
        problem than the given one.
    """
    array = np.asarray(array)
    if array.dtype == np.bool_:
        return torch.from_numpy(np.array(array, order="C"))
    wanted = numpy_dtype(dtype)
    if np.can_cast(array.dtype, wanted, "safe"):
        cast = np.array(array, dtype=wanted, order="C")
    else:
        cast = _narrowed(array, wanted, name)
    if dtype == "bfloat16":  # torch.from_numpy does not know ml_dtypes' type: pass the bits
        return torch.from_numpy(cast.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(cast)


def _narrowed(array: Array, wanted: np.dtype[Any], name: str) -> Array:
    """Return `array` in a dtype that does not hold every value of its own, if it holds these."""
    with np.errstate(over="ignore"):
        cast = np.array(array, dtype=wanted, order="C")
    common = np.result_type(array.dtype, np.float64)
    if not np.array_equal(array.astype(common), cast.astype(common), equal_nan=True):
        msg = f"`{name}` of dtype {array.dtype} is not representable in {wanted}: round it first."
        raise ValueError(msg)
    return cast


def to_array(tensor: torch.Tensor) -> Array:
    """Return the tensor's values as a NumPy array of the dtype with the same name."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(numpy_dtype("bfloat16")).copy()
    return tensor.numpy().copy()


def equal(first: Array, second: Array) -> bool:
    """Whether two inputs are one and the same, by identity or by value (self-attention)."""
    if first is second:
        return True
    return first.shape == second.shape and np.array_equal(first, second, equal_nan=True)
