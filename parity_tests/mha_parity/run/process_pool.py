"""Processes of this machine that give up their work where the caller no longer wants it.

An executor of the standard library waits for all that its processes have begun, which takes a
minute and more. A process that is killed while it sends an answer leaves half of it in the pipe,
and the executor waits for the rest forever. So a process is asked to end by a signal, which it
follows while it works, and not while it sends or waits.
"""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from multiprocessing.context import BaseContext
    from types import TracebackType

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
ASKED_EVERY = 0.05  # seconds
HAS_MASKS = hasattr(signal, "pthread_sigmask")  # not on Windows, where nothing is forked


class _ThisWorker:
    """Whether this process works on a task, and whether it was asked to end."""

    works = False
    asked_to_end = False


def _on_signal(*_: object) -> None:
    """End this process if it works, else before its next task."""
    if _ThisWorker.works:
        os._exit(1)
    _ThisWorker.asked_to_end = True


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold SIGINT back while processes begin, which follow it from ``_begin`` on.

    A copy of this process that is interrupted before would go on in the caller's code.
    """
    if not HAS_MASKS:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(initializer: Callable[[], object] | None) -> None:
    """Have this process follow the signal, which a terminal sends too where Ctrl-C is pressed."""
    signal.signal(signal.SIGINT, _on_signal)
    if HAS_MASKS:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if initializer is not None:
        initializer()


def _work(
    function: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Call a function in a worker, which may be ended meanwhile."""
    _ThisWorker.works = True
    try:
        if _ThisWorker.asked_to_end:
            os._exit(1)
        return function(*args, **kwargs)
    finally:
        _ThisWorker.works = False


class ProcessPool(ProcessPoolExecutor):
    """An executor whose ``with`` drops what was not begun, and what was where an error leaves it.

    That is an error of the caller, an interrupt, or a generator that is closed.
    """

    def __init__(
        self,
        number: int,
        context: BaseContext | None = None,
        initializer: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(number, context, _begin, (initializer,))

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Have a worker call a function."""
        with _interrupts_held():
            return super().submit(_work, fn, *args, **kwargs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        workers = list((self._processes or {}).values())
        self.shutdown(wait=kind is None, cancel_futures=True)
        # Again and again: one that has not begun does not follow it, and one that sends goes on.
        while kind is not None and (alive := [each for each in workers if each.is_alive()]):
            for process in alive:
                assert process.pid is not None  # noqa: S101  (it was alive)
                with suppress(ProcessLookupError):  # it has ended meanwhile
                    os.kill(process.pid, signal.SIGINT)
            time.sleep(ASKED_EVERY)
        self.shutdown(cancel_futures=True)
