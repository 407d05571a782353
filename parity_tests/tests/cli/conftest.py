"""How the tests of the command line run pytest with the plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin_runs import FEW

if TYPE_CHECKING:
    from collections.abc import Callable

    RunPytest = Callable[..., pytest.RunResult]


@pytest.fixture
def run(run_pytest: RunPytest) -> RunPytest:
    """Return a function that runs pytest on a target, in its process if it is one alone."""

    def run_on(target: str, *arguments: str) -> pytest.RunResult:
        where = () if "-n" in arguments else ("--mha-parity-in-process",)
        return run_pytest("--mha-parity-target", target, *FEW, *where, *arguments)

    return run_on
