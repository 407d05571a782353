"""Names of masks that say what a True does are held to it, as torch's names are to torch's."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("telling_names.py", cases=60, dtypes=("float64",))


@pytest.mark.parametrize(
    ("name", "does"), [("blocked", "hides"), ("keep_mask", "keeps"), ("dropped", "hides")]
)
def test_the_name_is_held_to_what_it_says(name: str, does: str) -> None:
    """Kills a meaning by trial alone: each inverted one passed, with "the opposite" in a note."""
    right = judged(name)
    assert Outcome.PASS == right.outcome, right
    assert any(f"`{name}`: True {does}" in note for note in right.notes), right.notes
    assert Outcome.FAIL == judged(f"{name}_inverted").outcome


def test_documentation_comes_before_the_name() -> None:
    """Kills a name that overrules a docstring which says the opposite: a right function failed."""
    verdict = judged("documented")
    assert Outcome.PASS == verdict.outcome, verdict
    assert any("judged so by its documentation" in note for note in verdict.notes), verdict.notes


def test_an_option_of_such_a_name_that_is_no_array_is_not_tried() -> None:
    """Kills a run without verdict by `hide="future"`, which hides nothing unless it is given."""
    verdict = judged("hidden_by_word")
    assert Outcome.PASS == verdict.outcome, verdict
    assert "parameters not tried: hide" in verdict.sentence
