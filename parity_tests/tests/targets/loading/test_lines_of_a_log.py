"""A target that writes a log by a library that is not installed computes without it."""

from __future__ import annotations

import pytest

from mha_parity.targets.loading.library_stubs import StandIn


@pytest.mark.parametrize("name", ["logs.logger.debug", "tracker.info"])
def test_a_line_of_a_log_goes_nowhere(name: str) -> None:
    """Kills a refusal of layers that log, and a result that is true where one is asked for it."""
    assert StandIn(name)("q", 3) is None


@pytest.mark.parametrize(
    "name", ["library.softmax", "library.log", "library.trace", "debug.softmax"]
)
def test_what_computes_raises(name: str) -> None:
    """A logarithm is no log, and a module may be called as a level of one."""
    with pytest.raises(ModuleNotFoundError, match=f"{name} was called, but"):
        StandIn(name)(1.0)
