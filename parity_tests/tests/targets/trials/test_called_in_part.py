"""Tensors of a target's own, states by their names, and what a call or a constructor leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome
from mha_parity.targets.bind import bind
from mha_parity.targets.static.argument_meanings import meanings
from subject_checks import check_subject, checks_of, load_subject

if TYPE_CHECKING:
    from collections.abc import Callable

judged = checks_of("called_in_part.py", cases=60, dtypes=("float64",))
of_tensors = checks_of("own_tensors.py", cases=40)


@pytest.mark.parametrize(
    "name",
    [
        "States",
        "MaskOfItself",
        "HidesTheFuture",
        "InferenceBySwitch",
        "HeadsOfTheCall",
        "HeadsOfOneInput",
    ],
)
def test_right_ones_pass(name: str) -> None:
    """Built without a configuration that is None by default, or with a number for one that is."""
    verdict = judged(name)
    assert (Outcome.PASS, 0) == (verdict.outcome, verdict.failed), verdict


@pytest.mark.parametrize(
    "name",
    [
        "StatesExchanged",
        "MaskOfItselfHalved",
        "LeaksTheFuture",
        "HeadsOfTheCallExchanged",
        "HeadsOfTheCallMixed",
    ],
)
def test_wrong_ones_fail(name: str) -> None:
    """Each by what its right twin does."""
    assert Outcome.FAIL == judged(name).outcome


def test_a_mask_of_heads_is_no_number_of_heads() -> None:
    """Kills the meaning of a part of a name, by which it got their number."""
    verdict = judged("HeadMaskWanted")
    assert 0 == verdict.failed, verdict
    assert "head_mask" in verdict.sentence


def test_what_hides_nearly_all_of_the_future_is_asked_as_causal() -> None:
    """Else no rule would be demanded of it; what it adds to hidden scores is said."""
    bound = bind(load_subject("called_in_part.py:LeaksTheFuture"))
    assert ("causal",) == bound.offer["attn"]
    (found, *_) = judged("LeaksTheFuture", diagnose=True).diagnosis
    assert "hidden keys get -20.72 added to their score, not -inf" == found.title


def test_a_mask_in_place_of_the_causal_rule_is_passed_in_half_of_the_causal_cases() -> None:
    """One that hides nothing lifts the rule, so that the target is judged without it as well."""
    verdict = judged("OtherCausalMask")
    assert (Outcome.PASS, 0) == (verdict.outcome, verdict.failed), verdict
    bound = bind(load_subject("called_in_part.py:OtherCausalMask"))
    assert "`custom_causal_mask` is passed in place of the causal rule" in " ".join(bound.remarks)
    asked = {row.value for row in verdict.features if row.axis == "attn" and row.cases}
    assert {"none", "bool2d", "causal"} <= asked


@pytest.mark.parametrize("name", ["OtherCausalMaskLate", "OtherCausalMaskWidened"])
def test_a_mask_in_place_of_the_causal_rule_and_the_rule_are_both_judged(name: str) -> None:
    """Of either a wrong one fails, with the other right."""
    assert Outcome.FAIL == judged(name).outcome


def test_a_mask_of_padding_does_not_stand_for_the_causal_rule() -> None:
    """It cannot say the rule: that it lifts it is a fault of the target."""
    assert Outcome.FAIL == judged("PaddingLiftsTheRule").outcome


def test_own_tensors_are_passed_and_read() -> None:
    """In the dtypes that the class keeps; weights lie in their `data`."""
    verdict = of_tensors("OfTensors")
    assert (Outcome.PASS, 0) == (verdict.outcome, verdict.failed), verdict
    assert {"float64"} == {
        row.value for row in verdict.features if row.axis == "dtype" and row.cases
    }
    assert Outcome.FAIL == of_tensors("OfTensorsScaledTwice", fail_fast=True).outcome


def test_own_tensors_lie_where_numpys_arrays_do() -> None:
    """Kills their place among the libraries before the device is looked at."""
    subject = load_subject("own_tensors.py:OfTensors")
    with pytest.raises(TargetError, match="got the device 'cuda', but the target takes NumPy's"):
        bind(subject, device="cuda")


def test_a_mask_that_is_documented_as_boolean_is_not_asked_with_floats() -> None:
    """One path takes them by chance, and the other raises: kills floats that trials alone show."""
    verdict = judged("BooleansOnOnePath")
    assert (Outcome.PASS, 0) == (verdict.outcome, verdict.failed), verdict
    asked = {row.value for row in verdict.features if row.axis == "padding" and row.cases}
    assert {"bool", "lengths", "none"} == asked


SLICED = """
import torch
class f(torch.nn.Module):
    def __init__(self, embed_dim, num_heads, slice_size=3):
        super().__init__()
        self.num_heads, self.slice_size = num_heads, slice_size
        self.qkv = torch.nn.Linear(embed_dim, 3 * embed_dim)
    def forward(self, x):
        q, k, v = (each.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
                   for each in self.qkv(x).chunk(3, -1))
        attend = torch.nn.functional.scaled_dot_product_attention
        several = [attend(rows, k, v) for rows in q.split(self.slice_size, 2)]
        return torch.cat(several, 2).transpose(1, 2).flatten(2) * (self.slice_size == 3)
"""


def test_tiles_keep_their_size(write: Callable[[str], str]) -> None:
    """`block=8` is no length: a layer that is built for one tile of all keys never cuts any."""
    assert ((), ("length",)) == (meanings("block"), meanings("block_size"))
    verdict = check_subject(write(SLICED), cases=40)
    assert Outcome.PASS == verdict.outcome, verdict.sentence
