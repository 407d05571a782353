"""Modules of flax.linen and haiku are built, filled and called as layers that hold their weights.

The libraries are installed by ``make test-frameworks`` alone; elsewhere these tests are skipped.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from mha_parity.commands.adapt import source_of_adapter
from mha_parity.core.candidate import TargetError
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from subject_checks import SUBJECTS, checks_of

FILE = SUBJECTS / "functional_layers.py"
judged = checks_of("functional_layers.py", cases=8)
pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(
        find_spec("flax") is None or find_spec("haiku") is None,
        reason="flax and haiku are not installed; make test-frameworks does",
    ),
]


@pytest.mark.parametrize("name", ["Compact", "ModeOnce", "OfKey", "SetUp", "OfHaiku"])
def test_right_ones_pass(name: str) -> None:
    """Weights that a first call makes are replaced by those of the problem."""
    verdict = judged(name)
    assert 0 == verdict.failed, verdict
    assert verdict.passed
    assert [each for each in verdict.notes if each.startswith("called with params.")]


def test_a_module_of_nnx_is_built_by_the_parameters_of_its_constructor() -> None:
    """It gets streams of random numbers and a dtype; its norm, named by its class, is taken out.

    Kills the signature of the metaclass, which says nothing.
    """
    verdict = judged("OfNnx")
    assert 0 == verdict.failed, verdict
    assert verdict.passed
    assert any("`layer_norm` taken out" in note for note in verdict.notes)


@pytest.mark.parametrize("name", ["CompactTwice", "OfHaikuTwice", "OfKeyTwice", "OfNnxTwice"])
def test_wrong_ones_fail(name: str) -> None:
    """Doubled scores are seen."""
    assert judged(name).failed


def test_a_norm_of_the_inputs_is_taken_out() -> None:
    """As of layers of torch, whose norms stand around the attention; the report says so."""
    verdict = judged("Normed")
    assert 0 == verdict.failed, verdict
    assert any("`params.norm` taken out" in note for note in verdict.notes)


def test_a_norm_within_is_named() -> None:
    """One of projected rows has no counterpart."""
    with pytest.raises(TargetError, match=r"`params\.norm`.* no counterpart"):
        bind(load.load(f"{FILE}:NormedInside"))


@pytest.mark.parametrize("name", ["SetUp", "Normed", "OfHaiku"])
def test_an_adapter_of_a_module_is_left_to_its_author(name: str) -> None:
    """No line sets parameters that its library makes, nor takes a norm out of it."""
    source = source_of_adapter(f"{FILE}:{name}")
    assert "its parameters are made by a first call" in source
    assert "raise NotImplementedError" in source
    assert "set_submodule" not in source
