"""Heads of every H-th channel are right where all projections are the layer's own, else wrong."""

from __future__ import annotations

import pytest

from subject_checks import checks_of

judged = checks_of("channel_order.py", cases=24)
# Of each right layer, the weights whose rows or columns are in another order than torch's.
PERMUTED = {
    "WidthFirst": "`w_q.weight`, `w_k.weight`, `w_v.weight`, `fc_out.weight`",
    "PackedWidthFirst": "`qkv.weight`, `proj.weight`",
}
WRONG = ["SplitWidthFirst", "MergeWidthFirst", "WidthFirstTwice", "WidthFirstWithoutOutput",
         "WidthFirstNamedAsTorchs", "width_first", "weights_width_first"]  # fmt: skip


@pytest.mark.parametrize(("name", "weights"), PERMUTED.items(), ids=PERMUTED)
def test_an_order_that_its_own_weights_take_is_right_and_said(name: str, weights: str) -> None:
    """The layer computes torch's attention with its weights permuted; the note names which."""
    verdict = judged(name)
    assert 0 == verdict.failed, verdict
    assert [each for each in verdict.notes if f"every H-th channel of {weights}:" in each]


@pytest.mark.repeats(2)
@pytest.mark.parametrize("name", WRONG)
def test_an_order_that_a_caller_sees_is_wrong(name: str) -> None:
    """Rows, outputs and weights of the caller's are in torch's order; and no other mistake hides.

    Nor is it right to split in one order and merge in another.
    """
    verdict = judged(name)
    assert verdict.failed
    assert not [each for each in verdict.notes if "every H-th channel" in each]


def test_an_output_projection_that_is_made_first_is_the_outputs_by_its_name() -> None:
    """Of four Linears of one shape, `merge` was taken for the queries' by its place."""
    assert 0 == judged("MergesByName").failed
