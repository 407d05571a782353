"""What a process of its own costs, and how long a verdict takes from a cold start.

Processor time is compared and not the clock: it is the same on a busy machine, and on two cores
the candidate's share of it runs beside ours.
"""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from subject_checks import SUBJECTS

SUBJECT = f"{SUBJECTS}/projected.py:f"
CASES = "500"
PAIRS = 2
MOST = 1.25  # times the processor time without isolation
SECONDS = 8.0  # for a verdict over 500 cases on a small function, cold start to exit


def processor_time(*arguments: str) -> float:
    """Return the seconds of processor time of a whole command, with all that it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "mha_parity", "check", SUBJECT, "--cases", CASES, *arguments]
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


@pytest.mark.slow
def test_isolation_is_cheap_and_a_verdict_quick() -> None:
    """Over 500 small cases, a process of its own costs at most a quarter more; all in seconds."""
    isolated, here = [], []
    for _ in range(PAIRS):  # alternating, so that a busy moment hits both
        isolated.append(processor_time())
        here.append(processor_time("--in-process"))
    assert min(isolated) <= MOST * min(here)
    assert min(isolated) < SECONDS
