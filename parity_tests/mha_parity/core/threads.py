"""One thread for problems that are too small for two."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def openmp_in_one_thread() -> Iterator[None]:
    """Let libraries on OpenMP, torch among them, compute in this thread, and then as before.

    OpenMP's threads wait for each other by spinning: on busy cores, problems as small as cases take
    five to ten times as long with two. The limit is the calling thread's own. OpenBLAS takes a
    second thread for larger products alone, and its limit, the whole process's, is left as it is.
    """
    with threadpool_limits(1, user_api="openmp"):
        yield
