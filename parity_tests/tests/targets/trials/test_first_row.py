"""A layer whose first row alone is a query is judged by each row put first."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.targets.calls.canonical_layout import LAID
from subject_checks import checks_of

judged = checks_of("first_row.py", cases=24)


@pytest.mark.parametrize("name", ["FirstRow", "FirstRowFlat"])
def test_right_ones_pass_and_say_how_they_were_asked(name: str) -> None:
    """Both (N, 1, E) and (N, E) are answers of the first row."""
    verdict = judged(name)
    assert 0 == verdict.failed, verdict
    assert [each for each in verdict.notes if "of which the first row alone is a query" in each]


@pytest.mark.parametrize("name", ["FirstRowTwice", "FirstRowLeftOut"])
def test_wrong_ones_fail(name: str) -> None:
    """Queries of another size, and a query that does not see itself, are seen."""
    assert judged(name).failed


@pytest.mark.parametrize("length", [0, 1, 4])
def test_each_row_is_the_first_of_a_sample_once(length: int) -> None:
    """The other rows stay in their places but for the one that the first row takes."""
    rows = np.arange(2 * length * 3.0).reshape(2, length, 3)
    laid = LAID["first_row"](rows).reshape(2, length, length, 3)
    for n, row in np.ndindex(2, length):
        assert laid[n, row, 0].tolist() == rows[n, row].tolist()
        swapped = rows[n].copy()
        swapped[[0, row]] = swapped[[row, 0]]
        assert laid[n, row].tolist() == swapped.tolist()
