"""A profile function is called for a while, and a profiler that was on before goes on."""

from __future__ import annotations

import cProfile
import pstats
import sys
from typing import TYPE_CHECKING, Any

from mha_parity.core.profiler import profiling

if TYPE_CHECKING:
    from types import FrameType


def called_within() -> None:
    """Be seen by the profile function."""


def called_after() -> None:
    """Be seen by the profiler."""


def test_a_profiler_in_c_goes_on() -> None:
    """What runs under cProfile, as ``python -m cProfile`` does, ends without an exception."""
    seen = set()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code.co_name)

    profiler, before = cProfile.Profile(), sys.getprofile()
    profiler.enable()
    try:
        with profiling(watch):
            called_within()
        called_after()
    finally:
        profiler.disable()
        sys.setprofile(before)
    found = pstats.Stats(profiler).stats  # type: ignore[attr-defined]  # not in the stubs
    assert {"called_within", "__exit__"} <= seen
    assert any(name == "called_after" for _, _, name in found)


def test_a_profile_function_comes_back() -> None:
    """One set by ``sys.setprofile`` is the same after."""

    def other(*_: Any) -> None:
        """Record nothing."""

    before = sys.getprofile()
    sys.setprofile(other)
    try:
        with profiling(lambda *_: None):
            pass
        assert other is sys.getprofile()
    finally:
        sys.setprofile(before)
