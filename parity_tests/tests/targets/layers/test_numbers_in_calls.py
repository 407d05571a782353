"""Layers that are called with other numbers of their module are objects with methods and modes."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.layers.module_constants import lengths_in_calls
from subject_checks import checks_of, load_subject

judged = checks_of("numbers_in_calls.py", dtypes=("float64", "float32"), cases=40)


@pytest.mark.parametrize("name", ["Keeps", "KeepsNone"])
def test_what_is_right_at_the_lengths_of_a_case_holds(name: str) -> None:
    """Kills room for the rows of the module beside a buffer of a case's, and resets unmade."""
    right = judged(name)
    assert Outcome.PASS is right.outcome, right.sentence
    assert any("`n_head` of its module" in note for note in right.notes)


@pytest.mark.parametrize(
    ("name", "check"),
    [("StepsUnscaled", "rows with a cache"), ("KeepsItsLastLength", "statelessness")],
)
def test_what_other_calls_of_the_object_show_fails(name: str, check: str) -> None:
    """Kills steps and modes that are asked of a function in the place of the layer."""
    wrong = judged(name)
    assert Outcome.FAIL is wrong.outcome, wrong.sentence
    assert check == wrong.failures[0].check_result.check


def test_a_length_that_calls_alone_read_stays() -> None:
    """It may be the size of a tile; one that buffers are built by is set in calls, too."""
    assert {"block_size": "length"} == lengths_in_calls(load_subject("numbers_in_calls.py:Keeps"))
    assert {} == lengths_in_calls(load_subject("module_sizes.py:OfModule"))
