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
from mha_parity.targets.programs.command import LARGEST, NO_LENGTH, Command, Ended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

REQUESTS, ANSWERS = "{requests}", "{answers}"  # what stands in the command for the two names
TICK = 0.01  # seconds between two looks at a program
STALLED = 2.0  # seconds without a further answer after which a chunk is given up
SLOWER = 2.0  # a start that takes longer than the longest so far by this factor has stalled, too


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
        # Of requests that were answered ahead: the same request may come several times.
        self._known: defaultdict[bytes, deque[bytes]] = defaultdict(deque)
        self._start = 0.0  # seconds that the program took for one request, its start included
        super().__init__(text)

    def ask_ahead(self, blocks: Sequence[bytes], waits: Callable[[], None]) -> None:
        """Have requests that will come answered by one program; ``waits`` is called meanwhile.

        Where it fails on any of them, or does not go on, nothing is kept: asked one by one, each
        request fails by itself.
        """
        self._known.clear()
        status, written = self._run(blocks, waits)
        if status == 0:
            with contextlib.suppress(FormatError, Ended):
                answers = list(_messages(written, len(blocks)))
                for block, answer in zip(blocks, answers, strict=True):
                    self._known[block].append(answer)

    def _answer(self, block: bytes) -> bytes:
        if kept := self._known.get(block):
            return kept.popleft()
        status, written = self._run([block])
        if status:
            raise Ended(status)
        (answer,) = _messages(written, 1)
        return answer

    def _run(
        self, blocks: Sequence[bytes], waits: Callable[[], None] | None = None
    ) -> tuple[int | None, bytes]:
        """Run the program on requests; return its status, None if it stalled, and what it wrote."""
        # A folder for each run: this process is killed at its end, and cleans nothing up then.
        with tempfile.TemporaryDirectory(prefix="mha-parity-") as folder:
            requests, answers = (Path(folder) / name for name in ("requests", "answers"))
            requests.write_bytes(b"".join(LENGTH.pack(len(each)) + each for each in blocks))
            words = [
                word.replace(REQUESTS, str(requests)).replace(ANSWERS, str(answers))
                for word in self._words
            ]
            started = time.monotonic()
            self._popen = subprocess.Popen(words, stdin=subprocess.DEVNULL)
            first = max(STALLED, SLOWER * self._start)
            if waits is None:
                status: int | None = self._popen.wait()
                self._start = max(self._start, time.monotonic() - started)
            else:
                goes_on = _goes_on(self._popen, answers, waits, first)
                status = self._popen.wait() if goes_on else None
            self._stop()
            return status, answers.read_bytes() if answers.exists() else b""


def _goes_on(
    popen: subprocess.Popen[bytes], answers: Path, waits: Callable[[], None], first: float
) -> bool:
    """Wait until the program has ended; return False where no further answer comes for too long.

    ``first``: the seconds until the first answer, which the program's start comes before.
    """
    size, since = -1, time.monotonic()
    while popen.poll() is None:
        time.sleep(TICK)
        waits()
        now = answers.stat().st_size if answers.exists() else 0
        if now != size:
            size, since = now, time.monotonic()
        elif time.monotonic() - since > (STALLED if now else first):
            return False
    return True


def _messages(written: bytes, count: int) -> Iterator[bytes]:
    """Yield as many messages of a file.

    Raises
    ------
    FormatError
        What should be a length is none.
    Ended
        There are fewer.

    """
    start = 0
    for _ in range(count):
        begin = written[start : start + LENGTH.size]
        if len(begin) < LENGTH.size:
            raise Ended(0)
        (length,) = LENGTH.unpack(begin)
        if length > LARGEST:
            raise FormatError(NO_LENGTH.format(begin))
        start += LENGTH.size
        if start + length > len(written):
            raise Ended(0)
        yield written[start : start + length]
        start += length
