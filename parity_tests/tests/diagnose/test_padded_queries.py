"""A padding mask that is laid along the queries is one bug, whatever the hidden rows become."""

from __future__ import annotations

import pytest

from subject_checks import check_subject


@pytest.mark.repeats(1)
@pytest.mark.parametrize(
    ("name", "bugs"),
    [
        ("UniformRows", ["kpm-query-axis"]),
        ("SafeRows", ["kpm-query-axis"]),
        ("OutputRows", ["kpm-query-axis"]),
        ("uniform_kernel", ["kpm-query-axis"]),
        ("HiddenKeys", []),
    ],
)
def test_hidden_rows_are_one_bug_and_no_filling_beside_it(name: str, bugs: list[str]) -> None:
    """Uniform rows, rows of 0 and an output set to 0 are named alone; hidden keys pass."""
    verdict = check_subject(f"padded_queries.py:{name}", cases=60, diagnose=True)
    assert bugs == [each.bug for each in verdict.diagnosis], verdict.diagnosis
    assert all(each.confident for each in verdict.diagnosis)
    assert bool(bugs) == bool(verdict.failures)
