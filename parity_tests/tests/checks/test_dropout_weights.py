"""What a training call's weights say of its dropout, on weights written by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.checks import dropout
from mha_parity.checks.dropout import P, TrainingModeAnswer
from mha_parity.core.arrays import Array
from mha_parity.core.candidate import Answer
from mha_parity.core.case import parse

S = 40
PROBLEM = make_problem(parse(f"qkv-N2-L{S}-S{S}-H2-D{2 * S}-cross-float64-s1"))
RNG = np.random.Generator(np.random.Philox(3))
LOGITS = RNG.standard_normal(PROBLEM.weights_shape)
WEIGHTS: Array = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=-1, keepdims=True)
KEPT: Array = np.asarray(RNG.random(WEIGHTS.shape)) >= P
ATOL = 256 * 2.0**-52 * WEIGHTS.max() / (1 - P)  # 256 roundings of the largest number


def output(weights: Array, second: Array | None = None) -> Array:
    """Return an output (N, L, H 2 S) whose heads show the weights in both halves."""
    halves = np.concatenate((weights, weights if second is None else second), axis=-1)
    return np.asarray(halves.swapaxes(1, 2).reshape(PROBLEM.output_shape))


def trained(dropped: Array, second: Array | None = None, **more: Any) -> TrainingModeAnswer:
    """Return a training answer with these weights."""
    answer = Answer(output=output(dropped, second), **more)
    return TrainingModeAnswer(PROBLEM, Answer(output=output(WEIGHTS)), answer)


def said(answer: TrainingModeAnswer, *, drops_as_torch: bool = True) -> list[str]:
    """Return the findings on a training answer, in the first question of a process."""
    bound: Any = SimpleNamespace(drops_as_torch=drops_as_torch)
    return list(dropout.weight_findings(bound, answer, 1))


OTHERS = np.exp(2 * LOGITS) / np.exp(2 * LOGITS).sum(axis=-1, keepdims=True)
RIGHT = np.where(KEPT, WEIGHTS / (1 - P), 0)
HELD = [
    "dropout on the weights", "weights in training", "dropout after the softmax",
    "dropout rescales", "dropout rate",
]  # fmt: skip


def test_right_dropout_holds_each_check() -> None:
    """The weights that are returned too, per head and averaged; extra keys of them are not read."""
    assert said(trained(RIGHT)) == HELD
    returned = [RIGHT, RIGHT.mean(axis=1), np.concatenate((RIGHT, RIGHT[..., :1]), axis=-1)]
    for weights in returned:
        assert said(trained(RIGHT, weights=weights)) == [*HELD, "dropped weights returned"]
    assert said(trained(RIGHT, weights=WEIGHTS), drops_as_torch=False) == HELD
    assert said(trained(RIGHT, weights=RIGHT[..., :-1])) == HELD
    for weights in (WEIGHTS, WEIGHTS.mean(axis=1)):
        (*held, last) = said(trained(RIGHT, weights=weights))
        assert held == HELD
        assert last.startswith("dropped weights returned: elements differ by up to")


@pytest.mark.parametrize(("off", "right"), [(0.9, True), (1.1, False)])
def test_a_kept_weight_may_be_off_by_another_order_of_sums(off: float, right: bool) -> None:
    """And a dropped one, and the halves from each other. Kills another allowance."""
    assert trained(RIGHT).atol == pytest.approx(ATOL)
    by = np.zeros_like(RIGHT)
    by[0, 1, 2, np.flatnonzero(KEPT[0, 1, 2])[0]] = off * ATOL
    assert trained(RIGHT + by).rescaled is right
    by = np.zeros_like(RIGHT)
    by[0, 1, 2, np.flatnonzero(~KEPT[0, 1, 2])[0]] = off * ATOL
    assert trained(RIGHT + by).rescaled is right
    found = said(trained(RIGHT, RIGHT + by))
    assert (found == HELD) is right
    assert right or found[0].startswith("dropout on the weights: in training two output columns")
    assert right or not said(trained(RIGHT, RIGHT + by), drops_as_torch=False)


@pytest.mark.parametrize(
    ("dropped", "name"),
    [
        (np.where(KEPT, WEIGHTS, 0), "dropout rescales: with dropout 0.25 kept weights are 1 of"),
        (np.where(KEPT, 2 * WEIGHTS, 0), "dropout rescales: with dropout 0.25 kept weights are 2"),
        (
            np.where(KEPT, WEIGHTS, 0) / np.where(KEPT, WEIGHTS, 0).sum(axis=-1, keepdims=True),
            "dropout after the softmax: ",
        ),
        (np.where(KEPT, OTHERS / (1 - P), 0), "weights in training: the weights that dropout 0.25"),
    ],
)
def test_a_wrong_factor_is_named(dropped: Array, name: str) -> None:
    """Sums of rows that stay say that logits were dropped; else the factor is said, if it is one.

    Kills a factor that is the median of unlike ones.
    """
    held, finding = said(trained(dropped))
    assert "dropout on the weights" == held
    assert finding.startswith(name), finding


def test_rows_whose_logits_are_all_dropped_say_nothing() -> None:
    """They are NaN; the sums of the others decide."""
    kept = np.where(KEPT, WEIGHTS, 0)
    dropped = kept / kept.sum(axis=-1, keepdims=True)
    dropped[0, 0, 0] = np.nan
    answer = TrainingModeAnswer(
        PROBLEM, Answer(output=output(WEIGHTS)), Answer(output=output(dropped))
    )
    assert dropout.wrong_factor(answer).startswith("dropout after the softmax: ")


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.23, 0.25, 0.27, 0.3, 0.75, 1.0])
def test_a_rate_is_wrong_where_it_is_too_improbable(rate: float) -> None:
    """Of 6400 weights a share between 0.23 and 0.27 is chance, one of 0.2 or 0.3 is none."""
    count = WEIGHTS.size
    dropped = (np.arange(count).reshape(WEIGHTS.shape) * 7919 % count) < rate * count
    assert dropped.sum() / count == pytest.approx(rate, abs=1e-3)
    (*_, last) = said(trained(np.where(dropped, 0, WEIGHTS / (1 - P))))
    wrong = rate not in {0.23, 0.25, 0.27}
    expected = f"dropout rate: {dropped.sum()} of {count} weights are dropped, but 0.25 is the"
    assert last.startswith(expected) if wrong else last == "dropout rate"


@pytest.mark.parametrize(("off", "readable"), [(0.9, True), (1.1, False)])
def test_an_output_shows_weights_up_to_another_order_of_sums(off: float, readable: bool) -> None:
    """Halves alike, no weight negative, sums of 1, these up to a rounding of each of S weights.

    Kills the number of halves taken for that of keys.
    """

    def shows(first: Array, second: Array | None = None) -> bool:
        clean = Answer(output=output(first, second))
        return TrainingModeAnswer(PROBLEM, clean, clean).readable

    assert shows(WEIGHTS)
    by = np.zeros_like(WEIGHTS)
    by[1, 0, 3, 4] = off * ATOL
    assert shows(WEIGHTS, WEIGHTS + by) is readable
    assert shows(WEIGHTS + off * ATOL) is readable
    negative = WEIGHTS.copy()
    negative[1, 0, 3, 5] += negative[1, 0, 3, 4] + off * ATOL
    negative[1, 0, 3, 4] = -off * ATOL
    assert shows(negative) is readable
