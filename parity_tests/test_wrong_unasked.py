"""Bugs that no case asks for are wrong all the same: each departs on the input it is about."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.candidate import CandidateError
from mha_parity.case import Case
from mha_parity.making import make
from mha_parity.wrong import catalogue
from mha_parity.wrong.plain import Attention, attend

CASE = Case(
    seed=3, batch=2, queries=5, keys=7, heads_count=3, head_dim=4, inputs="distinct",
    weights="per_head",
)  # fmt: skip
UNASKED = (
    "weights-before-dropout", "int-truncation", "heads-not-dividing", "kv-length-mismatch",
    "grad-nan-masked-row",
)  # fmt: skip


def test_all_of_them_are_tested_here() -> None:
    """Every entry that the cases cannot show, but for the rare overflow, has a test below."""
    beyond = {bug.id for bug in catalogue().values() if bug.beyond is not None}
    assert beyond - {"f16-qk-overflow"} == set(UNASKED)


def test_weights_before_dropout_are_not_what_the_values_met() -> None:
    """With dropout the output is of other weights than those returned, whose rows sum to 1."""
    kind = catalogue()["weights-before-dropout"].kinds[0]
    dropping = type("Dropping", (kind,), {"dropout": 0.5})
    problem = make(CASE)
    right, wrong = attend(Attention, problem), attend(dropping, problem)
    assert wrong.weights is not None
    np.testing.assert_allclose(wrong.weights.sum(axis=-1), 1, rtol=8 * np.finfo(float).eps)
    assert np.abs(wrong.output - right.output).max() > 0.1 * np.abs(right.output).max()


def test_integers_cut_the_weights_down() -> None:
    """From integer inputs all weights below 1 become 0."""
    problem = make(CASE)
    whole = {name: np.ones_like(getattr(problem, name), np.int64) for name in ("query", "key")}
    kind = catalogue()["int-truncation"].kinds[0]
    found = kind(problem.replace(**whole)).softmax(np.zeros((1, 1, 5, 7)))
    assert found.max() == 0


def test_channels_that_the_heads_do_not_divide_are_dropped() -> None:
    """Of 14 channels in 3 heads the last two are never read."""
    kind = catalogue()["heads-not-dividing"].kinds[0]
    rows = np.arange(2 * 5 * 14.0).reshape(2, 5, 14)
    split = kind(make(CASE)).split(rows, 3)
    assert split.shape == (2, 3, 5, 4)
    assert not np.isin(rows[..., 12:], split).any()


def test_keys_shorter_than_values_are_answered() -> None:
    """Keys and values of different length, which the right one refuses, get an answer."""
    problem = make(CASE)
    apart = problem.replace(key=problem.key[:, :4])
    kind = catalogue()["kv-length-mismatch"].kinds[0]
    assert attend(kind, apart).output.shape == problem.output_shape
    with pytest.raises((CandidateError, ValueError)):
        attend(Attention, apart)


def test_a_masked_row_turns_weight_gradients_nan() -> None:
    """With a row that sees no key gradients of in_proj are NaN; those of the right one are not."""
    problem = make(CASE.replace(attn="bool2d", masked_rows="some", gradients="yes"))
    assert np.asarray(problem.masked_rows()).any()
    found = catalogue()["grad-nan-masked-row"].attend(problem).gradients
    assert found is not None
    assert np.isnan(found["in_proj_weight"]).any()
