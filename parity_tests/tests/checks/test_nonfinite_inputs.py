"""NaN and infinity in a value come out again, in the rows that see them and in no other sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import catalogue
from mha_parity.catalogue.plain_layer import Layer, bound_layer
from mha_parity.checks.call_effects import MonitoredCandidate
from mha_parity.checks.nonfinite_inputs import (
    NAME,
    SPREADS,
    check_nonfinite_inputs,
    elements_reached,
    with_token,
)
from mha_parity.core.candidate import REMARK
from mha_parity.core.case import Case
from mha_parity.core.options import Options
from mha_parity.diagnose.call_effects import NAMES
from mha_parity.run.check import check
from mha_parity.targets.bind import bind
from mha_parity.targets.load import load

CASE = Case(seed=3, batch=2, queries=5, keys=7, heads_count=2, head_dim=3, inputs="distinct")


def softmax(scores: Any) -> Any:
    """Return the softmax over the last axis."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def of_heads(attention_weights: Any, values: Any = lambda v: v) -> Any:
    """Return attention on (N, H, L, D) with other weights or values."""

    def attention(query: Any, key: Any, value: Any) -> Any:
        scores = query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5
        return attention_weights(scores) @ values(value)

    return attention


def refuses(query: Any, key: Any, value: Any) -> Any:
    """Return attention on finite numbers alone."""
    if not np.isfinite(value).all():
        raise ValueError("NaN in the values")
    return of_heads(softmax)(query, key, value)


def mixed(value: Any) -> Any:
    """Return the values with the mean over all samples taken away and added again."""
    mean = value.mean(axis=(0, 1, 2))
    return value - mean + mean


def kept(query: Any, key: Any, value: Any) -> Any:
    """Return the same for all inputs."""
    del key, value
    return np.ones_like(query)


def over_all(scores: Any) -> Any:
    """Return the softmax less one maximum over all samples and heads."""
    weights = np.exp(scores - scores.max(initial=0))
    return weights / weights.sum(axis=-1, keepdims=True)


FUNCTIONS = {
    "right": of_heads(softmax),
    "replaces NaN weights": of_heads(lambda scores: np.nan_to_num(softmax(scores))),
    "replaces NaN values": of_heads(softmax, np.nan_to_num),
    "mixes samples": of_heads(softmax, mixed),
    "refuses": refuses,
    "one maximum": of_heads(over_all),
}  # fmt: skip
SWALLOWS, ASKED = f"{NAME}: with * in the value of a key", NAME
EXPECTED = {
    "right": {ASKED},
    "replaces NaN weights": {ASKED},
    "replaces NaN values": {ASKED, SWALLOWS},
    "mixes samples": {ASKED, REMARK + SPREADS},
    "refuses": set(),
    "one maximum": {ASKED},
}


def found_of(function: Any, case: Case) -> set[str]:
    """Return the findings with NaN and with infinity, the poison left out of their sentences."""
    bound = bind(function, "sdpa", probe=False)
    said = [each for n in range(2) for each in check_nonfinite_inputs(bound, case, n)]
    return {each.partition(",")[0].replace(" nan ", " * ").replace(" inf ", " * ") for each in said}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_swallows_nan_or_spreads_it_is_said(name: str) -> None:
    """A query that sees it has no number to give. Kills nan_to_num, and a verdict on refusals."""
    case = CASE.replace(form="qkv", projection="none", inputs="cross")
    assert EXPECTED[name] == found_of(FUNCTIONS[name], case)


def test_a_kept_answer_is_not_called_swallowed() -> None:
    """Who ignores the values gives one answer to all. Kills the check without its control."""
    case = CASE.replace(form="qkv", projection="none", inputs="cross")
    assert {ASKED} == found_of(kept, case)


@pytest.mark.parametrize("inputs", ["self", "cross", "distinct"])
@pytest.mark.parametrize("attn", ["none", "causal"])
def test_a_right_layer_lets_both_through(inputs: str, attn: str) -> None:
    """So do the plain layer, torch's and the NumPy one, wherever a key is a value too."""
    names = ("mha_numpy:MultiheadAttention", "torch.nn:MultiheadAttention")
    case = CASE.replace(inputs=inputs, attn=attn)
    for bound in (bound_layer(Layer), *(bind(load(n), probe=False) for n in names)):
        for number in range(2):
            assert [NAME] == list(check_nonfinite_inputs(bound, case, number))


def test_the_planted_layer_fails_by_its_name() -> None:
    """`nan_to_num` of all inputs is seen in a run of a dozen cases, and named."""
    bug = catalogue()[NAMES[NAME]]
    assert bug.layer is not None
    candidate = MonitoredCandidate(bound_layer(bug.layer()))
    options = Options(cases=12, shrink=False, features=(("regime", "normal"),))
    verdict = check(candidate, options)
    assert {NAME} == {row.name for row in verdict.checks if row.failed}
    assert bug.id == verdict.diagnosis[0].bug


@pytest.mark.parametrize("attn", ["none", "causal"])
def test_every_row_of_the_first_sample_sees_the_token(attn: str) -> None:
    """Also under the causal rule: kills another token, which the first rows do not see."""
    problem = make_problem(CASE.replace(attn=attn))
    rows = elements_reached(problem)
    assert rows[0].all()
    assert not rows[1:].any()
    poisoned = with_token(problem, np.nan)
    assert np.isnan(poisoned.value[0, 0]).all()
    assert 1 == np.isnan(poisoned.value).any(axis=-1).sum()
    assert not np.isnan(problem.value).any()
