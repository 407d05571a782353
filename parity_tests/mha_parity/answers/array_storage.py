"""Pack the arrays of a record without loss: drawn again, stored once, or by their difference.

Inputs that the case's seed draws are not stored. An output is stored as the bits in which it
differs from torch's own output in the dtype of the case. What is left is deflated.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.cases.rng import numpy_dtype
from mha_parity.core.case import parse
from mha_parity.core.safetensors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mha_parity.core.arrays import Array

PACKED = "packed"  # the one array of a packed file
BASE = "output weights"  # the kind of result from which other outputs differ in few bits
# What reading bytes that are no packed file may raise.
_DAMAGE = (
    zlib.error, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError,
    RecursionError,
)  # fmt: skip
DRAWN, SAME, DIFFERENCE, WHOLE = "drawn", "same", "difference", "whole"


def pack_arrays(arrays: Mapping[str, Array], text: str) -> dict[str, Array]:
    """Return one array, of which ``unpack_arrays`` makes all arrays and the manifest's text."""
    manifest = json.loads(text)
    drawn, bases = dict(_drawn(manifest)), dict(_bases(manifest, arrays))
    stays = set(bases.values())
    index, parts = [], []
    first: dict[tuple[str, tuple[int, ...], bytes], str] = {}
    for name, array in arrays.items():
        twin = first.setdefault((array.dtype.name, array.shape, array.tobytes()), name)
        if name in drawn and _equal(drawn[name], array):
            way, base = DRAWN, ""
        elif twin != name and name not in stays:
            way, base = SAME, twin
        elif name in bases:
            way, base = DIFFERENCE, bases[name]
            parts.append(_planes(_difference(array, arrays[base])))
        else:
            way, base = WHOLE, ""
            parts.append(_planes(array))
        index.append([name, array.dtype.name, array.shape, way, base])
    head = json.dumps([text, index], separators=(",", ":")).encode()
    block = b"".join((len(head).to_bytes(8, "little"), head, *parts))
    return {PACKED: np.frombuffer(zlib.compress(block), dtype=np.uint8)}


def unpack_arrays(packed: Mapping[str, Array]) -> tuple[dict[str, Array], str]:
    """Return the arrays and the manifest's text that were packed.

    Raises
    ------
    FormatError
        They cannot be made from the array.

    """
    try:
        return _unpack(zlib.decompress(packed[PACKED].tobytes()))
    except _DAMAGE as error:
        raise FormatError(f"is damaged: it cannot be unpacked ({error})") from None


def _unpack(block: bytes) -> tuple[dict[str, Array], str]:
    end = 8 + int.from_bytes(block[:8], "little")
    text, index = json.loads(block[8:end])
    drawn = dict(_drawn(json.loads(text)))
    arrays: dict[str, Array] = {}
    for name, dtype, shape, way, _ in index:
        if way in {WHOLE, DIFFERENCE}:
            arrays[name], end = _array(block, end, numpy_dtype(dtype), shape)
        elif way == DRAWN:
            arrays[name] = np.ascontiguousarray(drawn[name])
    for name, _, _, way, base in index:
        if way == DIFFERENCE:
            arrays[name] = _difference(arrays[name], arrays[base])
    # Copied: one object twice would be self-attention.
    arrays |= {name: arrays[base].copy() for name, _, _, way, base in index if way == SAME}
    return {name: arrays[name] for name, *_ in index}, text


def _drawn(manifest: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    """Yield the inputs of every case as its seed draws them, by the names of the recorded ones."""
    for entry in manifest["cases"]:
        problem = make_problem(parse(entry["id"]))
        for field, name in entry["inputs"].items():
            array = getattr(problem, field)
            if array is not None:
                yield name, array


def _equal(first: Array, second: Array) -> bool:
    """Return whether two arrays have the same dtype, shape and bits."""
    alike = first.dtype == second.dtype and first.shape == second.shape
    return alike and first.tobytes() == second.tobytes()


def _bases(manifest: Mapping[str, Any], arrays: Mapping[str, Array]) -> Iterator[tuple[str, str]]:
    """Yield the names of outputs, and that of the output of the same case they are close to."""
    for entry in manifest["cases"]:
        outputs = [
            (result["kind"], result["arrays"]["output"])
            for result in entry["results"]
            if "output" in result["arrays"]
        ]
        base = next((name for kind, name in outputs if kind == BASE), "")
        for _, name in outputs:
            if base not in {"", name} and arrays[name].shape == arrays[base].shape:
                yield name, base


def _difference(array: Array, base: Array) -> Array:
    """Return ``array`` with the bits turned that ``base``, in its dtype, has."""
    bits = np.dtype(f"u{array.itemsize}")
    close = np.where(np.isnan(base), base.dtype.type(0), base).astype(
        array.dtype
    )  # NaN has several
    turned = np.ascontiguousarray(array).view(bits) ^ np.ascontiguousarray(close).view(bits)
    return np.asarray(turned.view(array.dtype))


def _planes(array: Array) -> bytes:
    """Return the first byte of all elements, then the second, ...: alike ones lie together."""
    return np.frombuffer(array.tobytes(), np.uint8).reshape(-1, array.itemsize).T.tobytes()


def _array(block: bytes, start: int, dtype: np.dtype[Any], shape: list[int]) -> tuple[Array, int]:
    """Return an array from its planes at a place of the block, and the place behind it."""
    count = int(np.prod(shape, dtype=np.int64))
    if count < 0:
        raise ValueError(f"got the shape {shape}")
    end = start + count * dtype.itemsize
    planes = np.frombuffer(block, np.uint8, end - start, start).reshape(dtype.itemsize, count)
    return np.frombuffer(planes.T.tobytes(), dtype).reshape(shape).copy(), end
