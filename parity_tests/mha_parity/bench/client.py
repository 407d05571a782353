"""A contender's process seen from the run: ask it, and get the reply or the reason for none."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from mha_parity.bench.worker import (
    BuildReply,
    CpuTimeRequest,
    MemoryRequest,
    OpenReply,
    OpenRequest,
    SgemmRequest,
    TimeRequest,
    UnableReply,
)
from mha_parity.worker.process import Process, WorkerLost

if TYPE_CHECKING:
    from typing import Self

    from mha_parity.bench.contenders import Contender

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
        self._process = Process("mha_parity.bench.worker", settings)
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
            reply = self._reply(START)
            assert isinstance(reply, OpenReply)  # noqa: S101  (the worker's first reply)
            self._opened = reply
        return self._opened

    def ask(self, request: Any) -> Any:
        """Return the reply to a request; raise ``UnableError`` where there is a reason for none."""
        self.opened()
        self._process.send(request)
        return self._reply(ANSWER)

    def measure(self, calls: int) -> float:
        """Return the seconds of one call, the mean of ``calls``."""
        return float(self.ask(TimeRequest(calls=calls)))

    def built(self, request: Any) -> BuildReply:
        """Return the first answer to a task."""
        reply: BuildReply = self.ask(request)
        return reply

    def used(self) -> float:
        """Return the seconds of all cores that the process has used since its start."""
        return float(self.ask(CpuTimeRequest()))

    def memory(self) -> int | None:
        """Return the growth of memory at its peak, in bytes."""
        grown: int | None = self.ask(MemoryRequest())
        return grown

    def sgemm(self, size: int) -> float:
        """Return the seconds of one float32 product."""
        return float(self.ask(SgemmRequest(size=size)))

    def _reply(self, limit: float) -> Any:
        try:
            reply = self._process.wait(time.monotonic(), limit)[0]
        except WorkerLost as lost:
            raise UnableError(str(lost), failed=True) from None
        if isinstance(reply, UnableReply):
            raise UnableError(reply.reason, failed=reply.failed)
        return reply
