"""Split the target's output per case.

The worker writes a mark into the same pipe at the end of each case, so that the output of one case
never counts as another's, however many cases the worker is ahead of its reader.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TAIL = 8192  # bytes of a case's output that are kept
LINES = 12  # of them shown
WIDTH = 160  # of each
FATAL = "Fatal Python error"  # where faulthandler begins its report
START = -1  # the case number of what is printed before the first case
_MARK = re.compile(rb"\x00mha-parity (-?\d+)\x00")
_LONGEST = 32  # the largest number of bytes of a mark


def end_mark(number: int) -> bytes:
    """Return what ends the output of case ``number``."""
    return b"\x00mha-parity %d\x00" % number


@dataclass(frozen=True, slots=True)
class CapturedOutput:
    """The output of one case: how many bytes, and the last lines."""

    size: int = 0
    last: str = ""


class OutputPerCase:
    """Collect the bytes of a pipe and return them per case."""

    def __init__(self) -> None:
        self._size = 0
        self._tail = bytearray()
        self._pending = b""  # may be the beginning of a mark
        self._finished: dict[int, CapturedOutput] = {}

    def feed(self, piece: bytes) -> None:
        """Add bytes that came over the pipe."""
        text = self._pending + piece
        done = 0
        for found in _MARK.finditer(text):
            self._keep(text[done : found.start()])
            self._finished[int(found[1])] = self.unfinished()
            self._size = 0
            self._tail.clear()
            done = found.end()
        half = text.rfind(b"\x00", max(done, len(text) - _LONGEST))
        end = len(text) if half < 0 else half
        self._keep(text[done:end])
        self._pending = text[end:]

    def take(self, number: int) -> CapturedOutput:
        """Return what case ``number`` printed, once."""
        return self._finished.pop(number, CapturedOutput())

    def unfinished(self) -> CapturedOutput:
        """Return what the case that has not ended printed so far."""
        return CapturedOutput(self._size, last_lines(self._tail) if self._size else "")

    def _keep(self, text: bytes) -> None:
        self._size += len(text)
        self._tail += text[-TAIL:]
        del self._tail[:-TAIL]


def last_lines(tail: bytes | bytearray) -> str:
    """Return the last lines of an output; of a fatal error its first."""
    lines = tail.decode("utf-8", "replace").splitlines()
    fatal = next((i for i, line in enumerate(lines) if line.startswith(FATAL)), None)
    shown = lines[-LINES:] if fatal is None else lines[fatal : fatal + LINES]
    return "\n".join(line if len(line) <= WIDTH else f"{line[:WIDTH]}..." for line in shown)
