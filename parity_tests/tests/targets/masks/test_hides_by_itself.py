"""A layer or function of any convention that hides the future by itself is judged as causal."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome
from mha_parity.run.check import check
from mha_parity.targets.bind import bind
from mha_parity.targets.convention_base.always_causal import CAUSAL, row_moves
from mha_parity.targets.load import load
from subject_checks import SUBJECTS, check_subject

FILE = SUBJECTS / "hides_by_itself.py"
NAMES = [
    ("WithoutMask", "module-mask"), ("Layer", "module-mask"), ("function", "x-weights-heads"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "convention"), NAMES)
def test_a_right_one_passes_as_causal(name: str, convention: str) -> None:
    """No case asks it to see the future, and that is said."""
    verdict = check(bind(load(f"{FILE}:{name}")), Options(cases=30, seed=3, shrink=False))
    assert verdict.convention == convention
    assert verdict.outcome is Outcome.PASS
    assert CAUSAL in verdict.notes


@pytest.mark.parametrize("name", ["SeesNext", "sees_next"])
def test_one_that_sees_the_next_key_fails(name: str) -> None:
    """It hides the future but for one key: the causal rule is its mistake."""
    verdict = check(bind(load(f"{FILE}:{name}")), Options(cases=30, seed=3, shrink=False))
    assert verdict.outcome is Outcome.FAIL
    assert CAUSAL in verdict.notes


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (np.zeros((2, 3, 4)), np.zeros((2, 3, 4)), [0, 0, 0]),
        (np.full((2, 3), np.nan), np.array([[np.nan, 1, np.nan]] * 2), [0, np.inf, 0]),
        (np.zeros((1, 2, 3, 4)), np.arange(2.0)[:, None, None] + np.zeros((1, 2, 3, 4)), [0, 1]),
        (np.zeros((2, 3, 4)), np.zeros((2, 2, 4)), [np.inf] * 3),
    ],
    ids=["same", "nan", "four axes", "other shape"],
)
def test_rows_move_whatever_shape_an_output_has(
    first: np.ndarray, second: np.ndarray, expected: list[float]
) -> None:
    """A wrong shape is for the judge. Kills axes that are those of a right output alone."""
    assert expected == row_moves(first, second).tolist()


def test_a_mask_of_rows_says_the_padding_of_one_sample() -> None:
    """It is passed, which may show that it is wrong; that it is right in other samples is open."""
    verdict = check_subject("hides_by_itself.py:OfRows", cases=40, dtypes=("float64",))
    assert Outcome.INCONCLUSIVE is verdict.outcome, verdict.sentence
    assert "`attn_mask` (mask): passed with one sample alone" in verdict.sentence
    (row,) = (r for r in verdict.features if (r.axis, r.value) == ("padding", "bool"))
    assert 0 < row.cases


def test_a_mask_that_stays_hidden_is_named() -> None:
    """Kills sequences of calls in which such a mask is never passed: it held in all cases."""
    verdict = check_subject(
        "hides_by_itself.py:KeptOfRows", cases=60, dtypes=("float64",), shrink=True, diagnose=True
    )
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    assert "stale-mask" == verdict.diagnosis[0].bug
