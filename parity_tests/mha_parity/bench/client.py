"""A contender's process seen from the run: ask it, and get the reply or the reason for none."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, TypeVar

from mha_parity.bench.messages import (
    PROTOCOL,
    BuildReply,
    BytesReply,
    CpuTimeRequest,
    MemoryRequest,
    OpenReply,
    OpenRequest,
    SecondsReply,
    SgemmRequest,
    TimeRequest,
    UnableReply,
)
from mha_parity.worker.process import Process, WorkerLost

if TYPE_CHECKING:
    from typing import Self

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


class WorkerClient:
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
        self._process = Process(PROTOCOL, "mha_parity.bench.worker", settings)
        self._process.send(
            OpenRequest(
                contender=contender, text=text, convention=convention, threads=threads,
                search=tuple(sys.path),
            )
        )  # fmt: skip
        self._opened: OpenReply | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._process.end()

    def opened(self) -> OpenReply:
        """Wait until the contender is loaded; raise ``UnableError`` where it cannot be."""
        if self._opened is None:
            self._opened = self._reply(START, OpenReply)
        return self._opened

    def ask(self, request: Any, kind: type[Reply]) -> Reply:
        """Return the reply to a request; raise ``UnableError`` where there is a reason for none."""
        self.opened()
        self._process.send(request)
        return self._reply(ANSWER, kind)

    def measure(self, calls: int) -> float:
        """Return the seconds of one call, the mean of ``calls``."""
        return self.ask(TimeRequest(calls=calls), SecondsReply).seconds

    def built(self, request: Any) -> BuildReply:
        """Return the first answer to a task."""
        return self.ask(request, BuildReply)

    def used(self) -> float:
        """Return the seconds of all cores that the process has used since its start."""
        return self.ask(CpuTimeRequest(), SecondsReply).seconds

    def memory(self) -> int | None:
        """Return the growth of memory at its peak, in bytes."""
        return self.ask(MemoryRequest(), BytesReply).count

    def sgemm(self, size: int) -> float:
        """Return the seconds of one float32 product."""
        return self.ask(SgemmRequest(size=size), SecondsReply).seconds

    def _reply(self, limit: float, kind: type[Reply]) -> Reply:
        try:
            _, reply = self._process.wait(time.monotonic(), limit)[0]
        except WorkerLost as lost:
            raise UnableError(str(lost), failed=True) from None
        if isinstance(reply, UnableReply):
            raise UnableError(reply.reason, failed=reply.failed)
        if not isinstance(reply, kind):
            raise UnableError("answered what was not asked", failed=True)
        return reply
