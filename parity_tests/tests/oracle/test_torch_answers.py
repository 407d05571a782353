"""What a record has is not computed again, and what it lacks is kept or refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.case import parse
from mha_parity.oracle.torch_answers import (
    NotRecordedError,
    Record,
    active_record,
    digest,
    problem_of,
    rows_share_nan,
    torch_result,
    using_record,
)

PROBLEM = make_problem(parse("qkv-N1-L2-S3-H1-D2-cross-float64-s1"))


def test_a_result_is_computed_once() -> None:
    """Kills the question asked the wrong way: what is there would be computed anew each time."""
    record, calls = Record(), []

    def compute() -> dict[str, np.ndarray]:
        calls.append(1)
        return {"output": np.full(2, len(calls))}

    first = record.result("reference", PROBLEM, compute)
    assert first is record.result("reference", PROBLEM, compute)
    assert record.result("other", PROBLEM, compute) is not first
    assert 2 == len(calls)


def test_a_closed_record_computes_nothing() -> None:
    """What it has is returned, and what it lacks is named."""
    record = Record()
    first = record.result("reference", PROBLEM, lambda: {"output": np.ones(2)})
    closed = Record(results=record.results, closed=True)
    assert first is closed.result("reference", PROBLEM, dict)
    with pytest.raises(NotRecordedError, match=f"no other of {PROBLEM.case.id}"):
        closed.result("other", PROBLEM, dict)


LAYER = "mha-N2-L3-S3-H2-D2-bias-outproj-floatpadding-floatmask-float32-s2"
FIELDS = ("query", "w_q", "b_k", "w_out", "key_padding_mask", "attn_mask")


@pytest.mark.parametrize("name", FIELDS)
def test_a_digest_is_of_every_number(name: str) -> None:
    """One other element, shape or dtype, or no array: another problem. The memory is none of it."""
    problem = make_problem(parse(LAYER))
    array = getattr(problem, name)
    other = array.copy()
    other.flat[-1] = 0.125
    changed = [other, array[None], array.astype(np.float64), None]
    digests = {digest(problem.replace(**{name: each})) for each in changed}
    assert 4 == len(digests - {digest(problem)})
    assert digest(problem.replace(**{name: np.asfortranarray(array)})) == digest(problem)


@pytest.mark.parametrize(
    "changes",
    [
        {"attn": "causal"}, {"zero_attn": "yes"}, {"padding": "bool"}, {"projection": "separate"},
        {"form": "qkv"}, {"heads_count": 1}, {"heads_count": 4},
    ],
)  # fmt: skip
def test_a_digest_is_of_the_options_too(changes: dict[str, object]) -> None:
    """Which no array shows. Kills an option that is left out: its results would be mixed up."""
    problem = make_problem(parse(LAYER))
    other = dataclasses.replace(problem, case=problem.case.replace(**changes))
    assert digest(problem) != digest(other)
    assert digest(problem) != digest(problem.replace(given_scale=0.5))
    seeded = dataclasses.replace(problem, case=problem.case.replace(seed=3))
    assert digest(problem) == digest(seeded), "a problem is its numbers"


def test_the_innermost_record_takes_part_and_an_error_takes_it_out() -> None:
    """None leaves the record that is there in force."""
    outer, inner = Record(), Record(closed=True, shares_nan=("float64",))
    assert active_record() is None
    with using_record(outer):
        with using_record(None):
            assert active_record() is outer
        with using_record(inner):
            assert active_record() is inner
            assert rows_share_nan("float64")
            assert not rows_share_nan("bfloat16")
        with pytest.raises(NotRecordedError), using_record(inner):
            torch_result("output", PROBLEM, dict)
        assert active_record() is outer
        assert not rows_share_nan("float64")
    assert active_record() is None


def test_the_problem_of_a_case_is_the_recorded_one_where_there_is_one() -> None:
    """And made from the case where the record has none. Kills the question the wrong way round."""
    case = PROBLEM.case
    kept = PROBLEM.replace(given_scale=0.5)
    with using_record(Record(problems={case: kept})):
        assert problem_of(case) is kept
        other = problem_of(case.replace(seed=2))
    assert 2 == other.case.seed
    assert np.array_equal(other.query, make_problem(case.replace(seed=2)).query)
    assert problem_of(case).given_scale is None


def test_results_are_contiguous() -> None:
    """As they are when read from a file: the order of later sums depends on the memory."""
    columns = np.ones((3, 5)).T
    for record in (None, Record()):
        with using_record(record):
            found = torch_result("output", PROBLEM, lambda: {"output": columns})["output"]
        assert found.flags.c_contiguous
        assert np.array_equal(columns, found)
