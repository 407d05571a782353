"""A program that is started once a chunk, with the names of a file to read and a file to write.

Both files hold the messages that a pipe would, one after another: for what has no standard input
that one may wait at, and for what takes long to start.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections import defaultdict, deque
from pathlib import Path
from typing import TYPE_CHECKING

from mha_parity.core.safetensors import LENGTH, FormatError
from mha_parity.targets.command import LARGEST, NO_LENGTH, Command, Ended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

REQUESTS, ANSWERS = "{requests}", "{answers}"  # what stands in the command for the two names
TICK = 0.01  # seconds between two looks at a program
STALLED = 2.0  # seconds without a further answer after which a chunk is given up


def command(text: str) -> Command:
    """Return the program that a text starts: with files where it names both, else with pipes."""
    return (CommandOfFiles if REQUESTS in text and ANSWERS in text else Command)(text)


class CommandOfFiles(Command):
    """A program, started for each chunk of requests."""

    def __init__(self, text: str) -> None:
        """Start the program and ask it for what it offers.

        Raises
        ------
        TargetError
            There is no such program, or it does not say what it offers.

        """
        self._folder = tempfile.TemporaryDirectory(prefix="mha-parity-")
        self._requests, self._answers = (
            Path(self._folder.name) / name for name in ("requests", "answers")
        )
        # Of requests that were answered ahead: the same request may come several times.
        self._known: defaultdict[bytes, deque[bytes]] = defaultdict(deque)
        super().__init__(text)

    def ask_ahead(self, blocks: Sequence[bytes], waits: Callable[[], None]) -> None:
        """Have requests that will come answered by one program; ``waits`` is called meanwhile.

        Where it fails on any of them, or does not go on, nothing is kept: asked one by one, each
        request fails by itself.
        """
        self._known.clear()
        self._start(blocks)
        if self._ended(waits) == 0:
            with contextlib.suppress(FormatError, Ended):
                for block, answer in zip(blocks, list(self._written(len(blocks))), strict=True):
                    self._known[block].append(answer)

    def _answer(self, block: bytes) -> bytes:
        if kept := self._known.get(block):
            return kept.popleft()
        self._start([block])
        assert self._popen is not None  # noqa: S101  (started)
        status = self._popen.wait()
        if status:
            raise Ended(status)
        (answer,) = self._written(1)
        return answer

    def _start(self, blocks: Sequence[bytes]) -> None:
        """Start the program on a file of requests."""
        self._stop()
        self._requests.write_bytes(b"".join(LENGTH.pack(len(each)) + each for each in blocks))
        self._answers.unlink(missing_ok=True)
        names = {REQUESTS: str(self._requests), ANSWERS: str(self._answers)}
        words = list(self._words)
        for name, path in names.items():
            words = [word.replace(name, path) for word in words]
        self._popen = subprocess.Popen(words, stdin=subprocess.DEVNULL)

    def _ended(self, waits: Callable[[], None]) -> int | None:
        """Return the exit status; None where no further answer came for too long."""
        assert self._popen is not None  # noqa: S101  (started)
        size, since = -1, time.monotonic()
        while self._popen.poll() is None:
            time.sleep(TICK)
            waits()
            now = self._answers.stat().st_size if self._answers.exists() else 0
            if now != size:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > STALLED:
                self._stop()
                return None
        return self._popen.returncode

    def _written(self, count: int) -> Iterator[bytes]:
        """Yield as many answers from the file.

        Raises
        ------
        FormatError
            What should be a length is none.
        Ended
            There are fewer.

        """
        left = self._answers.read_bytes() if self._answers.exists() else b""
        for _ in range(count):
            if len(left) >= LENGTH.size and (length := LENGTH.unpack_from(left)[0]) > LARGEST:
                raise FormatError(NO_LENGTH.format(left[: LENGTH.size]))
            end = LENGTH.size + length if len(left) >= LENGTH.size else 1
            if len(left) < end:
                raise Ended(0)
            yield left[LENGTH.size : end]
            left = left[end:]
