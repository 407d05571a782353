"""What stands behind the ``**kwargs`` of a call is tried, or the run is not green."""

from __future__ import annotations

import pytest

from mha_parity.core.parameters import Status
from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

FILE = "behind_keywords.py"
MASKS = {
    "PassedOn": {"score_mask", "keep_mask"},
    "PassedUp": {"score_mask", "keep_mask"},
    "ReadByName": {"mask"},
    "Held": {"score_mask", "keep_mask"},
    "passed_on": {"mask"},
}


judged = checks_of(FILE, cases=48, dtypes=("float64",))


@pytest.mark.repeats(1)
@pytest.mark.parametrize("name", MASKS)
def test_right_masks_behind_keywords_are_tried(name: str) -> None:
    """Followed to a method, a class above, a layer held, a function, or read by name."""
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict.sentence
    tried = {p.name for p in verdict.parameters if p.status is Status.TRIED}
    assert MASKS[name] <= tried


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in {"Held", "passed_on"} else pytest.mark.slow) for n in MASKS],
)
def test_wrong_masks_behind_keywords_are_not_green(name: str) -> None:
    """The same with masks that are subtracted from the scores."""
    wrong = f"{name}_subtracted" if name.islower() else f"{name}Subtracted"
    verdict = judged(wrong)
    assert verdict.outcome in {Outcome.FAIL, Outcome.INCONCLUSIVE}, verdict.sentence
    assert any(name in verdict.sentence for name in MASKS[name]) or verdict.failed


def test_what_cannot_be_followed_is_no_green_and_names_the_way_out() -> None:
    """The keywords themselves are untried, until they are excluded."""
    verdict = judged("NotFollowed")
    assert Outcome.INCONCLUSIVE == verdict.outcome, verdict.sentence
    assert "no case passed `kwargs` (further keywords)" in verdict.sentence
    assert "--without kwargs" in verdict.sentence
    assert "--masks" not in verdict.sentence
    assert Outcome.PASS == judged("NotFollowed", without=("kwargs",)).outcome


@pytest.mark.parametrize("name", ["Swallowed", "Refused"])
def test_keywords_that_nothing_reads_are_no_reason(name: str) -> None:
    """They hide nothing."""
    verdict = judged(name)
    assert Outcome.PASS == verdict.outcome, verdict.sentence


def test_a_constructor_is_built_by_the_keywords_that_it_reads() -> None:
    """Of these `causal_chunk_size=128` is a size, and no switch that the run has to try."""
    verdict = judged("BuiltByKeywords")
    assert Outcome.PASS == verdict.outcome, verdict.sentence
    assert verdict.sentence.endswith("parameters not tried: causal_chunk_size.")
    assert Outcome.FAIL == judged("BuiltByKeywordsSubtracted").outcome
