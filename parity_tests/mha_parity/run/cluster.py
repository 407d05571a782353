"""The executor of a Dask cluster, for ``check --scheduler ADDRESS``."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from mha_parity.core.environment import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

SECONDS = 10  # to reach the scheduler, and for its first worker
EXTRA = "dask"


@contextmanager
def dask_cluster(address: str) -> Iterator[Executor]:
    """Connect to a scheduler, such as ``tcp://10.0.0.1:8786``, that has a worker.

    A chunk whose worker dies runs again on another.

    Raises
    ------
    ValueError
        The extra ``dask`` is not installed, nothing answers at the address, there is no worker, or
        one worker after the other died of the same cases.

    """
    require("distributed", EXTRA)
    from distributed import Client, KilledWorker

    try:
        client = Client(address, timeout=SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError, TimeoutError) as error:
        first = str(error).partition("\n")[0]
        raise ValueError(
            f"got the scheduler {address!r}, but nothing answers there ({first}); start one by "
            "`dask scheduler`, and name the address that it prints."
        ) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=SECONDS)
        except TimeoutError:
            raise ValueError(
                f"got the scheduler {address!r}, but it has no worker; start some by "
                f"`dask worker {address} --nthreads 1`."
            ) from None
        with client.get_executor() as executor:
            try:
                yield executor
            except KilledWorker as error:
                raise ValueError(
                    f"got {error.allowed_failures + 1} workers that died one after another of the "
                    "same cases; give each worker more memory, or judge here, by --jobs."
                ) from None
