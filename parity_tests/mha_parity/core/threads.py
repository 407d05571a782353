"""One thread for problems that are too small for two."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def one_thread() -> Iterator[None]:
    """Let array libraries compute in the calling thread, and leave them as they were found.

    Their threads wait for each other by spinning: on busy cores, problems as small as cases take
    five to ten times as long with two.
    """
    with threadpool_limits(1):
        yield
