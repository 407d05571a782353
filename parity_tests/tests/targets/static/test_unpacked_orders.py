"""The code says in which order a Linear holds q, k and v, where its name does not."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.static.documented_qkv_packing import documents_parts_first
from subject_checks import checks_of

checked = checks_of("unpacked_orders.py", cases=30, dtypes=("float64",))


@pytest.mark.parametrize("name", ["KeysFirst", "HeldFirst"])
def test_an_order_of_its_own_holds_and_is_said(name: str) -> None:
    """Trained by itself, such a layer is right: no name promises another order."""
    verdict = checked(name)
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    said = "called with c_attention, c_projection as Linears and in the order k, q, v; (N, L, E)."
    assert said in verdict.notes


def test_an_order_of_an_array_of_the_layer_holds() -> None:
    """The code multiplies by it and unpacks the product; a module would be called."""
    verdict = checked("OfAnArray")
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert any("in the order k, q, v" in note for note in verdict.notes), verdict.notes


@pytest.mark.parametrize("name", ["SaysTwice", "Spelled"])
def test_another_order_than_is_said_fails(name: str) -> None:
    """Two orders are none, and a name that spells one is held to it."""
    verdict = checked(name, diagnose=True)
    assert Outcome.FAIL is verdict.outcome
    assert "qkv-order-kqv" == verdict.diagnosis[0].bug, verdict.diagnosis


@pytest.mark.parametrize("name", ["SaysPartsFirst", "SaysAsTorch"])
def test_a_documented_order_is_demanded(name: str) -> None:
    """The same code holds where nothing is said. Kills an order that trials alone decide."""
    assert Outcome.PASS is checked("HeadByHead").outcome
    verdict = checked(name, diagnose=True)
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    assert "qkv-interleaved-heads" == verdict.diagnosis[0].bug, verdict.diagnosis


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("in_proj is laid out as in ``nn.MultiheadAttention``.", True),
        ("The rows are packed like those of torch.nn.MultiheadAttention.", True),
        ("Rows hold all of q, then all of k, then all of v.", True),
        ("The first E are the queries, the next E the keys and the last E the values.", True),
        ("For each head the first D rows are q, the next D are k, the last D are v.", False),
        ("Behaves as nn.MultiheadAttention does, with one packed matrix.", False),
        ("First come norms. Queries and keys are scaled, values are not.", False),
    ],
)
def test_an_order_is_read_from_documentation(text: str, *, found: bool) -> None:
    """What is said of each head is another order, and a likeness to torch's layer is none."""

    def target() -> None: ...

    target.__doc__ = text
    assert found is documents_parts_first(target)
