"""One thread for problems that are too small for two."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from threadpoolctl import ThreadpoolController, threadpool_limits

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def in_one_thread(*, blas: bool = False) -> Iterator[None]:
    """Let the libraries that are loaded compute in this thread, and then as before.

    OpenMP's threads and OpenBLAS's wait for each other by spinning: on busy cores, problems as
    small as cases take five to ten times as long with two. A library that is loaded later keeps its
    threads. The limit of OpenMP (torch) is the calling thread's own, that of OpenBLAS the whole
    process's: ``blas`` is for where no target computes in this process.
    """
    with threadpool_limits(1, user_api=None if blas else "openmp"):
        yield


@contextmanager
def blas_in_one_thread() -> Iterator[None]:
    """Let the BLAS that is loaded compute in this thread, around what calls no target.

    A target in this process keeps its threads, and the harness's own small products have one.
    """
    with _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    """Return the handles of the libraries that are loaded: to look for them takes milliseconds."""
    return ThreadpoolController()
