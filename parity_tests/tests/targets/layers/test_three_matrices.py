"""A layer with torch's names that has three matrices for equal widths too gets them, and no one."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("three_matrices.py", cases=60, dtypes=("float64",))


def test_a_right_one_passes_with_its_gradients() -> None:
    """Each matrix gets its part of in_proj. Kills the one matrix that torch's layer loads."""
    verdict = judged("ThreeMatrices", grad=True)
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert "torch-module" == verdict.convention
    held = {f"{row.axis}: {row.value}": row.cases for row in verdict.features}
    assert held["projection: packed"], held
    assert held["projection: separate"], held
    assert held["gradients: yes"], held


def test_a_wrong_one_fails() -> None:
    """The way to three matrices does not hide what is computed with them."""
    verdict = judged("OfTheKey", fail_fast=True)
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
