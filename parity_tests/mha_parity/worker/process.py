"""One worker process: its pipes, its output, its end."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mha_parity.core.errors import UsageError
from mha_parity.core.safetensors import FormatError
from mha_parity.worker.framing import PIECE, BlockReader, frame_block
from mha_parity.worker.output_capture import OutputPerCase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Self

    from mha_parity.worker.encoding import Protocol

TICK = 0.1  # seconds between two measurements of the memory
PIPE_SIZE = 1 << 20
READS = 16  # of the output per exchange: it may have no end

NOT_POSIX = (
    "this system is {!r}, but a process of its own needs Linux, macOS or another POSIX system; "
    "pass --in-process to check or replay, or use WSL."
)


class WorkerLost(Exception):  # noqa: N818  (an event, and the severity says which)
    """The process ended or was ended; the message continues "the candidate ..."."""

    def __init__(self, severity: str, message: str, output: str) -> None:
        super().__init__(message)
        self.severity = severity
        self.output = output


# Runs a module as `python -m` does. It is found wherever this package lies, and the environment is
# the caller's: processes that a target starts find what they find without the harness.
ROOT = str(Path(__file__).resolve().parents[2])
START_MODULE = (
    "import runpy, sys; sys.path.append(sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


class Process:
    """A worker and the ends of its pipes. No call waits longer than its limit.

    Raises
    ------
    UsageError
        The system has no such pipes.

    """

    def __init__(
        self,
        protocol: Protocol,
        module: str = "mha_parity.worker.server",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        if os.name != "posix":
            raise UsageError(NOT_POSIX.format(os.name))
        self.loaded = self.ready = False
        self._held_at_first = 0
        self._moved = False  # whether bytes of an answer came last time
        requests, self._to = os.pipe()
        self._from, answers = os.pipe()
        _widen(self._to, self._from)
        self._popen = subprocess.Popen(
            [sys.executable, "-u", "-c", START_MODULE, ROOT, module, str(requests), str(answers)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            pass_fds=(requests, answers), start_new_session=True,
            env=_environment() | dict(settings or {}),
        )  # fmt: skip
        os.close(requests)
        os.close(answers)
        assert self._popen.stdout is not None  # noqa: S101  (asked for two lines above)
        self._printed = self._popen.stdout.fileno()
        self.output = OutputPerCase()
        self._protocol = protocol
        self._reader = BlockReader()
        self._garbage = ""
        self._unsent: list[memoryview] = []
        for descriptor in (self._to, self._from, self._printed):
            os.set_blocking(descriptor, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._from, selectors.EVENT_READ)
        self._selector.register(self._printed, selectors.EVENT_READ)
        self._writing = False
        descriptors = (self._to, self._from)
        self._finalizer = weakref.finalize(self, _end, self._popen, self._selector, descriptors)

    @property
    def unsent(self) -> bool:
        """Whether some of what was sent has not left this side yet."""
        return bool(self._unsent)

    def mark_ready(self) -> None:
        """Record the loaded target's memory; problems come next."""
        self.ready = True
        self._held_at_first = self._resident()

    def send(self, message: Any, number: int | None = None) -> None:
        """Send a message; bytes that the pipe does not take yet are sent by ``wait``."""
        self._unsent.append(memoryview(frame_block(self._protocol.encode(number, message))))
        self._flush()

    def wait(
        self, since: float, limit: float, memory: int | None = None
    ) -> list[tuple[int | None, Any]]:
        """Return what came, at least one message, no later than ``limit`` seconds after ``since``.

        Each comes with the number that it was sent with.

        Raises
        ------
        WorkerLost
            It ended, nothing came by then, what came is no message, or it took ``memory`` bytes
            beyond those at first.

        """
        until = since + limit
        while True:
            left = until - time.monotonic()
            # An answer of which bytes arrive may take another tick for the next.
            came = list(self._exchange(TICK if self._moved else min(TICK, max(0.0, left))))
            if came:
                return came
            # Checked after reading: bytes that arrived while nothing was read are in time.
            if left <= 0 and not self._moved:
                raise self.lost("timeout", f"gave no answer within {limit:.3g} seconds")
            if memory is not None and (taken := self._resident() - self._held_at_first) > memory:
                raise self.lost("crash", f"took {taken / 2**30:.2g} GiB of memory")

    def has_message(self, limit: float) -> bool:
        """Wait up to ``limit`` seconds, and return whether a message came or the process ended."""
        until = time.monotonic() + limit
        while True:
            left = max(0.0, until - time.monotonic())
            ready = {key.fd for key, _ in self._selector.select(left)}
            if self._from in ready or not left:
                return self._from in ready
            self._read_output()

    def end(self) -> None:
        """Kill the process and those that it started, and close the pipes."""
        self._finalizer()

    def _exchange(self, limit: float) -> Iterator[tuple[int | None, Any]]:
        """Move bytes both ways once; yield the messages that are whole."""
        if self._garbage:
            raise self.lost("crash", self._garbage)
        ready = {key.fd for key, _ in self._selector.select(limit)}
        self._moved = False
        if self._to in ready:
            self._flush()
        if self._from in ready:
            piece = _read(self._from)
            self._moved = bool(piece)
            if piece == b"":
                raise self.lost("crash", None)
            try:
                yield from map(self._protocol.decode, self._reader.feed(piece or b""))
            except FormatError as error:  # answers before it are in time
                self._garbage = f"wrote what is no message into the pipe of its answers: it {error}"
        if ready - {self._to}:  # what was printed for an answer is in the pipe before the answer
            self._read_output()

    def _read_output(self) -> None:
        for _ in range(READS):
            piece = _read(self._printed)
            if piece == b"" and self._printed in self._selector.get_map():
                self._selector.unregister(self._printed)
            if not piece:
                return
            self.output.feed(piece)

    def _flush(self) -> None:
        """Write as much as the pipe takes, and be called again when there is more."""
        while self._unsent:
            try:
                written = os.write(self._to, self._unsent[0])
            except BlockingIOError:
                break
            except BrokenPipeError:
                self._unsent.clear()  # it ended: the answers' pipe says so too
                break
            self._unsent[0] = self._unsent[0][written:]
            if not self._unsent[0]:
                self._unsent.pop(0)
        if self.unsent != self._writing:
            self._writing = self.unsent
            if self._writing:
                self._selector.register(self._to, selectors.EVENT_WRITE)
            else:
                self._selector.unregister(self._to)

    def lost(self, severity: str, message: str | None) -> WorkerLost:
        """End the process and return the report; without a message, of how it ended itself."""
        if message is None:
            try:
                self._popen.wait(1.0)
            except subprocess.TimeoutExpired:
                message = "closed its end of the pipe"
        _kill(self._popen)
        self._read_output()
        message = message or _exit_text(self._popen.returncode)
        lost = WorkerLost(severity, message, self.output.unfinished().last)
        self.end()
        return lost

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._popen.pid

    def _resident(self) -> int:
        """Return the bytes of memory that the process holds, with those that it started."""
        return _resident(self.pid)


class ProcessOwner:
    """Whatever has a process of its own. Close it, or use it in a ``with``."""

    _process: Process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._process.end()


def _resident(pid: int) -> int:
    """Return the bytes of memory of a process and its children; 0 where there is no /proc."""
    fields = _fields(Path(f"/proc/{pid}/statm"))
    threads = Path(f"/proc/{pid}/task").glob("*/children")  # each has those that it started
    children = [child for each in threads for child in _fields(each)]
    own = int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if fields else 0
    return own + sum(_resident(int(child)) for child in children)


def _fields(path: Path) -> list[str]:
    try:
        return path.read_text("ascii").split()
    except OSError:
        return []


def _read(descriptor: int) -> bytes | None:
    """Return what there is to read, b"" at the end, None where there is nothing now."""
    try:
        return os.read(descriptor, PIECE)
    except BlockingIOError:
        return None


def _environment() -> dict[str, str]:
    """Return the environment of a worker.

    Its libraries compute in one thread unless the caller says otherwise: threads that wait for each
    other over problems as small as cases take many times as long. JAX compiles without
    optimisations, since a program runs once or twice: with them it takes 1.2 times as long.
    TensorFlow says on standard error what it was built for; its errors are raised, too.
    """
    own = {"OMP_NUM_THREADS": "1", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    own |= {"TF_NUM_INTRAOP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return own | os.environ


def _widen(*descriptors: int) -> None:
    """Make pipes hold more, where the system can."""
    import fcntl

    for descriptor in descriptors:
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
        except (AttributeError, OSError):
            return


def _exit_text(status: int | None) -> str:
    if status is None:
        return "ended its process"
    if status < 0:
        return f"ended its process by signal {signal.Signals(-status).name}"
    return f"ended its process with exit status {status}"


def _kill(popen: subprocess.Popen[bytes]) -> None:
    if popen in _killed:
        return  # the number of its group may be another one's by now
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(popen.pid, signal.SIGKILL)  # its process group: children end with it
    popen.wait()
    _killed.add(popen)


_killed: weakref.WeakSet[subprocess.Popen[bytes]] = weakref.WeakSet()


def _end(
    popen: subprocess.Popen[bytes], selector: selectors.BaseSelector, descriptors: tuple[int, ...]
) -> None:
    selector.close()
    for descriptor in descriptors:
        os.close(descriptor)
    _kill(popen)
    for stream in (popen.stdin, popen.stdout):
        if stream is not None:
            stream.close()
