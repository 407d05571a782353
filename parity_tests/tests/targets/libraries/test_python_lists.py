"""Functions of Python's lists are called with lists, and what they return is read as arrays."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets.backends.list_arrays import of_lists
from subject_checks import checks_of

judged = checks_of("python_lists.py", cases=24)


def test_a_function_of_lists_is_judged_with_its_masks_and_weights() -> None:
    """In float64, the one dtype that Python's numbers have."""
    verdict = judged("attention", cases=40)
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    rows = {(row.axis, row.value) for row in verdict.features if row.cases}
    assert ("dtype", "float64") in rows
    assert ("dtype", "float32") not in rows
    assert {("attn", "bool2d"), ("weights", "per_head"), ("heads", "many")} <= rows


@pytest.mark.parametrize(
    ("name", "check"),
    [("attention_by_width", "output"), ("attention_in_place", "inputs unchanged")],
)
def test_wrong_ones_fail(name: str, check: str) -> None:
    """By their numbers, and by what they write into a list that they are passed."""
    verdict = judged(name)
    assert Outcome.FAIL is verdict.outcome
    assert check in {each.check_result.check for each in verdict.failures}


def test_ragged_lists_stay_lists() -> None:
    """What is no matrix is not made one: neither a result nor a list that was passed."""
    given = [[1.0, 2.0]]
    array = np.array(given)

    def function(rows: list[list[float]]) -> list[list[float]]:
        rows[0].append(3.0)
        return [[1.0], [2.0, 3.0]]

    first, second = of_lists(function, [(array, given)])(given)
    np.testing.assert_array_equal([1.0], first)
    np.testing.assert_array_equal([2.0, 3.0], second)
    assert np.isnan(array).all()
