"""One contender's own process: ``python -m mha_parity.bench.worker REQUESTS ANSWERS``.

It sleeps on its pipe while others are timed. Every request is answered by one message.
"""

from __future__ import annotations

import gc
import importlib
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mha_parity.bench import machine
from mha_parity.worker.framing import messages, send

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.bench.calls import Workload
    from mha_parity.bench.contenders import Contender
    from mha_parity.bench.workload import JudgedPart
    from mha_parity.core.candidate import Answer
    from mha_parity.core.features import Offer
    from mha_parity.targets.conventions.base import Convention

WARM = 0.005  # seconds of untimed calls, after which caches hold what they can
SLOW = 0.5  # seconds that a first call takes which is no guess at the next one's time
# A process that slept starts all its threads on one core: the scheduler takes some ten milliseconds
# to spread them, in which two threads are slower than one. Measurements start after that.
SPREAD = 0.03
LONG = 0.3  # calls longer than this lose little by it


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """Load the contender's library, or bind the target ``text``."""

    contender: Contender
    text: str | None
    convention: str | None
    threads: int
    search: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenReply:
    """Loaded; ``offer`` is a target's."""

    offer: Offer | None
    libraries: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Take the task up from its folder and answer it once, the part that is judged."""

    folder: str
    part: JudgedPart


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReply:
    """The answer's judged part, and how long the next call took."""

    answer: Answer
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRequest:
    """Make ``calls`` calls and answer with the mean seconds of one."""

    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """Answer with the bytes at the peak beyond those of the loaded library, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTimeRequest:
    """Answer with the seconds of all cores that this process has used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SgemmRequest:
    """Multiply two float32 matrices of n rows and columns; answer with the seconds it took."""

    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnableReply:
    """The reason, in words that follow the contender's name."""

    reason: str
    failed: bool


class Worker:
    """The state between requests."""

    def __init__(self, opening: OpenRequest) -> None:
        self.contender = opening.contender
        self.bound: Convention | None = None
        if opening.text is not None:
            self.bound = _bind(opening.text, opening.convention)
        _limit_threads(opening)
        self._try_small()
        self._baseline = machine.resident_memory()
        self._workload: Workload | None = None
        self._seconds = 0.0

    def opened(self) -> OpenReply:
        """Say what was loaded."""
        offer = self.bound.offer if self.bound is not None else None
        return OpenReply(offer=offer, libraries=machine.blas())

    def _try_small(self) -> None:
        """Load what a library loads on its first call, so that it counts as loaded."""
        from mha_parity.bench.calls import built
        from mha_parity.bench.tasks import SMALL, Task
        from mha_parity.bench.workload import draw_task

        if self.bound is None:
            built(self.contender, draw_task(Task(size=SMALL[1]))).call()

    def build(self, request: Build) -> BuildReply:
        """Build the workload; the peak of memory is looked for from here on."""
        from mha_parity.bench import array_files
        from mha_parity.bench.calls import built

        task_arrays = array_files.read_arrays(request.folder)
        self._workload = workload = built(self.contender, task_arrays, self.bound)
        machine.reset_peak_memory()
        start = time.perf_counter()
        result = workload.call()
        self._seconds = time.perf_counter() - start
        answer = request.part.of(workload.answer(result), task_arrays.task.size.head_dim)
        del result
        if self._seconds < SLOW:
            self._seconds = _least(workload.call)
        return BuildReply(answer=answer, seconds=self._seconds)

    def measure(self, request: TimeRequest) -> float:
        """Return the seconds of one call, the mean over the measurement."""
        assert self._workload is not None  # noqa: S101  (a measurement follows a build)
        until = time.perf_counter() + SPREAD
        while self._seconds < LONG and time.perf_counter() < until:
            self._workload.call()
        return _timed(self._workload.call, request.calls)

    def memory(self, _: MemoryRequest) -> int | None:
        """Return the growth of memory at its peak."""
        peak = machine.peak()
        return None if peak is None or self._baseline is None else peak - self._baseline

    def sgemm(self, request: SgemmRequest) -> float:
        """Return the seconds of one product."""
        if self.contender.library == "torch":
            import torch

            left = torch.ones(request.size, request.size)
            return _timed(lambda: left @ left, 1)
        import numpy as np

        right = np.ones((request.size, request.size), np.float32)
        return _timed(lambda: right @ right, 1)


def _least(call: Callable[[], Any]) -> float:
    """Return the least seconds of a few calls."""
    until = time.perf_counter() + WARM
    seconds = min(_timed(call, 1) for _ in range(2))
    while time.perf_counter() < until:
        seconds = min(seconds, _timed(call, 1))
    return seconds


def _timed(call: Callable[[], Any], calls: int) -> float:
    gc.disable()
    try:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls
    finally:
        gc.enable()


def _bind(text: str, convention: str | None) -> Convention:
    from mha_parity.targets import load
    from mha_parity.targets.bind import bind

    return bind(load.load(text), convention, label=text)


def _limit_threads(opening: OpenRequest) -> None:
    """Set the threads of libraries that do not ask the environment for them."""
    if opening.contender.library == "torch" or "torch" in sys.modules:
        import torch

        torch.set_num_threads(opening.threads)


def serve(requests: int, answers: int) -> None:
    """Answer requests until the pipe is closed."""
    incoming = messages(requests)
    opening: OpenRequest = next(incoming)
    sys.path[:] = opening.search
    worker: Worker | None = None
    reply: Any = None
    try:
        worker = Worker(opening)
        reply = worker.opened()
    except Exception as error:  # noqa: BLE001  (whatever somebody's code raises)
        reply = unable(error)
    send(answers, reply)
    for request in incoming:
        send(answers, answered(worker, request))


def answered(worker: Worker | None, request: Any) -> Any:
    """Return the reply to a request; what a contender raises becomes a reason."""
    if worker is None:
        return UnableReply(reason="did not start", failed=True)
    kinds: dict[type, Callable[[Any], Any]] = {
        Build: worker.build,
        TimeRequest: worker.measure,
        MemoryRequest: worker.memory,
        SgemmRequest: worker.sgemm,
        CpuTimeRequest: lambda _: time.process_time(),
    }
    try:
        return kinds[type(request)](request)
    except Exception as error:  # noqa: BLE001  (as above)
        return unable(error)


def unable(error: Exception) -> UnableReply:
    """Return the reason that an exception gives; one that is expected is no failure."""
    text = str(error).strip().splitlines()
    if isinstance(error, NotImplementedError):
        return UnableReply(reason=text[0], failed=False)
    if isinstance(error, ValueError) and type(error) is not ValueError:
        return UnableReply(reason=text[0] if text else type(error).__name__, failed=True)
    said = f": {text[0]}" if text else ""
    return UnableReply(reason=f"raised {type(error).__name__}{said}", failed=True)


def main() -> None:
    """Run as a process."""
    from mha_parity.worker.server import end_with_parent

    end_with_parent()
    serve(int(sys.argv[1]), int(sys.argv[2]))


if __name__ == "__main__":
    # Under the module's own name: its messages are then of the types that the run knows.
    importlib.import_module("mha_parity.bench.worker").main()
