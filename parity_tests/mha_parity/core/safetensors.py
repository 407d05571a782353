"""Read and write safetensors: named arrays and a mapping of text in one block of bytes.

The format: the length of the header (u64, little-endian), the header (JSON), the data of the
arrays without holes. The package of that name reads and writes the same; it has no bfloat16 for
NumPy, and no way to metadata in memory.
"""

from __future__ import annotations

import json
import math
import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mha_parity.core.arrays import Array

_WORDS = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
DTYPES: Mapping[str, str] = MappingProxyType(_WORDS)  # of NumPy's dtypes, the words of the format
_NAMES = {word: name for name, word in _WORDS.items()}
LENGTH = struct.Struct("<Q")
ALIGNMENT = 8
METADATA = "__metadata__"
_FIELDS = {"dtype", "shape", "data_offsets"}


class FormatError(ValueError):
    """A block is no safetensors; the message continues "the block ..."."""


def dump(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    """Return the block of the arrays, each C-contiguous, wider elements first.

    The header has no space but its padding at the end, and metadata first.
    """
    order = sorted(arrays, key=lambda name: -arrays[name].itemsize)
    header: dict[str, Any] = {METADATA: dict(metadata)}
    parts, end = [], 0
    for name in order:
        array = arrays[name]
        part = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [end, end + len(part)],
        }
        parts.append(part)
        end += len(part)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return b"".join((LENGTH.pack(len(text)), text, *parts))


def load_tensors(block: bytes, *, copied: bool = True) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the arrays and the metadata of a block; ``copied``, or as they lie in it.

    Raises
    ------
    FormatError
        The block is no safetensors, or not whole.

    """
    if len(block) < LENGTH.size:
        raise FormatError(f"has {len(block)} bytes, but should begin with a length of 8")
    (length,) = LENGTH.unpack_from(block)
    start = LENGTH.size + length
    if start > len(block):
        raise FormatError(
            f"has {len(block)} bytes, but should have a header of {length} behind its length"
        )
    header = _header(block[LENGTH.size : start])
    metadata = header.pop(METADATA, {})
    texts = isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())
    if not texts:
        raise FormatError(f"has `{METADATA}` that is no mapping of text to text")
    places = {name: _place(name, given) for name, given in header.items()}
    _whole(places.values(), len(block) - start)
    arrays = {}
    for name, (dtype, shape, first, _) in places.items():
        count = math.prod(shape)
        array = np.frombuffer(block, dtype, count, start + first).reshape(shape)
        # Arrays that are not aligned may be summed in another order.
        arrays[name] = array.copy() if copied else array
    return arrays, metadata


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise FormatError("has a header that is no JSON") from None
    if not isinstance(header, dict):
        raise FormatError("has a header that is no JSON object")
    return header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise FormatError("has a header that names something twice")
    return found


def _place(name: str, given: Any) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """Return dtype, shape, and begin and end in the data, of one array."""
    if not isinstance(given, dict) or set(given) != _FIELDS:
        raise FormatError(f"describes `{name}` without dtype, shape and data_offsets alone")
    if str(given["dtype"]) not in _NAMES:
        raise FormatError(f"has `{name}` of the unknown dtype {given['dtype']!r}")
    dtype = _dtype(_NAMES[given["dtype"]])
    shape, offsets = given["shape"], given["data_offsets"]
    if not _sizes(shape) or not _sizes(offsets) or len(offsets) != 2:
        raise FormatError(f"has `{name}` with a shape or offsets that are no lists of sizes")
    first, last = offsets
    wanted = math.prod(shape) * dtype.itemsize
    if last - first != wanted:
        raise FormatError(f"has {last - first} bytes of `{name}`, but should have {wanted}")
    return dtype, tuple(shape), first, last


def _sizes(given: Any) -> bool:
    return isinstance(given, list) and all(type(n) is int and n >= 0 for n in given)


def _dtype(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes  # noqa: F401  (NumPy knows the name from then on)

    return np.dtype(name)


def _whole(places: Iterable[tuple[Any, Any, int, int]], size: int) -> None:
    """Make sure that the arrays fill the data without holes and overlaps."""
    end = 0
    for first, last in sorted((first, last) for _, _, first, last in places):
        if first != end:
            raise FormatError(f"has arrays with a hole or an overlap at byte {min(first, end)}")
        end = last
    if end != size:
        raise FormatError(f"has {size} bytes of data, but should have {end}")
