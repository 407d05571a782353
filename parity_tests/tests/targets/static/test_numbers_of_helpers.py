"""Numbers that a function's helpers read of its module are those of each call, its length too."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.layers.module_constants import numbers_read
from subject_checks import checks_of, load_subject

judged = checks_of("numbers_of_helpers.py", cases=40)


@pytest.mark.parametrize("name", ["right", "of_one_head"])
def test_right_ones_pass_at_all_lengths(name: str) -> None:
    """Kills a length of the module beside others of the calls, in sequences of calls too."""
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert any("`T`" in note and "of its module are set" in note for note in verdict.notes)


def test_a_width_in_the_place_of_another_is_no_number_to_set_right() -> None:
    """Each number is set to what it means: a scale by the width of all heads stays wrong."""
    assert Outcome.FAIL is judged("scaled_by_the_width").outcome


def test_sizes_of_tiles_and_numbers_that_contradict_are_left() -> None:
    """Kills a tile that is as long as the sequence, and a wrong number that is set right."""
    for name in ("by_tiles", "contradicting"):
        assert {} == numbers_read(load_subject(f"numbers_of_helpers.py:{name}"))
