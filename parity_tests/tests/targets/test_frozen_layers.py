"""Layers that are frozen are filled; one that raises for every name is refused by that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome, Verdict
from mha_parity.targets import load
from mha_parity.targets.bind import bind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILE = "frozen_layers.py"


@pytest.fixture(scope="module")
def judged(check_subject: Callable[..., Verdict]) -> Callable[[str], Verdict]:
    """Return the function that checks a target of the file in float64."""
    return lambda name: check_subject(f"{FILE}:{name}", cases=30, dtypes=("float64",))


def test_a_frozen_layer_is_filled(judged: Callable[[str], Verdict]) -> None:
    """The right one passes, and the one that does not scale fails."""
    assert Outcome.PASS == judged("FrozenLayer").outcome
    assert Outcome.FAIL == judged("FrozenLayerUnscaled").outcome


def test_a_name_that_raises_is_said(subjects: Path) -> None:
    """Python asks every object for names that it need not have."""
    with pytest.raises(TargetError, match="`__getattr__` should raise AttributeError for a name"):
        bind(load.load(f"{subjects}/{FILE}:AnsweringLayer"))
