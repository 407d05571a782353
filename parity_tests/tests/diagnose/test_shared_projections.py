"""Projections that have the weights of another are named, however their target is called."""

from __future__ import annotations

import pytest

from subject_checks import check_subject


@pytest.mark.repeats(1)
@pytest.mark.parametrize(
    ("name", "bugs"),
    [
        ("value_of_query", ["v-with-weights-of-q"]),
        ("value_of_query_by_columns", ["v-with-weights-of-q"]),
        ("value_of_key", ["v-with-weights-of-k"]),
        ("query_of_key", ["q-with-weights-of-k"]),
        ("KeyOfQuery", ["k-with-weights-of-q"]),
        ("own_weights", []),
    ],
)
def test_the_shared_projection_is_the_only_cause(name: str, bugs: list[str]) -> None:
    """Functions of either order of axes and a layer are named; weights of their own pass."""
    verdict = check_subject(f"shared_projections.py:{name}", cases=40, diagnose=True)
    assert bugs == [each.bug for each in verdict.diagnosis], verdict.diagnosis
    assert all(each.confident for each in verdict.diagnosis)
    assert bool(bugs) == bool(verdict.failures)
