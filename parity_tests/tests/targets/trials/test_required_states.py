"""Calls that require the keys and values of earlier calls begin with those of no row."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.core.case import Case
from mha_parity.core.parameters import Status
from mha_parity.core.verdict import Outcome
from mha_parity.targets.interpretations.empty_past import (
    OBJECT,
    empty_state,
    empty_states,
    state_text,
)
from subject_checks import checks_of

judged = checks_of("required_states.py", cases=40)
RIGHT = {
    "OfPair": "`state` a pair of keys and values of no rows, of shape (N, H, 0, D)",
    "RowsFirst": "`kv_cache` a pair of keys and values of no rows, of shape (N, 0, H, D)",
    "OfNone": "`past` a pair of None",
    "attention": "`v_cache` values of no rows, of shape (N, H, 0, D)",
}


@pytest.mark.parametrize(("name", "said"), RIGHT.items(), ids=RIGHT)
def test_what_begins_with_a_state_of_no_rows_holds(name: str, said: str) -> None:
    """Kills None for a pair of arrays, and rows that the state of earlier ones is not passed to."""
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert said in " ".join(verdict.notes)
    states = {p.name: p.status for p in verdict.parameters if p.name in said}
    assert {Status.TRIED} == {*states.values()}


@pytest.mark.parametrize(
    ("name", "finding"), [("NewBeforeOld", "rows with a cache"), ("Unscaled", "output")]
)
def test_what_is_wrong_with_a_state_or_without_fails(name: str, finding: str) -> None:
    """Rows in the wrong order show behind others alone, a scale in each case."""
    verdict = judged(name)
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
    assert finding == verdict.failures[0].check_result.check


def test_a_mask_of_a_function_that_none_raises_for_hides_nothing() -> None:
    """Kills None for a mask that the function takes the shape of; it is passed in every call."""
    verdict = judged("mask_always")
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    assert "`mask` passed in every call, as one without it raises" in " ".join(verdict.notes)


def test_each_form_holds_no_row_and_is_said() -> None:
    """Two parameters get keys and values of their widths, one a pair; kills heads of queries."""
    case = Case(seed=0, batch=2, queries=5, keys=5, heads_count=4, kv_heads_count=2, head_dim=3,
                v_head_dim=7)  # fmt: skip
    made = [
        [empty_state(form, case, np.float32, lambda array: array) for _, form in found]
        for found in empty_states(["k_cache", "v_cache"])
    ]
    keys, values = made[0]
    assert ((2, 2, 0, 3), (2, 2, 0, 7)) == (keys.shape, values.shape)
    assert np.float32 == keys.dtype
    *pairs, own = empty_states(["state"])
    assert (("state", OBJECT),) == own
    assert "its own code makes" in state_text(OBJECT)
    for (name, form), *more in pairs:
        assert ("state", []) == (name, more)
        pair = empty_state(form, case, np.float64, lambda array: array)
        assert {0} == {0 if each is None else each.size for each in pair}
        assert ("None" in state_text(form)) == (pair[0] is None)
