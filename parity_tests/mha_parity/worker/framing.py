"""Messages between the run and a candidate's process: pickles, each behind its length."""

from __future__ import annotations

import os
import pickle
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_LENGTH = struct.Struct("<Q")
PIECE = 1 << 20


def frame(message: Any) -> bytes:
    """Return the bytes of a message: its length and its pickle."""
    body = pickle.dumps(message, protocol=5)
    return _LENGTH.pack(len(body)) + body


class MessageDecoder:
    """Collect bytes from a pipe and return them as messages."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, piece: bytes) -> Iterator[Any]:
        """Yield the messages that are complete with ``piece``."""
        self._held += piece
        while len(self._held) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._held)
            end = _LENGTH.size + length
            if len(self._held) < end:
                return
            body = bytes(memoryview(self._held)[_LENGTH.size : end])
            del self._held[:end]
            yield pickle.loads(body)  # noqa: S301  (written by our own code on the other side)


def messages(descriptor: int) -> Iterator[Any]:
    """Yield messages from a pipe, waiting for each, until its other end is closed."""
    unframer = MessageDecoder()
    while piece := os.read(descriptor, PIECE):
        yield from unframer.feed(piece)


def send(descriptor: int, message: Any) -> None:
    """Write a message to a pipe, waiting until all of it is through."""
    left = memoryview(frame(message))
    while left:
        left = left[os.write(descriptor, left) :]
