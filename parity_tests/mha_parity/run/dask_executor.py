"""The executor of a Dask cluster, for ``check --scheduler ADDRESS``."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mha_parity.core.environment import require_extra
from mha_parity.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

SECONDS = 10  # to reach the scheduler, and for its first worker
EXTRA = "dask"
TRIM_VARIABLE = "MALLOC_TRIM_THRESHOLD_"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as malloc.h numbers them
MMAP_THRESHOLD = 32 << 20  # bytes: DEFAULT_MMAP_THRESHOLD_MAX of glibc


@contextmanager
def dask_cluster(address: str) -> Iterator[Executor]:
    """Connect to a scheduler, such as ``tcp://10.0.0.1:8786``, that has a worker.

    A chunk whose worker dies runs again on another.

    Raises
    ------
    UsageError
        The extra ``dask`` is not installed, nothing answers at the address, there is no worker, or
        one worker after the other died of the same cases.

    """
    require_extra("distributed", EXTRA)
    from distributed import Client, KilledWorker

    try:
        client = Client(address, timeout=SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError, TimeoutError) as error:
        first = str(error).partition("\n")[0]
        raise UsageError(
            f"got the scheduler {address!r}, but nothing answers there ({first}); start one by "
            "`dask scheduler`, and name the address that it prints."
        ) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=SECONDS)
        except TimeoutError:
            raise UsageError(
                f"got the scheduler {address!r}, but it has no worker; start some by "
                f"`dask worker {address} --nthreads 1`."
            ) from None
        with client.get_executor() as executor:
            try:
                yield executor
            except KilledWorker as error:
                raise UsageError(
                    f"got {error.allowed_failures + 1} workers that died one after another of the "
                    "same cases; give each worker more memory, or judge here, by --jobs."
                ) from None


def keep_freed_memory() -> None:
    """Let a worker of Dask keep memory that it freed, as glibc's malloc does of itself.

    Dask's nanny sets MALLOC_TRIM_THRESHOLD_ to 64 KiB, and a threshold that is set is never
    adapted: each array above 128 KiB is mapped anew, page by page, which takes a third of the time
    of a run. The thresholds become the largest that malloc adapts to (mallopt(3), 64-bit), in this
    process and those that it starts. A process without that setting is left alone.
    """
    dask = sys.platform == "linux" and "distributed" in sys.modules
    if not dask or TRIM_VARIABLE not in os.environ:
        return
    del os.environ[TRIM_VARIABLE]
    # Another C library than glibc has neither the variable nor, most often, the function.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD)
        mallopt(M_TRIM_THRESHOLD, 2 * MMAP_THRESHOLD)
