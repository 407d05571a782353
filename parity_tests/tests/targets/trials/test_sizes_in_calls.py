"""A function that requires the sizes of its rows gets those of each call."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("sizes_in_calls.py", cases=30, dtypes=("float64",))


def test_a_right_one_passes_with_its_mask() -> None:
    """Kills sizes that are taken for rows of keys and values."""
    verdict = judged("attention")
    assert Outcome.PASS is verdict.outcome, verdict
    assert any("`mask`: floats are added" in note for note in verdict.notes), verdict.notes


def test_a_scale_by_all_channels_fails() -> None:
    """It is named as that."""
    verdict = judged("scaled_by_all", diagnose=True)
    assert Outcome.FAIL is verdict.outcome
    assert "scale-dmodel" == verdict.diagnosis[0].bug, verdict.diagnosis
