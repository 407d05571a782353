"""A constructor's packed matrix is given as (3E, E) too, whatever calls with (E, 3E) raise."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import check_subject


@pytest.mark.parametrize("name", ["TorchsNames", "OtherNames"])
def test_rows_of_three_projections_are_tried(name: str) -> None:
    """Kills all trials spent on the first way to build a class, of which each call raises."""
    verdict = check_subject(f"packed_arrays.py:{name}", cases=40, dtypes=("float64",))
    assert Outcome.PASS is verdict.outcome, verdict.sentence


def test_exchanged_biases_are_found() -> None:
    """Kills a refusal: by torch's name of the matrix its shape is known, and the rest is judged."""
    verdict = check_subject(
        "packed_arrays.py:BiasesExchanged", cases=40, dtypes=("float64",), diagnose=True
    )
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    assert "q gets the bias of k" in verdict.diagnosis[0].title
