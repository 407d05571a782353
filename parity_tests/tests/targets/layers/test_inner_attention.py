"""A layer that is built with an attention gets the one of its module, if there is one."""

from __future__ import annotations

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from subject_checks import SUBJECTS, check_subject

RIGHT = {
    "inner_attentions.py:Layer": (
        "built with an instance of ScaledDotAttention of its module as `attention`"
    ),
    "inner_function.py:WithFunction": "built with attention_of_heads of its module as `attn_fn`",
    "inner_choices.py:SomeFit": ("built with an instance of FullAttention of its module as `attn`"),
}


@pytest.mark.repeats(2)
@pytest.mark.parametrize(("target", "said"), RIGHT.items(), ids=RIGHT)
def test_right_ones_pass_with_gradients(target: str, said: str) -> None:
    """A class that is built, or a function: which is said, and masks reach it."""
    verdict = check_subject(target, cases=24, grad=True)
    assert 0 == verdict.failed, verdict
    assert verdict.passed > 15, verdict
    assert not [each for each in verdict.parameters if each.is_untried]
    assert any(said in note for note in verdict.notes), verdict.notes


@pytest.mark.parametrize(
    "target",
    [
        "inner_attentions.py:CrossedLayer",
        "inner_function.py:ScalesTwice",
        "inner_choices.py:Annotated",
    ],
)
def test_wrong_ones_fail(target: str) -> None:
    """Wrong in the layer, or in the class that its annotation names."""
    verdict = check_subject(target, cases=24, fail_fast=True)
    assert Outcome.FAIL == verdict.outcome, verdict


def test_of_several_of_which_none_fits_none_is_judged() -> None:
    """Layer or attention may be meant so: the sentence names them."""
    said = "wants `attn`, and built with none of FullAttention, attention_of_heads"
    with pytest.raises(TargetError, match=said):
        bind(load.load(f"{SUBJECTS}/inner_choices.py:NoneFits"))


def test_a_mask_that_stands_in_the_place_of_the_causal_rule_is_found() -> None:
    """Without a mask the future is hidden, and any mask takes that away: cases without it too."""
    bound = bind(load.load(f"{SUBJECTS}/inner_attentions.py:Layer"))
    assert not bound.hides_future
    assert {"none", "causal"} <= {*bound.offer["attn"]}


def test_a_switch_that_a_mask_replaces_is_asked_without_one() -> None:
    """The attention alone: on by default, its switch hides the future where no mask is passed."""
    verdict = check_subject("inner_attentions.py:ScaledDotAttention", cases=40, dtypes=("float64",))
    assert Outcome.PASS == verdict.outcome, verdict
    said = " ".join(verdict.notes)
    assert "`mask_flag` hides nothing where `attn_mask` is passed." in said
    assert "by itself" not in said
    rows = {(row.axis, row.value) for row in verdict.features if row.cases}
    assert {("attn", "none"), ("attn", "causal"), ("attn", "bool2d")} <= rows
