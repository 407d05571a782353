"""Messages between processes as plain data: dataclasses to blocks of safetensors and back.

A block has the arrays of a message under their numbers, and in its metadata the message as JSON:
its number, the name of its class, its fields. What is read back is of a class that the protocol
names, and each field of the type that the class declares: a block runs no code, unlike a pickle.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import numpy as np

from mha_parity.core.safetensors import DTYPES, FormatError, dump, load_tensors

MESSAGE = "message"
NUMBERS = "biuf"  # the kinds of dtypes that are read back
WIDEST = 16  # bytes of an element, those of a long double
NO_DATA = "has a message that is no plain data"

Encode = Callable[[Any, "list[Any]"], Any]
Decode = Callable[[Any, "list[Any]"], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """How values of one type go out and come back; ``encode`` is None where JSON has the type."""

    encode: Encode | None
    decode: Decode


class Protocol:
    """The classes of messages that two processes exchange.

    ``names`` are what the annotations of these classes refer to; classes among them that are
    dataclasses may be fields.
    """

    def __init__(self, kinds: tuple[type, ...], names: Mapping[str, Any]) -> None:
        self._names = dict(names) | {"Mapping": Mapping, "Any": Any}
        self._known: dict[Any, Field] = {}
        self._kinds = {kind.__name__: kind for kind in kinds}

    def encode(self, number: int | None, message: Any) -> bytes:
        """Return the block of a message; the same array twice is sent once."""
        arrays: list[Any] = []
        kind = type(message)
        encode = self._field(kind).encode
        assert encode is not None  # noqa: S101  (a message is a dataclass)
        text = json.dumps([number, kind.__name__, encode(message, arrays)], separators=(",", ":"))
        return dump({str(i): array for i, array in enumerate(arrays)}, {MESSAGE: text})

    def decode(self, block: bytes) -> tuple[int | None, Any]:
        """Return number and message of a block.

        Raises
        ------
        FormatError
            It is no block of this protocol.

        """
        found, metadata = load_tensors(block)
        try:
            number, name, fields = json.loads(metadata[MESSAGE])
            arrays = [found[str(i)] for i in range(len(found))]
            decode = self._field(self._kinds[name]).decode
            if number is not None and type(number) is not int:
                raise FormatError(NO_DATA)
            return number, decode(fields, arrays)
        except (KeyError, IndexError, TypeError, ValueError, RecursionError, OverflowError):
            raise FormatError(NO_DATA) from None

    def _field(self, declared: Any) -> Field:
        """Return how values of a declared type go out and come back, made once."""
        if declared not in self._known:
            self._known[declared] = self._made(declared)
        return self._known[declared]

    def _made(self, declared: Any) -> Field:
        origin, inner = typing.get_origin(declared), typing.get_args(declared)
        of_several: dict[Any, Callable[[tuple[Any, ...]], Field]] = {
            types.UnionType: self._optional, typing.Union: self._optional, tuple: self._tuple,
            dict: self._mapping, Mapping: self._mapping, np.ndarray: lambda _: ARRAY,
        }  # fmt: skip
        if origin in of_several:
            return of_several[origin](inner)
        if declared in {str, int, bool, float}:
            return _plain(declared)
        if issubclass(declared, StrEnum):
            return Field(None, lambda value, _: declared(value))
        if dataclasses.is_dataclass(declared):
            return self._dataclass(declared)
        raise TypeError(f"got a field of type {declared}, which no message may have.")

    def _optional(self, inner: tuple[Any, ...]) -> Field:
        """Return the field of ``X | None``."""
        one = self._field(next(each for each in inner if each is not type(None)))
        encode = one.encode
        return Field(
            encode and (lambda value, arrays: None if value is None else encode(value, arrays)),
            lambda value, arrays: None if value is None else one.decode(value, arrays),
        )

    def _tuple(self, inner: tuple[Any, ...]) -> Field:
        fields = [self._field(each) for each in inner if each is not Ellipsis]
        if Ellipsis in inner:
            (each,) = fields
            return Field(
                lambda value, arrays: [_out(each, v, arrays) for v in value],
                lambda value, arrays: tuple([each.decode(v, arrays) for v in _of(list, value)]),
            )
        return Field(
            lambda value, arrays: [_out(f, v, arrays) for f, v in zip(fields, value, strict=True)],
            lambda value, arrays: tuple(
                [f.decode(v, arrays) for f, v in zip(fields, _of(list, value), strict=True)]
            ),
        )

    def _mapping(self, inner: tuple[Any, ...]) -> Field:
        """Return the field of a mapping: a list of pairs, since keys may be tuples."""
        key, value = map(self._field, inner)
        return Field(
            lambda given, arrays: [
                [_out(key, k, arrays), _out(value, v, arrays)] for k, v in given.items()
            ],
            lambda given, arrays: {
                key.decode(k, arrays): value.decode(v, arrays) for k, v in _of(list, given)
            },
        )

    def _dataclass(self, kind: Any) -> Field:
        """Return the field of a dataclass: a mapping without what equals its plain default."""
        hints = typing.get_type_hints(kind, localns=self._names)
        fields = {each.name: self._field(hints[each.name]) for each in dataclasses.fields(kind)}
        outs = [
            (each.name, fields[each.name].encode, each.default) for each in dataclasses.fields(kind)
        ]

        def encode(value: Any, arrays: list[Any]) -> dict[str, Any]:
            sent = {}
            for name, out, default in outs:
                item = getattr(value, name)
                if item is default or (out is None and item == default):
                    continue
                sent[name] = item if out is None else out(item, arrays)
            return sent

        def decode(given: Any, arrays: list[Any]) -> Any:
            items = _of(dict, given).items()
            return kind(**{name: fields[name].decode(item, arrays) for name, item in items})

        return Field(encode, decode)


def _plain(kind: type) -> Field:
    """Return the field of a type that JSON has; a whole number may stand for a float."""

    def decode(value: Any, _: list[Any]) -> Any:
        if kind is float and type(value) is int:
            return float(value)
        return _of(kind, value)

    return Field(None, decode)


def _out(field: Field, value: Any, arrays: list[Any]) -> Any:
    return value if field.encode is None else field.encode(value, arrays)


def _of(kind: type, value: Any) -> Any:
    """Return a value that is of a type; raise ``TypeError`` for any other."""
    if type(value) is not kind:
        raise TypeError(f"got a {type(value).__name__}, but should be a {kind.__name__}.")
    return value


def _array_out(array: Any, arrays: list[Any]) -> Any:
    """Return the place of an array; one of another dtype than the blocks have goes as bytes."""
    for place, other in enumerate(arrays):
        if other is array:
            return place
    if array.dtype.name in DTYPES and array.dtype.isnative:
        arrays.append(array)
        return len(arrays) - 1
    arrays.append(np.frombuffer(array.tobytes(), np.uint8))
    return [len(arrays) - 1, array.dtype.str, list(array.shape)]


def _array_back(given: Any, arrays: list[Any]) -> Any:
    if type(given) is int and given >= 0:
        return arrays[given]
    place, text, shape = _of(list, given)
    dtype = np.dtype(_of(str, text))
    if dtype.kind not in NUMBERS or dtype.itemsize > WIDEST:
        raise TypeError(f"got an array of dtype {dtype}, which is no number.")
    return np.frombuffer(arrays[_of(int, place)].tobytes(), dtype).reshape(shape).copy()


ARRAY = Field(_array_out, _array_back)
