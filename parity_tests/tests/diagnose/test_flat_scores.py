"""Weights that scores do not change, and scores of 16 bits, are said as what they are."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("flat_scores.py", cases=60, diagnose=True, max_failures=24)


@pytest.mark.parametrize(
    ("name", "dtype", "said"),
    [
        # The sum of the values is S times their mean: where there is time for pairs, one is found.
        (
            "summed_alone",
            "float64",
            ("the effective scale is 0: no score has an effect", "the plain mean of the values"),
        ),
        ("in_bfloat16", "float32", ("half precision",)),
    ],
)
def test_nothing_else_is_said_of_them(name: str, dtype: str, said: tuple[str, ...]) -> None:
    """Kills "nan D^nan", or an exception, of scales about 0, and a clip that roundings fit too."""
    verdict = judged(name, dtypes=(dtype,))
    assert Outcome.FAIL == verdict.outcome, verdict
    assert any(each in verdict.diagnosis[0].title for each in said), verdict.diagnosis
    assert not any("clipped" in each.title or "nan" in each.title for each in verdict.diagnosis)
