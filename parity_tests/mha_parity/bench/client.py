"""A contender's process seen from the run: ask it, and get the reply or the reason for none."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, TypeVar

from mha_parity.bench import messages
from mha_parity.worker.process import Process, ProcessOwner, WorkerLost

if TYPE_CHECKING:
    from mha_parity.bench.contenders import Contender

Reply = TypeVar("Reply")
START = 180.0  # seconds for imports: frameworks take many on a cold disk, and all start at once
ANSWER = 900.0  # seconds for anything else: GPT-3's layer is drawn, copied and computed
THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS", "MHA_NUMPY_THREADS",
)  # fmt: skip


class UnableError(Exception):
    """The contender cannot go on; the message follows its name. ``failed``: it should have."""

    def __init__(self, reason: str, *, failed: bool) -> None:
        super().__init__(reason)
        self.failed = failed


class WorkerClient(ProcessOwner):
    """A contender in a process of its own. Close it, or use it in a ``with``."""

    def __init__(
        self,
        contender: Contender,
        *,
        threads: int,
        text: str | None = None,
        convention: str | None = None,
    ) -> None:
        self.contender = contender
        settings = dict.fromkeys(THREADS, str(threads))
        self._process = Process(messages.PROTOCOL, "mha_parity.bench.worker", settings)
        self._process.send(
            messages.OpenRequest(
                contender=contender, text=text, convention=convention, threads=threads,
                search=tuple(sys.path),
            )
        )  # fmt: skip
        self._opened: messages.OpenReply | None = None

    @property
    def pid(self) -> int:
        """The number of the contender's process."""
        return self._process.pid

    def opened(self) -> messages.OpenReply:
        """Wait until the contender is loaded; raise ``UnableError`` where it cannot be."""
        if self._opened is None:
            self._opened = self._reply(START, messages.OpenReply)
        return self._opened

    def ask(self, request: Any, kind: type[Reply]) -> Reply:
        """Return the reply to a request; raise ``UnableError`` where there is a reason for none."""
        self.opened()
        self._process.send(request)
        return self._reply(ANSWER, kind)

    def measure(self, calls: int) -> float:
        """Return the seconds of one call, the mean of ``calls``."""
        return self.ask(messages.TimeRequest(calls=calls), messages.SecondsReply).seconds

    def built(self, request: Any) -> messages.BuildReply:
        """Return the first answer to a task."""
        return self.ask(request, messages.BuildReply)

    def used(self) -> float:
        """Return the seconds of all cores that the process has used since its start."""
        return self.ask(messages.CpuTimeRequest(), messages.SecondsReply).seconds

    def memory(self) -> int | None:
        """Return the growth of memory at its peak, in bytes."""
        return self.ask(messages.MemoryRequest(), messages.BytesReply).count

    def sgemm(self, size: int) -> float:
        """Return the seconds of one float32 product."""
        return self.ask(messages.SgemmRequest(size=size), messages.SecondsReply).seconds

    def _reply(self, limit: float, kind: type[Reply]) -> Reply:
        try:
            _, reply = self._process.wait(time.monotonic(), limit)[0]
        except WorkerLost as lost:
            raise UnableError(str(lost), failed=True) from None
        if isinstance(reply, messages.UnableReply):
            raise UnableError(reply.reason, failed=reply.failed)
        if not isinstance(reply, kind):
            raise UnableError("answered what was not asked", failed=True)
        return reply
