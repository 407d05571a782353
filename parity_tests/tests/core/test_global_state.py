"""What a call left changed of the global state is said, each part by itself, and put back."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch

from mha_parity.core.global_state import GlobalState, seeded_generators

CHANGES: dict[str, Callable[[], object]] = {
    "np.seterr": lambda: np.seterr(under="raise"),
    "np.set_printoptions": lambda: np.set_printoptions(precision=3),
    "autograd mode": lambda: torch.set_grad_enabled(False),
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_part_is_said_alone_and_put_back(name: str) -> None:
    """Kills an order in the place of equality, and each condition negated."""
    before = GlobalState.now()
    assert before.torch is not None
    assert [] == list(before.changed())
    try:
        CHANGES[name]()
        (change,) = before.changed()
        assert name in change
        assert [] == [name in each for each in GlobalState.now().changed()]
    finally:
        before.restore()
    assert [] == list(before.changed())
    assert before == GlobalState.now()


def test_the_other_way_round_is_a_change_too() -> None:
    """From autograd off to on, as from on to off: kills `>=` for `!=`."""
    with torch.no_grad():
        before = GlobalState.now()
        with torch.enable_grad():
            (change,) = before.changed()
    assert "autograd mode" in change


def test_without_torch_nothing_is_said_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that loads torch has not changed it."""
    monkeypatch.delitem(sys.modules, "torch")
    before = GlobalState.now()
    assert before.torch is None
    monkeypatch.undo()
    with torch.no_grad():
        assert [] == list(before.changed())
        before.restore()
        assert not torch.is_grad_enabled()


def test_generators_are_left_as_they_were_found() -> None:
    """Also after an exception; a draw moves a generator on, and a seed is the same state."""

    def states(draws: int) -> dict[str, object]:
        with seeded_generators(7) as generators:
            for _ in range(draws):
                random.random()
                np.random.random()  # noqa: NPY002  # the legacy generator is what is tested
                torch.rand(1)
            return {owner: each.key(each.state()) for owner, each in generators.items()}

    def fail() -> None:
        with seeded_generators(7):
            raise ArithmeticError

    owners = "NumPy's", "Python's", "torch's"
    before = states(0)
    assert {*owners} == {*before}
    random.seed(3)
    found = random.getstate(), torch.get_rng_state()
    assert before == states(0)
    moved = states(1)
    assert not any(before[owner] == moved[owner] for owner in owners)
    with pytest.raises(ArithmeticError):
        fail()
    assert found[0] == random.getstate()
    assert torch.equal(found[1], torch.get_rng_state())
