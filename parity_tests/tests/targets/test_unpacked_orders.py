"""The code says in which order a Linear holds q, k and v, where its name does not."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

checked = checks_of("unpacked_orders.py", cases=30, dtypes=("float64",))


@pytest.mark.parametrize("name", ["KeysFirst", "HeldFirst"])
def test_an_order_of_its_own_holds_and_is_said(name: str) -> None:
    """Trained by itself, such a layer is right: no name promises another order."""
    verdict = checked(name)
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    said = "called with c_attention, c_projection as Linears and in the order k, q, v; (N, L, E)."
    assert said in verdict.notes


@pytest.mark.parametrize("name", ["SaysTwice", "Spelled"])
def test_another_order_than_is_said_fails(name: str) -> None:
    """Two orders are none, and a name that spells one is held to it."""
    verdict = checked(name, diagnose=True)
    assert Outcome.FAIL is verdict.outcome
    assert "qkv-order-kqv" == verdict.diagnosis[0].bug, verdict.diagnosis
