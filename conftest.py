"""What holds for every test: fixed seeds, one thread, and hypothesis profiles.

Our own plugin is not listed in `pytest_plugins`: its entry point loads it, and pytest refuses to
load one plugin under two names.
"""

from __future__ import annotations

import gc
import os
import random
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ["pytester"]

# `ci` draws the same examples every time; `--hypothesis-profile=explore` goes looking for new ones.
settings.register_profile("ci", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", max_examples=1000, deadline=None)
settings.load_profile("ci")

THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def pytest_configure(config: pytest.Config) -> None:
    """Give each library one thread, before any is loaded, unless something is to be timed.

    Sums then have one order, and the workers of pytest-xdist do not fight for the cores. Workers
    and the fresh processes that tests start inherit the limits. They also keep what they compile:
    otherwise hundreds of processes compile the whole package, 0.8 s each, again.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if not config.getoption("benchmark_enable"):
        for name in THREAD_LIMITS:
            os.environ.setdefault(name, "1")


def pytest_collection_finish() -> None:
    """Have garbage collected seldom, and never in what was imported and collected.

    Python walks all objects of torch and of the tests again and again: up to a tenth of their time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(autouse=True)
def _numpy_errors_unchanged() -> Iterator[None]:
    """Fail the test that leaves NumPy's error state changed: the tests after it would see less.

    An attention that changes it where it is changed already is not found to change anything.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None:
        yield
        return
    with numpy.errstate():
        before = numpy.geterr()
        yield
        assert numpy.geterr() == before, "the test left np.seterr changed; use `with np.errstate`"


@pytest.fixture(autouse=True)
def _fixed_seeds() -> None:
    """Start each test from the same global random state, in the libraries that are loaded."""
    random.seed(0)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(0)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)
