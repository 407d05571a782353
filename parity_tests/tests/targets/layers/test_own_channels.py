"""Heads that project their own channels, and heads in lists, are judged as torch's can be."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.verdict import Outcome
from mha_parity.targets.bind import bind
from mha_parity.targets.interpretations.try_interpretations import SMALL, attention_in_float64
from subject_checks import check_subject, checks_of, load_subject

judged = checks_of("own_channels.py", cases=40)
CAUSES = {
    "ScaledByTheWidth": "the scores are divided by the root of the whole width",
    "KeysByValues": "k is projected by the weights of v",
    "KeysOfTheFirstHead": "all heads of k are projected by the weights of the first head",
}


@pytest.mark.parametrize(
    ("name", "projection"),
    [("OneForAll", "shared"), ("OneForEach", "by_head"), ("PackedHeads", "packed")],
)
def test_right_ones_pass_with_their_gradients(name: str, projection: str) -> None:
    """Weights are drawn as the layer can hold them, and a shared one has the sum of gradients."""
    verdict = judged(name, grad=True)
    assert (Outcome.PASS, 0) == (verdict.outcome, verdict.failed), verdict
    judged_with = {(row.axis, row.value) for row in verdict.features if row.cases}
    assert {("projection", projection), ("gradients", "yes")} <= judged_with


@pytest.mark.parametrize("name", CAUSES)
def test_wrong_ones_are_named(name: str) -> None:
    """The diagnosis asks with such weights, too."""
    verdict = judged(name, diagnose=True)
    assert Outcome.FAIL == verdict.outcome
    assert CAUSES[name] == verdict.diagnosis[0].title


def test_heads_in_a_list_are_found_at_every_number_of_heads() -> None:
    """Three packed Linears (E, E) are no q, k and v: kills the names read anew at each size."""
    bound = bind(load_subject("own_channels.py:PackedHeads"))
    problem = make_problem(SMALL.replace(heads_count=3, out_proj="general", bias="yes"))
    expected = attention_in_float64(problem, causal=False)
    assert np.allclose(bound(problem).output, expected, rtol=0, atol=1e-12)


def test_a_layer_around_is_refused_with_the_part_to_judge_alone() -> None:
    """The class of the attention, and not the list of its heads."""
    with pytest.raises(ValueError, match="judge its `self_attn`, of the class PackedHeads, alone"):
        check_subject("own_channels.py:EncoderLayer")
