"""Layers that are frozen are filled; one that raises for every name is refused by that."""

from __future__ import annotations

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.parameters import Status
from mha_parity.core.verdict import Outcome
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from subject_checks import SUBJECTS, checks_of

FILE = "frozen_layers.py"


judged = checks_of(FILE, cases=30, dtypes=("float64",))


def test_a_frozen_layer_is_filled() -> None:
    """The right one passes, and the one that does not scale fails."""
    assert Outcome.PASS == judged("FrozenLayer").outcome
    assert Outcome.FAIL == judged("FrozenLayerUnscaled", fail_fast=True).outcome


def test_a_scale_of_a_frozen_configuration_stays_none() -> None:
    """Kills a scale in the place of None, by which a right layer failed, and pairs left untried."""
    pairs = checks_of("frozen_configs.py", cases=60, dtypes=("float64",))
    right = pairs("Pairs")
    assert Outcome.PASS == right.outcome, right
    assert any("`drop_pairs`: True hides" in note for note in right.notes)
    assert Outcome.FAIL == pairs("PairsTransposed").outcome


def test_a_switch_of_a_frozen_configuration_is_tried() -> None:
    """It was set like an attribute, which raises: the right layer was left without a verdict."""
    switched = checks_of("frozen_configs.py", cases=60, dtypes=("float64",))
    right = switched("Switched")
    assert Outcome.PASS == right.outcome, right
    assert Status.TRIED in {each.status for each in right.parameters if "causal" == each.name}
    assert Outcome.FAIL == switched("SwitchedLoosely").outcome


def test_a_name_that_raises_is_said() -> None:
    """Python asks every object for names that it need not have."""
    with pytest.raises(TargetError, match="`__getattr__` should raise AttributeError for a name"):
        bind(load.load(f"{SUBJECTS}/{FILE}:AnsweringLayer"))
