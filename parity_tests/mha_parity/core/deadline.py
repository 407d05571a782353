"""A limit of time that does not depend on load, so that what is found does not either."""

from __future__ import annotations

import time

# Seconds by the clock for each of processor time: a target that waits, or runs in a process of its
# own, uses none of ours.
CLOCK = 6.0


class Deadline:
    """``seconds`` of this thread on the processor, or CLOCK times as many by the clock."""

    def __init__(self, seconds: float) -> None:
        """Start now."""
        self._read_at = time.perf_counter()
        self._clock = self._read_at + CLOCK * seconds
        self._processor = time.thread_time() + seconds
        self._left_then = seconds

    @property
    def left(self) -> float:
        """The seconds that are left; not above 0 when the time is over."""
        by_clock = (self._clock - time.perf_counter()) / CLOCK
        return min(self._processor - time.thread_time(), by_clock)

    def running(self, reserve: float = 0.0) -> bool:
        """Return whether more than ``reserve`` seconds are left.

        No more processor time has passed since it was last read than by the clock, which is read
        without a system call.
        """
        now = time.perf_counter()
        if self._left_then - (now - self._read_at) > reserve:
            return True
        self._read_at, self._left_then = now, self.left
        return self._left_then > reserve
