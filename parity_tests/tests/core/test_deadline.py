"""The time of a diagnosis is counted so that a busy machine finds what an idle one finds."""

from __future__ import annotations

import time

import pytest

from mha_parity.core.deadline import CLOCK, Deadline


def test_processor_time_counts_and_the_clock_six_times_as_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second by the clock alone costs a sixth; one of the processor costs all of it."""
    now = {"processor": 0.0, "clock": 0.0}
    monkeypatch.setattr(time, "thread_time", lambda: now["processor"])
    monkeypatch.setattr(time, "perf_counter", lambda: now["clock"])
    limit = Deadline(2.0)
    now["clock"] = 3.0
    assert pytest.approx(2.0 - 3.0 / CLOCK) == limit.left
    now["processor"] = 1.75
    assert pytest.approx(0.25) == limit.left
    assert limit.running()
    assert not limit.running(reserve=0.5)
    now["clock"] = CLOCK * 2.0
    assert not limit.running()


def test_a_limit_without_end_never_ends() -> None:
    """`identify` has no limit unless it gets one."""
    assert Deadline(float("inf")).running(time.perf_counter())
