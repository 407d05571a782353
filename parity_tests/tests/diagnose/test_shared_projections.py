"""Projections that have the weights of another are named, however their target is called."""

from __future__ import annotations

import pytest

from subject_checks import assert_named


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
    assert_named(f"shared_projections.py:{name}", bugs, cases=40)
