"""Which dtypes may come in, and in which one is computed.

float64 and float32 are computed natively. float16 and bfloat16 (ml_dtypes) are computed in
float32 from the first product to the last and rounded once, at the end; torch rounds after every
step. Everything else is refused: an integer array would be truncated somewhere on the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


Array: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[Any]]
"""An array of any shape and dtype."""
FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
BOOL = np.dtype(np.bool_)
SUPPORTED = "float64, float32, float16 or bfloat16"


def resolve_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Return `dtype` as one of the four, or raise TypeError; "bfloat16" loads ml_dtypes."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        import ml_dtypes  # optional: only for those who ask for bfloat16

        dtype = ml_dtypes.bfloat16
    try:
        # By way of the scalar type, so that native byte order and NumPy's own object come out.
        resolved = np.dtype(np.dtype(dtype).type)
    except TypeError:
        resolved = None
    if resolved is None or not is_supported(resolved):
        actual = repr(dtype) if resolved is None else resolved
        raise TypeError(f"`dtype` is {actual}, but should be {SUPPORTED}; choose one of them.")
    return resolved


def is_supported(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of this dtype can be computed with."""
    return dtype in {FLOAT64, FLOAT32} or dtype.name in {"float16", "bfloat16"}


def working_dtype(dtype: np.dtype[Any], *, precise: bool = False) -> np.dtype[Any]:
    """Return the dtype to compute in: float64 for float64 or where `precise`, else float32."""
    return FLOAT64 if precise or dtype == FLOAT64 else FLOAT32


def to_array(value: object, name: str) -> Array:
    """Return the argument as a plain native-endian array, without a copy where it is one.

    Takes whatever NumPy can read, torch tensors on the CPU among it. Raises TypeError for what
    NumPy cannot read as one rectangular array and for masked arrays, whose mask would be lost.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"`{name}` is a masked array, but should be a plain one: its mask would be ignored; "
            f"pass `{name}.data` and say what is hidden with a mask argument."
        )
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"`{name}` is a {type(value).__name__} that NumPy cannot read as an array ({error}); "
            "pass a numpy.ndarray."
        ) from None
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def to_floating(value: object, name: str) -> Array:
    """Return the argument as an array of a supported dtype, or raise TypeError."""
    array = to_array(value, name)
    if not is_supported(array.dtype):
        raise TypeError(
            f"`{name}` has dtype {array.dtype}, but should be {SUPPORTED}; "
            f"convert it, for example with `{name}.astype(np.float32)`."
        )
    return array


def to_mask(value: object, name: str, dtype: np.dtype[Any]) -> Array:
    """Return a mask as a boolean or float array that goes with inputs of `dtype`.

    float32 masks go with every input dtype, as in torch's scaled_dot_product_attention.
    """
    mask = to_array(value, name)
    if mask.dtype in {BOOL, FLOAT32, dtype}:
        return mask
    raise TypeError(
        f"`{name}` has dtype {mask.dtype}, but should be bool, float32 or the inputs' {dtype}; "
        f"convert it, for example with `{name}.astype(bool)`."
    )


def require_same(dtype: np.dtype[Any], whose: str, **arrays: Array | None) -> None:
    """Raise TypeError unless every array given has `dtype`; nothing is promoted, as in torch."""
    for name, array in arrays.items():
        if array is not None and array.dtype != dtype:
            raise TypeError(
                f"`{name}` has dtype {array.dtype}, but should have {whose} {dtype}; "
                f"convert it with `{name}.astype({dtype.name!r})`."
            )
