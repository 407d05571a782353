"""A process without earlier calls is started before it is needed, once, and none is left."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Self

import numpy as np
import pytest

from mha_parity.catalogue.registry import whole_offer
from mha_parity.core.arrays import Array
from mha_parity.core.candidate import FunctionCandidate
from mha_parity.core.options import Options
from mha_parity.core.problem import Problem
from mha_parity.run.check import run_all
from mha_parity.run.fresh_process import FreshProcesses


class Opened:
    """Counts the processes that it opens, and stands for each of them."""

    def __init__(self) -> None:
        self.all: list[Opened] = []
        self.closed = False

    def fresh(self) -> Opened:
        """Return a further one."""
        self.all.append(Opened())
        return self.all[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Note that it is closed."""
        self.closed = True


@pytest.mark.parametrize("used", [0, 1, 2])
def test_the_first_is_the_one_that_was_started(used: int) -> None:
    """It is started once, given out once, and closed where it was not asked for."""
    candidate: Any = Opened()
    with FreshProcesses(candidate) as processes:
        for _ in range(3):
            processes.start()
        assert 1 == len(candidate.all)
        for number in range(used):
            with processes() as process:
                assert process is candidate.all[number]
        processes.start()
        assert max(used, 1) == len(candidate.all)
    assert all(each.closed for each in candidate.all)


def test_a_candidate_in_this_process_starts_none() -> None:
    """It has no further processes."""
    candidate: Any = object()
    with FreshProcesses(candidate) as processes:
        processes.start()
        assert processes.open is None


@pytest.mark.parametrize(("diagnose", "started"), [(True, 1), (False, 0)])
def test_a_process_is_loaded_at_the_first_wrong_answer(*, diagnose: bool, started: int) -> None:
    """It loads while the cases go on. Kills one that is started when it is needed, or for nothing.

    The failures here are shown while the sixth case is asked at the latest.
    """
    seen: list[int] = []

    class Candidate(FunctionCandidate):
        def fresh(self) -> Opened:
            seen.append(len(asked))
            return Opened()

    asked: list[Problem] = []

    def zeros(problem: Problem) -> Array:
        asked.append(problem)
        return np.zeros(problem.output_shape, problem.dtype)

    offer = whole_offer() | {"size": ("small",), "dtype": ("float64",)}
    candidate = Candidate("zeros", zeros, offer)
    options = Options(cases=12, diagnose=diagnose, shrink=False)
    with suppress(AttributeError):  # the process stands for one, and answers nothing
        run_all(candidate, options, None, None)
    assert started == len(seen)
    assert all(count < 12 for count in seen)
