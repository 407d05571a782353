"""Give the calls of a piece of code to a profile function, also while another profiler is on."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


@contextmanager
def profiling(watch: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """Have ``watch`` called as ``sys.setprofile`` says; the profiler from before goes on after."""
    before: Any = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield
    finally:
        if before is None or callable(before):
            sys.setprofile(before)
        else:  # a profiler in C, such as that of cProfile, which is no function
            sys.setprofile(None)
            before.enable()
