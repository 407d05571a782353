"""Blocks between the run and a candidate's process, each behind its length (u64, little-endian)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mha_parity.core.safetensors import LENGTH, FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE = 1 << 20
LARGEST = 1 << 36  # bytes of a block: a larger length means a corrupt stream


def frame_block(block: bytes) -> bytes:
    """Return a block behind its length."""
    return LENGTH.pack(len(block)) + block


class BlockReader:
    """Collect bytes from a pipe and return them as blocks."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the blocks that are complete with ``piece``.

        Raises
        ------
        FormatError
            What should be a length is none.

        """
        self._held += piece
        while len(self._held) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._held)
            if length > LARGEST:
                raise FormatError(f"begins with {bytes(self._held[:8])!r}, which is no length")
            end = LENGTH.size + length
            if len(self._held) < end:
                return
            block = bytes(memoryview(self._held)[LENGTH.size : end])
            del self._held[:end]
            yield block


def blocks_per_read(descriptor: int) -> Iterator[list[bytes]]:
    """Yield the blocks of each reading of a pipe, until its other end is closed."""
    reader = BlockReader()
    while piece := os.read(descriptor, PIECE):
        yield list(reader.feed(piece))


def blocks(descriptor: int) -> Iterator[bytes]:
    """Yield blocks from a pipe, waiting for each, until its other end is closed."""
    for batch in blocks_per_read(descriptor):
        yield from batch


def send(descriptor: int, block: bytes) -> None:
    """Write a block to a pipe, waiting until all of it is through."""
    left = memoryview(frame_block(block))
    while left:
        left = left[os.write(descriptor, left) :]
