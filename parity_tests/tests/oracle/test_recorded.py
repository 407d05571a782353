"""What a record has is not computed again, and what it lacks is kept or refused."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.case import parse
from mha_parity.oracle.recorded import NotRecordedError, Record

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
