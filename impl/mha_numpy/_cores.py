"""Keep helper threads off the core that the caller is on.

Linux wakes a sleeping thread on the core it slept on. Where that is the caller's, the helper waits
there for the end of the caller's time slice, some milliseconds, though another core is idle: a
call of one millisecond then has one core. So before it wakes them the caller takes its own core
out of the set that its helpers may run on. Elsewhere than on Linux nothing is done.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _core_query() -> Callable[[], int] | None:
    """Return the function that tells the calling thread's core, or None where there is none."""
    if sys.platform != "linux":
        return None
    try:
        query: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
    except (OSError, AttributeError):  # a C library without it
        return None
    return query


class Cores:
    """Where the helpers may run."""

    def __init__(self) -> None:
        self._query = _core_query()
        self._left_out = -1

    def leave_callers(self, helpers: Sequence[int]) -> None:
        """Let threads of these native ids run wherever the caller may, but not where it is now."""
        if self._query is None or (core := self._query()) == self._left_out:
            return
        self._left_out = core
        try:
            others = os.sched_getaffinity(0) - {core}
            for helper in helpers if others else ():
                os.sched_setaffinity(helper, others)
        except OSError:  # not allowed here: then the scheduler decides alone
            self._query = None

    def forget(self) -> None:
        """Place all helpers anew at the next call: there are others now."""
        self._left_out = -1
