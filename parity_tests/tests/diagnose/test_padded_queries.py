"""A padding mask that is laid along the queries is one bug, whatever the hidden rows become."""

from __future__ import annotations

import pytest

from subject_checks import assert_named


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
    assert_named(f"padded_queries.py:{name}", bugs, cases=60)
