"""The two sources of reference gradients have to agree within twice the roundings of float64."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mha_parity.cases.generate import cotangent, make_problem
from mha_parity.core.case import parse
from mha_parity.oracle import torch_answers
from mha_parity.oracle.backward import backward
from mha_parity.oracle.error_bound import ErrorModel, smallest_number
from mha_parity.oracle.reference import reference_answer
from mha_parity.oracle.reference_gradients import reference_gradients, require_agreement
from mha_torch import OraclesDisagreeError

UNIT = 2.0**-52  # twice the roundoff of float64: either may err by one


def test_gradients_may_differ_by_twice_the_bound_and_no_more() -> None:
    """A difference of 0.99 of both bounds together is accepted, one of 1.01 is not."""
    problem = make_problem(parse("mha-N1-L33-S37-H2-D7-bias-grad-float64-s54"))
    reference, given = reference_answer(problem), cotangent(problem)
    both = backward(
        problem, reference, given, ErrorModel(UNIT, UNIT, smallest_number(np.dtype("f8")))
    )
    own = {name: each.value for name, each in both.items()}
    within, beyond = (
        {name: own[name] + share * each.error for name, each in both.items()}
        for share in (0.99, 1.01)
    )
    require_agreement(problem, reference, given, own, within)
    with pytest.raises(OraclesDisagreeError, match="which rounding does not explain"):
        require_agreement(problem, reference, given, own, beyond)


@pytest.mark.parametrize("closed", [False, True])
def test_torch_is_asked_unless_a_record_is_all_there_is(*, closed: bool) -> None:
    """Without a record, and while one is written; not where answers were read from a file."""
    assert torch_answers.asks_torch()
    with torch_answers.using_record(torch_answers.Record(closed=closed)):
        assert closed != torch_answers.asks_torch()


def test_weights_formed_anew_from_rounded_scores_are_within_the_bound() -> None:
    """A backward pass may scale q first, where the forward pass scales q k^T: rows sum to no 1.

    In bfloat16 scores of some hundreds round by 1, and weights formed anew pass 1 by far.
    """
    problem = make_problem(parse("qkv-N4-L7-S7-H1-D3-grad-bfloat16-widerange-s319"))
    given, bfloat16 = cotangent(problem).astype(np.float64), problem.dtype

    def rounded(array: np.ndarray) -> np.ndarray:
        return np.asarray(array.astype(bfloat16).astype(np.float64))

    q, k = problem.query.astype(np.float64), problem.key.astype(np.float64)
    forward = rounded(rounded(q @ k.swapaxes(1, 2)) * problem.scale)
    anew = rounded(rounded(q * problem.scale) @ k.swapaxes(1, 2))
    top = forward.max(axis=-1, keepdims=True)
    weights = np.exp(anew - top) / np.exp(forward - top).sum(axis=-1, keepdims=True)
    assert weights.sum(axis=-1).max() > 2
    right = reference_gradients(problem, reference_answer(problem))["value"]
    off = np.abs(weights.swapaxes(1, 2) @ given - right.value)
    assert off.max() > 1
    assert (off <= right.limit).all()


def test_a_difference_as_large_as_the_bound_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kills `<` for `<=` where both may err together by just as much."""
    limits = {"query": SimpleNamespace(error=np.ones(1))}
    monkeypatch.setattr("mha_parity.oracle.reference_gradients.backward", lambda *_: limits)
    problem: Any = None
    require_agreement(
        problem, problem, np.ones(1), {"query": np.ones(1)}, {"query": np.full(1, 2.0)}
    )
    with pytest.raises(OraclesDisagreeError, match=r"differ by 1\.5, which"):
        require_agreement(
            problem, problem, np.ones(1), {"query": np.ones(1)}, {"query": np.full(1, 2.5)}
        )
