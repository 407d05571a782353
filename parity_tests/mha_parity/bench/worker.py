"""One contender's own process: ``python -m mha_parity.bench.worker REQUESTS ANSWERS``.

It sleeps on its pipe while others are timed. Every request is answered by one message.
"""

from __future__ import annotations

import gc
import sys
import time
from typing import TYPE_CHECKING, Any

from mha_parity.bench import machine, messages
from mha_parity.worker.framing import blocks, send

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.bench.workload import Workload
    from mha_parity.targets.convention_base.convention import Convention

WARM = 0.005  # seconds of untimed calls, after which caches hold what they can
SLOW = 0.5  # seconds that a first call takes which is no guess at the next one's time
# A process that slept starts all its threads on one core: the scheduler takes some ten milliseconds
# to spread them, in which two threads are slower than one. Measurements start after that.
SPREAD = 0.03
LONG = 0.3  # calls longer than this lose little by it


class Worker:
    """The state between requests."""

    def __init__(self, opening: messages.OpenRequest) -> None:
        self.contender = opening.contender
        self.bound: Convention | None = None
        if opening.text is not None:
            self.bound = _bind(opening.text, opening.convention)
        _limit_threads(opening)
        self._try_small()
        self._baseline = machine.resident_memory()
        self._workload: Workload | None = None
        self._seconds = 0.0

    def opened(self) -> messages.OpenReply:
        """Say what was loaded."""
        offer = self.bound.offer if self.bound is not None else None
        return messages.OpenReply(offer=offer, libraries=machine.blas())

    def _try_small(self) -> None:
        """Load what a library loads on its first call, so that it counts as loaded."""
        from mha_parity.bench.layer_calls import build_workload
        from mha_parity.bench.task_arrays import draw_task
        from mha_parity.bench.tasks import SMALL, Task

        if self.bound is None:
            build_workload(
                self.contender, draw_task(Task(size=SMALL[1], form=self.contender.form))
            ).call()

    def build(self, request: messages.BuildRequest) -> messages.BuildReply:
        """Build the workload; the peak of memory is looked for from here on."""
        from mha_parity.bench import array_files
        from mha_parity.bench.layer_calls import build_workload

        task_arrays = array_files.read_arrays(request.folder)
        self._workload = workload = build_workload(self.contender, task_arrays, self.bound)
        machine.reset_peak_memory()
        start = time.perf_counter()
        result = workload.call()
        self._seconds = time.perf_counter() - start
        answer = request.part.of(workload.answer(result), task_arrays.task.size.head_dim)
        del result
        if self._seconds < SLOW:
            self._seconds = _least(workload.call)
        return messages.BuildReply(answer=answer, seconds=self._seconds)

    def measure(self, request: messages.TimeRequest) -> messages.SecondsReply:
        """Return the seconds of one call, the mean over the measurement."""
        assert self._workload is not None  # noqa: S101  (a measurement follows a build)
        until = time.perf_counter() + SPREAD
        while self._seconds < LONG and time.perf_counter() < until:
            self._workload.call()
        return messages.SecondsReply(seconds=_timed(self._workload.call, request.calls))

    def memory(self, _: messages.MemoryRequest) -> messages.BytesReply:
        """Return the growth of memory at its peak."""
        peak = machine.peak_memory()
        if peak is None or self._baseline is None:
            return messages.BytesReply(count=None)
        return messages.BytesReply(count=peak - self._baseline)

    def sgemm(self, request: messages.SgemmRequest) -> messages.SecondsReply:
        """Return the seconds of one product."""
        if self.contender.library == "torch":
            import torch

            left = torch.ones(request.size, request.size)
            return messages.SecondsReply(seconds=_timed(lambda: left @ left, 1))
        import numpy as np

        right = np.ones((request.size, request.size), np.float32)
        return messages.SecondsReply(seconds=_timed(lambda: right @ right, 1))


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


def _limit_threads(opening: messages.OpenRequest) -> None:
    """Set the threads of libraries that do not ask the environment for them."""
    if opening.contender.library == "torch" or "torch" in sys.modules:
        import torch

        torch.set_num_threads(opening.threads)


def serve(requests: int, answers: int) -> None:
    """Answer requests until the pipe is closed."""
    incoming = (messages.PROTOCOL.decode(block)[1] for block in blocks(requests))
    opening = next(incoming)
    assert isinstance(opening, messages.OpenRequest)  # noqa: S101  (the run's first message)
    sys.path[:] = opening.search
    worker: Worker | None = None
    reply: Any = None
    try:
        worker = Worker(opening)
        reply = worker.opened()
    except Exception as error:  # noqa: BLE001  (whatever the target's code raises)
        reply = unable_reply(error)
    send(answers, messages.PROTOCOL.encode(None, reply))
    for request in incoming:
        send(answers, messages.PROTOCOL.encode(None, reply_to(worker, request)))


def reply_to(worker: Worker | None, request: Any) -> Any:
    """Return the reply to a request; what a contender raises becomes a reason."""
    if worker is None:
        return messages.UnableReply(reason="did not start", failed=True)
    kinds: dict[type, Callable[[Any], Any]] = {
        messages.BuildRequest: worker.build,
        messages.TimeRequest: worker.measure,
        messages.MemoryRequest: worker.memory,
        messages.SgemmRequest: worker.sgemm,
        messages.CpuTimeRequest: lambda _: messages.SecondsReply(seconds=time.process_time()),
    }
    try:
        return kinds[type(request)](request)
    except Exception as error:  # noqa: BLE001  (as above)
        return unable_reply(error)


def unable_reply(error: Exception) -> messages.UnableReply:
    """Return the reason that an exception gives; one that is expected is no failure."""
    text = str(error).strip().splitlines()
    if isinstance(error, NotImplementedError):
        return messages.UnableReply(reason=text[0], failed=False)
    if isinstance(error, ValueError) and type(error) is not ValueError:
        return messages.UnableReply(reason=text[0] if text else type(error).__name__, failed=True)
    said = f": {text[0]}" if text else ""
    return messages.UnableReply(reason=f"raised {type(error).__name__}{said}", failed=True)


def main() -> None:
    """Run as a process."""
    from mha_parity.worker.server import end_with_parent

    end_with_parent()
    serve(int(sys.argv[1]), int(sys.argv[2]))


if __name__ == "__main__":
    main()
