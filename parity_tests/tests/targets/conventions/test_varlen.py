"""Kernels over samples packed in one array of rows: how they are called, and what is seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.case import Case
from mha_parity.core.parameters import Status
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from mha_parity.targets.conventions.varlen import Varlen
from subject_checks import SUBJECTS, checks_of

LENGTHS = Case(
    seed=5, batch=3, queries=9, keys=6, heads_count=2, head_dim=3, form="qkv", projection="none",
    inputs="cross", padding="lengths",
)  # fmt: skip


def loaded(name: str) -> Any:
    """Return a subject."""
    return load.load(f"{SUBJECTS}/packed_samples.py:{name}")


judged = checks_of("packed_samples.py", cases=40)


def bound(name: str) -> Varlen:
    """Return a subject, recognised as one of these."""
    found = bind(loaded(name))
    assert isinstance(found, Varlen)
    return found


@pytest.mark.repeats(2)
@pytest.mark.parametrize(
    "name",
    [
        "varlen",
        "from_the_first_key",
        "of_themselves",
        "of_one_mask",
        "qkv_packed",
        "kv_packed",
        "of_offsets",
    ],
)
def test_right_ones_pass_with_gradients(name: str) -> None:
    """Every parameter is passed, and no case is wrong or lost."""
    verdict = judged(name, grad=True)
    assert 0 == verdict.failed, verdict
    assert verdict.passed > 30, verdict.sentence
    assert {Status.TRIED} == {each.status for each in verdict.parameters}, verdict.sentence


@pytest.mark.repeats(2)
@pytest.mark.parametrize(
    "name",
    [
        "starts_of_queries",
        "first_lengths",
        "one_row_too_many",
        "of_one_sequence_more",
        "qkv_packed_one_key_more",
    ],
)
def test_wrong_ones_fail(name: str) -> None:
    """Wrong starts, wrong lengths and a causal rule that is one off are seen in 40 cases.

    Where they are wrong they are right for one sample, or for what else the starts may be read as.
    """
    assert judged(name).failed > 0


def test_what_is_offered_follows_from_the_names() -> None:
    """Keys of their own and lengths with two arrays of starts alone, scale and causal by name."""
    offered = bound("varlen").offer
    assert ("none", "lengths") == offered["padding"]
    assert ("none", "causal") == offered["attn"]
    assert ("default", "given") == offered["scale"]
    assert ("equal", "fewer") == offered["kv_heads"]
    assert ("self",) == bound("of_themselves").offer["inputs"]
    assert ("none",) == bound("first_lengths").offer["attn"]


@pytest.mark.parametrize("attn", ["none", "causal"])
def test_sequences_have_each_row_once_and_the_keys_that_it_sees(attn: str) -> None:
    """Rows are cut in several lengths; by a rule from the last key each sees what torch's sees."""
    kernel = bound("varlen")
    assert kernel.aligned_last
    problem = make_problem(LENGTHS.replace(attn=attn))
    cut = kernel.sequences(problem)
    assert len({each.last - each.first for each in cut}) > 1
    hidden = np.zeros((3, 9, 6), dtype=bool)
    assert problem.key_padding_mask is not None
    hidden |= problem.key_padding_mask[:, None, :]
    hidden |= np.triu(np.ones((9, 6), dtype=bool), k=1) if attn == "causal" else False
    found = np.ones((3, 9, 6), dtype=bool)
    for each in cut:
        count = each.last - each.first
        after = np.triu(np.ones((count, each.keys), dtype=bool), k=1 + each.keys - count)
        rows = after if attn == "causal" else np.zeros_like(after)
        assert found[each.sample, each.first : each.last].all()
        found[each.sample, each.first : each.last, : each.keys] = rows
    np.testing.assert_array_equal(hidden, found)


def test_a_rule_from_the_first_key_keeps_rows_together() -> None:
    """Its samples are not cut where it is asked for."""
    kernel = bound("from_the_first_key")
    assert not kernel.aligned_last
    cut = kernel.sequences(make_problem(LENGTHS.replace(attn="causal")))
    assert [(0, 9)] * 3 == [(each.first, each.last) for each in cut]


@pytest.mark.parametrize(("name", "offered"), [("of_one_mask", False), ("of_themselves", True)])
def test_infinity_is_asked_where_samples_are_kept_separate(name: str, *, offered: bool) -> None:
    """A product over all rows multiplies the infinite value of another sample by 0: NaN."""
    regimes = bound(name).offer["regime"]
    assert offered is ("infinite_value" in regimes)
    assert "largest_value" in regimes


def test_a_window_is_asked_of_whole_sequences() -> None:
    """Rows are counted in their sequence; it was never passed, and said to change nothing."""
    verdict = judged("windowed")
    assert 0 == verdict.failed, verdict
    assert any("`window`: of w, row i sees the keys i - w to" in each for each in verdict.notes)
    assert Status.TRIED is {each.name: each.status for each in verdict.parameters}["window"]
    assert judged("windowed_by_length").failed > 0


def test_empty_sequences_are_asked_where_they_are_documented() -> None:
    """In some cases, so that others show what else is wrong; kills one that asks none."""
    verdict = judged("with_empty_ones")
    assert 0 == verdict.failed, verdict
    assert any("empty sequences stand between others" in each for each in verdict.notes)
    raising = judged("stops_at_empty_ones")
    assert {"call completes"} == {each.check_result.check for each in raising.failures}
    assert {1} == {each.case.seed % 4 for each in raising.failures}
    assert raising.failed < raising.run
    assert not any("empty sequences" in each for each in judged("of_offsets").notes)
    by_module = checks_of("packed_with_empty.py", cases=40)("stops_without_keys")
    assert {"call completes"} == {each.check_result.check for each in by_module.failures}
