"""Blocks of safetensors are those of the package, and a damaged one is refused in one sentence."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from mha_parity.core.safetensors import DTYPES, LENGTH, METADATA, FormatError, dump, load_tensors

ARRAYS = {
    "flag": np.array([True, False, True]),
    "rows": np.arange(6, dtype=np.float32).reshape(2, 3),
    "empty": np.zeros((0, 4)),
    "lengths": np.array([3, 1], dtype=np.int64),
    "turned": np.arange(6, dtype=np.float16).reshape(2, 3).T,
    "number": np.array(2.5),
}
METAS = {"protocol": "x/1", "scale": "0.5"}


def test_the_package_reads_what_is_written() -> None:
    """The safetensors package reads every array of a block, in its dtype and shape."""
    read = safetensors.numpy.load(dump(ARRAYS, METAS))
    assert ARRAYS.keys() == read.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(read[name], array, strict=True)


def test_what_the_package_writes_is_read() -> None:
    """A block of the package is read to the bit, with its metadata."""
    arrays = {name: np.ascontiguousarray(array) for name, array in ARRAYS.items()}
    read, metadata = load_tensors(safetensors.numpy.save(arrays, metadata=METAS))
    assert (METAS, arrays.keys()) == (metadata, read.keys())
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array, strict=True)


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_goes_through(name: str) -> None:
    """An array of each dtype comes back as it went, writable and in its own memory."""
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    array = np.array([[0, 1, 1]]).astype(dtype)
    read, _ = load_tensors(dump({"array": array}, {}))
    np.testing.assert_array_equal(read["array"], array, strict=True)
    assert read["array"].flags.writeable


def block(header: object, data: bytes = b"") -> bytes:
    """Return a block with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return LENGTH.pack(len(text)) + text + data


def one(**changes: object) -> dict[str, object]:
    """Return the header of one array of a byte, with changes."""
    return {"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1], **changes}}


BROKEN = {
    "short": (b"\0\0", "has 2 bytes"),
    "length": (LENGTH.pack(1 << 60) + b"{}", f"a header of {1 << 60}"),
    "json": (block(b"{no"), "no JSON"),
    "utf8": (block(b"\xff\xff"), "no JSON"),
    "deep": (block(b"[" * 100000), "no JSON"),
    "list": (block([]), "no JSON object"),
    "twice": (block(b'{"a":1,"a":2}'), "names something twice"),
    "metadata": (block({METADATA: {"a": 1}}), "no mapping of text"),
    "fields": (block({"a": {"dtype": "U8"}}), "without dtype, shape"),
    "dtype": (block(one(dtype="U7"), b"x"), "unknown dtype 'U7'"),
    "unhashable dtype": (block(one(dtype=[]), b"x"), r"unknown dtype \[\]"),
    "shape": (block(one(shape=[-1]), b"x"), "no lists of sizes"),
    "three": (block(one(data_offsets=[0, 1, 1]), b"x"), "no lists of sizes"),
    "bool": (block(one(shape=[True]), b"x"), "no lists of sizes"),
    "size": (block(one(shape=[2]), b"x"), "1 bytes of `a`, but should have 2"),
    "hole": (block(one(data_offsets=[1, 2]), b"xy"), "a hole or an overlap at byte 0"),
    "overlap": (block(one() | {"b": one()["a"]}, b"x"), "a hole or an overlap at byte 0"),
    "rest": (block(one(), b"xy"), "has 2 bytes of data, but should have 1"),
    "cut": (block(one()), "has 0 bytes of data, but should have 1"),
}


@pytest.mark.parametrize(("data", "sentence"), BROKEN.values(), ids=BROKEN)
def test_a_broken_block_is_refused(data: bytes, sentence: str) -> None:
    """Whatever is wrong with a block, one sentence says it; the package refuses all but a twin."""
    with pytest.raises(FormatError, match=sentence):
        load_tensors(data)
    if "twice" not in sentence:
        with pytest.raises(safetensors.SafetensorError):
            safetensors.numpy.load(data)
