"""What a target reads where two of query, key and value are one array."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.catalogue import Attention, answer_of
from mha_parity.core.candidate import FunctionCandidate
from mha_parity.core.features import make_offer
from mha_parity.diagnose.experiments.arrays.shared_arrays import shared_arrays
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.run_experiments import cause_findings, run_experiments

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem

LAYER = make_offer(
    inputs=("self", "cross", "distinct"), padding=("none", "bool"), dtype=("float64",),
    size=("small",),
)  # fmt: skip


def value_of_key(problem: Problem) -> Answer:
    """Take key for value where query is key: the test for self-attention looks at two of three."""
    shared = problem.query is problem.key
    return answer_of(Attention, problem.replace(value=problem.key) if shared else problem)


def query_of_key(problem: Problem) -> Answer:
    """Take key for query where key is value."""
    shared = problem.key is problem.value
    return answer_of(Attention, problem.replace(query=problem.key) if shared else problem)


def mean_value(problem: Problem) -> Answer:
    """Average the values where query is value."""
    mean = np.broadcast_to(problem.value.mean(axis=1, keepdims=True), problem.value.shape)
    shared = problem.query is problem.value and problem.query is not problem.key
    return answer_of(Attention, problem.replace(value=mean) if shared else problem)


def always_key(problem: Problem) -> Answer:
    """Take key for value always: no matter of arrays that are shared."""
    return answer_of(Attention, problem.replace(value=problem.key))


SAID: dict[Callable[[Problem], Answer], str] = {
    value_of_key: "where query is key, value is not read: query is taken in its place",
    query_of_key: "where key is value, query is not read: key is taken in its place",
    mean_value: "where query is value, the output is wrong",
    always_key: "",
    (lambda problem: answer_of(Attention, problem)): "",
}


@pytest.mark.parametrize("function", SAID, ids=lambda each: each.__name__)
def test_what_is_read_in_place_of_an_argument_is_said(
    function: Callable[[Problem], Answer],
) -> None:
    """It is reported where two arrays are one and three separate ones are answered rightly."""
    candidate = FunctionCandidate("shares", function, LAYER)
    assert SAID[function] == shared_arrays(Caller(candidate, lambda: True))


def test_no_mask_is_the_cause_of_values_that_are_not_read() -> None:
    """Weights are read with other values and one array for query and key: that is the cause."""
    candidate = FunctionCandidate("shares", value_of_key, LAYER)
    found = cause_findings(run_experiments(Caller(candidate, lambda: True)))
    assert [SAID[value_of_key]] == [each.text for each in found]


def test_a_target_of_one_argument_is_not_asked() -> None:
    """Where no three arrays are offered, there are none to be one."""
    candidate = FunctionCandidate("shares", value_of_key, LAYER | {"inputs": ("self",)})
    assert not shared_arrays(Caller(candidate, lambda: True))
