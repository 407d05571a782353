"""What can be said of dropout without torch's random numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import mha_numpy
from mha_numpy import scaled_dot_product_attention

X = np.random.default_rng(0).standard_normal((7, 2, 6))


def layer(dropout: float, **options: Any) -> mha_numpy.MultiheadAttention:
    """A layer whose parameters come from one seed, and its dropout from the state left by it."""
    rng = np.random.default_rng(5)
    return mha_numpy.MultiheadAttention(6, 3, dropout, dtype=np.float64, rng=rng, **options)


def per_head(dropping: mha_numpy.MultiheadAttention) -> Any:
    """The weights of every head."""
    return dropping(X, X, X, average_attn_weights=False)[1]


def test_weights_are_dropped_or_scaled() -> None:
    """Each weight returned in training is 0 or the clean one divided by 1 - p."""
    clean, dropped = per_head(layer(0.0)), per_head(layer(0.4))
    kept = dropped != 0
    assert 0 < kept.mean() < 1
    assert np.allclose(clean[kept] / 0.6, dropped[kept], rtol=4 * np.finfo(np.float64).eps, atol=0)


def test_output_is_made_of_the_dropped_weights() -> None:
    """The weights returned are the ones that mixed the values."""
    dropping = layer(0.4)
    output, weights = dropping(X, X, X, average_attn_weights=False)
    state = dropping.state_dict()
    values = (X @ state["in_proj_weight"][12:].T).reshape(7, 2, 3, 2).transpose(1, 2, 0, 3)
    assert weights is not None
    mixed = (weights @ values).transpose(2, 0, 1, 3).reshape(7, 2, 6) @ state["out_proj.weight"].T
    assert np.allclose(mixed, output, rtol=0, atol=100 * np.finfo(np.float64).eps)


def test_mean_over_many_draws_is_the_clean_answer() -> None:
    """Dropout leaves the expected weight as it is: the mean of n draws is within 5 sigma."""
    clean, dropping = per_head(layer(0.0)), layer(0.3)
    draws = 2000
    mean = sum(per_head(dropping) for _ in range(draws)) / draws
    sigma = clean * math.sqrt(0.3 / 0.7 / draws)
    assert np.all(np.abs(mean - clean) <= 5 * sigma)
    assert not np.all(np.abs(0.7 * mean - clean) <= 5 * sigma), "an unscaled drop passes"


def test_share_of_dropped_weights_is_p() -> None:
    """The share of zeros is p within 5 sigma."""
    dropping = layer(0.3)
    dropped = np.concatenate([per_head(dropping) for _ in range(20)])
    share, count = np.mean(dropped == 0), dropped.size
    assert abs(share - 0.3) <= 5 * math.sqrt(0.3 * 0.7 / count)


@pytest.mark.parametrize("need_weights", [True, False])
def test_eval_mode_ignores_dropout(need_weights: bool) -> None:
    """In eval mode the answer is the clean one, twice, and the generator is not touched."""
    clean, quiet = layer(0.0).eval(), layer(0.9).eval()
    before = quiet.rng.bit_generator.state
    expected, _ = clean(X, X, X, need_weights=need_weights)
    for _ in range(2):
        actual, _ = quiet(X, X, X, need_weights=need_weights)
        assert np.array_equal(expected, actual)
    assert before == quiet.rng.bit_generator.state
    assert quiet.train().training


@pytest.mark.parametrize("need_weights", [True, False])
def test_training_drops_with_and_without_weights(need_weights: bool) -> None:
    """Both kinds of call drop: two calls in a row differ, and the same seed repeats them."""
    one, same = layer(0.5), layer(0.5)
    first, _ = one(X, X, X, need_weights=need_weights)
    second, _ = one(X, X, X, need_weights=need_weights)
    again, _ = same(X, X, X, need_weights=need_weights)
    assert not np.array_equal(first, second)
    assert np.array_equal(first, again)


def test_dropping_everything_gives_the_output_bias() -> None:
    """With p = 1 all weights are 0, and no NaN comes of dividing by 1 - p."""
    dropping = layer(1.0)
    dropping.load_state_dict(dropping.state_dict() | {"out_proj.bias": np.arange(6.0)})
    output, weights = dropping(X, X, X)
    assert np.array_equal(np.broadcast_to(np.arange(6.0), output.shape), output)
    assert not np.any(weights)


def test_function_drops_with_the_generator_given() -> None:
    """scaled_dot_product_attention always drops, and repeats itself for the same seed."""
    q = np.random.default_rng(1).standard_normal((2, 3, 5, 4))
    clean = scaled_dot_product_attention(q, q, q)
    one, same = (
        scaled_dot_product_attention(q, q, q, dropout_p=0.5, rng=np.random.default_rng(2))
        for _ in range(2)
    )
    assert not np.array_equal(clean, one)
    assert np.array_equal(one, same)
    everything = scaled_dot_product_attention(q, q, q, dropout_p=1.0, rng=np.random.default_rng(2))
    assert not np.any(everything)
