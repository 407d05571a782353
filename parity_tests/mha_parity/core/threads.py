"""One thread for problems that are too small for two."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

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
