"""An interrupt stops the processes of a run at once, and those of no other."""

from __future__ import annotations

import math
import os
import signal
import time
from concurrent.futures import as_completed
from multiprocessing import active_children, get_context

import pytest

from mha_parity.core.options import Options
from mha_parity.run.check import check
from mha_parity.run.process_pool import ProcessPool
from mha_parity.worker.open_target import opened
from subject_checks import SUBJECTS


def interrupted() -> None:
    """Be interrupted while a process works on what takes two minutes."""
    with ProcessPool(1) as pool:
        pool.submit(time.sleep, 120)
        raise KeyboardInterrupt


def test_an_interrupt_ends_what_processes_are_at() -> None:
    """Kills an executor that waits for all that its processes have begun."""
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - started < 60


def test_an_interrupt_leaves_the_processes_of_others() -> None:
    """Kills the end of each child of this process: another thread's run lost its workers."""
    with ProcessPool(1) as other:
        assert 2.0 == other.submit(math.sqrt, 4).result()
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert 3.0 == other.submit(math.sqrt, 9).result()


def holds_interrupts() -> bool:
    """Return whether SIGINT waits until this thread lets it through."""
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_no_interrupt_reaches_a_process_before_it_follows_the_signal() -> None:
    """Held while it is forked, and let through once it is at work, in the caller too.

    Kills a fork that an interrupt of its caller reaches at once: it went on with the caller's code.
    """
    held: list[bool] = []
    os.register_at_fork(before=lambda: held.append(holds_interrupts()))
    with ProcessPool(1, get_context("fork")) as pool:
        assert not pool.submit(holds_interrupts).result()
    assert held
    assert all(held)
    assert not holds_interrupts()


def large(size: int) -> bytes:
    """Return an answer that takes many writes to a pipe."""
    return b"x" * size


def interrupted_while_sending() -> None:
    """Be interrupted when the first of many large answers has come, and others are on their way."""
    with ProcessPool(2) as pool:
        next(as_completed([pool.submit(large, 2**24) for _ in range(20)]))
        raise KeyboardInterrupt


@pytest.mark.parametrize("seed", range(4), ids="run{}".format)
def test_an_interrupt_leaves_no_half_of_an_answer(seed: int) -> None:
    """Kills a process that is ended while it sends: its pool waits for the other half forever."""
    del seed
    with pytest.raises(KeyboardInterrupt):
        interrupted_while_sending()


def test_an_early_end_in_several_processes_leaves_none() -> None:
    """A run that ends at its last failure stops its workers. Kills workers that judge on."""
    target = f"{SUBJECTS}/wrong_scale.py:f"
    options = Options(cases=400, jobs=2, max_failures=4, shrink=False, diagnose=False)
    before = set(active_children())
    with opened(target, options) as candidate:
        verdict = check(candidate, options, target=target)
    assert (4, True) == (verdict.failed, verdict.stopped_early)
    assert before == set(active_children())
