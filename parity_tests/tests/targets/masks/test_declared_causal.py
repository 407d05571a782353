"""A target that says it is causal, and hides no future, is judged as causal attention."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.bind import bind
from mha_parity.targets.convention_base.declared_causal import HIDES_NOTHING, OF_ONE_HEAD
from subject_checks import checks_of, load_subject

checked = checks_of("said_causal.py")
DOCUMENTED = "its documentation says that it is causal"


@pytest.mark.parametrize(
    ("name", "said", "bug"),
    [
        ("Forgotten", DOCUMENTED, "causal-ignored"),
        ("Multiplied", DOCUMENTED, "causal-zero-scores"),
        ("Inverted", "`triu` in its code says that it is causal", "causal-anti"),
        ("HidesNothing", "a comment in its code says that it is causal", "causal-ignored"),
        ("InvertedBesidePadding", DOCUMENTED, "causal-anti"),
        ("MergedUnmoved", DOCUMENTED, "merge-no-transpose"),
    ],
)
def test_what_says_that_it_is_causal_is_judged_so(name: str, said: str, bug: str) -> None:
    """Kills a pass of what was documented as causal, and scores that are said to be unlike q k^T.

    The rule that is wrong is named, as that of a mask is.
    """
    verdict = checked(name, cases=40, diagnose=True)
    assert Outcome.FAIL == verdict.outcome, verdict
    assert any(note.startswith(said) for note in verdict.notes), verdict.notes
    assert str(verdict.diagnosis[0].bug).startswith(bug), verdict.diagnosis


def test_a_rule_that_one_head_keeps_is_not_said_to_hide_nothing() -> None:
    """Kills a note that finds fault with the rule where several heads mix their rows."""
    for name, said in (("MergedUnmoved", OF_ONE_HEAD), ("Forgotten", HIDES_NOTHING)):
        assert any(
            each.endswith(f"though {said}.")
            for each in bind(load_subject(f"said_causal.py:{name}")).remarks
        ), name


@pytest.mark.parametrize("name", ["Bidirectional", "LeftForLater", "MasksForOthers"])
def test_what_denies_it_or_leaves_it_to_callers_is_judged_without(name: str) -> None:
    """A sentence with a "no" says nothing, nor a plan, nor a triangle that is made for others."""
    verdict = checked(name, cases=40)
    assert Outcome.PASS == verdict.outcome, verdict


def test_a_band_is_no_causal_rule() -> None:
    """Two triangles in the code make a window on both sides."""
    verdict = checked("SeesNeighbours", diagnose=True)
    assert not any("causal" in note for note in verdict.notes), verdict.notes
    assert "row i sees keys i-2 … i+2" in verdict.diagnosis[0].title
