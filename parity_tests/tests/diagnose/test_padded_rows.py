"""Rows of padded queries that are 0 are named, whatever code takes for the padded rows."""

from __future__ import annotations

import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import Attention, answer_of, catalogue
from mha_parity.core.case import Case
from subject_checks import assert_named

ZEROED, HIDDEN = "kpm-zeroes-queries", "kpm-both-axes"


@pytest.mark.repeats(1)
@pytest.mark.parametrize(
    ("name", "bugs"),
    [
        ("masked_output", [ZEROED]),
        ("ZeroedLayer", [ZEROED]),
        ("Zeroed", [ZEROED]),
        ("AnsweredLayer", []),
    ],
)
def test_the_padded_rows_are_named(name: str, bugs: list[str]) -> None:
    """In a function, in Linears and in a layer like torch's the bug is sure; the right one passes.

    The function has rows for keys wherever L = S, the layer where query and key are one array; the
    layers multiply before and after the output projection.
    """
    assert_named(f"padded_rows.py:{name}", bugs, cases=200, strict_padding=True)


@pytest.mark.parametrize("bug", [ZEROED, HIDDEN])
def test_rows_meet_the_mask_where_query_and_key_are_one_array(bug: str) -> None:
    """One spelling departs where the query is the key too, one wherever L = S, none of L < S."""
    base = Case(
        seed=78, batch=2, queries=9, keys=9, heads_count=3, head_dim=11, form="mha",
        projection="packed", inputs="distinct", padding="bool",
    )  # fmt: skip
    shared, distinct = make_problem(base), make_problem(base.replace(seed=77))
    assert shared.query is shared.key
    assert distinct.query is not distinct.key
    uneven = make_problem(base.replace(queries=7))
    departs = {
        getattr(kind, "rows", "") + " behind" * getattr(kind, "projected", False): [
            bool((answer_of(kind, problem).output != answer_of(Attention, problem).output).any())
            for problem in (shared, distinct, uneven)
        ]
        for kind in catalogue()[bug].kinds
    }
    assert [False, False, False] == departs["self"]
    assert [True, False, False] == departs["query is key"]
    assert [True, False, False] == departs["query is key, or unbatched"]
    assert [True, True, False] == departs["L = S"]
