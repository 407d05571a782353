"""A layer that is right in less than it promises is judged by what it promises."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome, Verdict
from subject_checks import checks_of

judged = checks_of("promises.py", cases=60, dtypes=("float64",), diagnose=True)


def assert_named(verdict: Verdict, bug: str) -> None:
    """Assert that a verdict fails, and that its first cause is a bug of the catalogue."""
    assert Outcome.FAIL == verdict.outcome, verdict
    assert bug == verdict.diagnosis[0].bug, verdict.diagnosis


@pytest.mark.parametrize(
    ("name", "said"),
    [("MaskedSelfAttention", "`mask`: True hides"), ("CausalHiding", "judged as causal")],
)
def test_a_causal_name_is_kept_by_a_mask_or_the_code(name: str, said: str) -> None:
    """A mask that is passed, or a rule of the layer's own, is what the name speaks of."""
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict
    assert any(said in note for note in verdict.notes), verdict.notes


@pytest.mark.parametrize(
    "name",
    [
        "CausalByVisibility", "CausalByConfig", "CausalByWord", "CausalByWindow",
        "AcausalAttention", "UncausalAttention", "CausalInference",
    ],
)  # fmt: skip
def test_a_name_does_not_decide_what_something_else_may(name: str) -> None:
    """Kills a causal rule by the name beside a parameter or configuration that may decide it."""
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict
    assert not any("its name says" in note for note in verdict.notes)


def test_what_is_added_to_scores_may_hide_keys() -> None:
    """Kills "it takes no mask" of a layer whose bias the same report judges."""
    verdict = judged("CausalByBias")
    assert not any("its name says" in note for note in verdict.notes), verdict.notes
    assert 0 == verdict.failed


@pytest.mark.parametrize("name", ["CausalSelfAttention", "CausalSelfAttentionOfConfig"])
def test_a_causal_name_that_hides_nothing_fails(name: str) -> None:
    """Kills a green by what is left: attention without the rule that its name promises."""
    verdict = judged(name)
    assert_named(verdict, "causal-ignored")
    assert any("its name says that it is causal" in note for note in verdict.notes)


def test_several_heads_are_judged_where_one_alone_is_right() -> None:
    """Kills a reading as one head, which fits, of a class whose constructor takes their number."""
    assert Outcome.PASS == judged("Heads.attend").outcome
    assert_named(judged("HeadsByWidth.attend"), "scale-dmodel")


def test_heads_get_torch_s_width_where_the_constructor_takes_one() -> None:
    """Kills heads as wide as the input, at which the scale of the input is the head's."""
    assert Outcome.PASS == judged("OfHeads").outcome
    assert_named(judged("OfHeadsByInput"), "scale-dmodel")
