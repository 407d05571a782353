"""Scores that are documented to be unscaled are judged as that, and no others."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.static.documented_scale import UNSCALED, documents_unscaled
from subject_checks import checks_of

judged = checks_of("unscaled_scores.py", cases=60)


def test_a_layer_without_a_scale_holds_as_documented() -> None:
    """Its weights of queries have the factor, which the report says; gradients are not asked."""
    verdict = judged("WithoutScale")
    assert Outcome.PASS == verdict.outcome, verdict
    assert UNSCALED in verdict.notes


@pytest.mark.parametrize("name", ["ScaledAllTheSame", "Silent"])
def test_a_scale_against_the_documentation_fails(name: str) -> None:
    """Kills weights that are scaled whatever is documented, or whatever the scores are."""
    assert Outcome.FAIL == judged(name).outcome


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("T5 attention: no biases and **no 1/sqrt(d)**.", True),
        ("Dot products of q and k, not scaled by 1/sqrt(d_k).", True),
        ("The dot products of q and k are unscaled.", False),
        ("The mask is not scaled by sqrt(d).", False),
        ("No scaling of the logits if `scale` is False.", False),
        ("Scores are divided by sqrt(d_k), not by d_k.", False),
        ("Scores are scaled by 1/sqrt(d_k), and not by 1/d_k.", False),
        ("No scale of time is learned.", False),
        ("Scores are scaled by 1/sqrt(d_k) and not divided by sqrt(d).", False),
        ("Scores are not divided by sqrt(d_model), as some are.", False),
        ("Plain dot products without sqrt(head_dim) and d_k**-0.5.", True),
    ],
)
def test_a_sentence_without_conditions_says_it(text: str, expected: bool) -> None:
    """Of scores, and of no mask."""
    assert expected is documents_unscaled(type("Layer", (), {"__doc__": text}))
