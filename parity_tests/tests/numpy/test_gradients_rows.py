"""Rows without a key, dropout, repeated pulls, arrays left alone, and refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from mha_numpy import MultiheadAttention, scaled_dot_product_attention_vjp

N, L, E, H = 2, 5, 12, 3
EPS = 2.0**-52
WAYS = [("flash", False), ("flash", True), ("plain", False), ("plain", True)]
each_way = pytest.mark.parametrize(("engine", "need_weights"), WAYS)


def drawn(seed: int, **options: Any) -> tuple[MultiheadAttention, Any, Any]:
    """A layer in float64, an input and a cotangent."""
    rng = np.random.default_rng(seed)
    layer = MultiheadAttention(E, H, dtype=np.float64, batch_first=True, rng=rng, **options)
    return layer, rng.standard_normal((N, L, E)), rng.standard_normal((N, L, E))


def hiding(row: int) -> Any:
    """A boolean mask (L, L) that hides all keys from one query."""
    mask = np.zeros((L, L), bool)
    mask[row] = True
    return mask


@each_way
def test_a_row_without_a_key_poisons_nothing(engine: str, need_weights: bool) -> None:
    """All gradients are those of the other queries alone; torch's are NaN where weights are held.

    Float64, the same sums with some zeros more: a hundred roundings of numbers of order 10.
    """
    layer, x, given = drawn(3, engine=engine)
    mask = hiding(2)
    (output, _), pull = layer.vjp(x, x, x, need_weights=need_weights, attn_mask=mask)
    found = pull(given)
    others = [row for row in range(L) if row != 2]
    _, pull_others = layer.vjp(x[:, others], x, x, need_weights=False, attn_mask=mask[others])
    expected = pull_others(given[:, others])
    assert need_weights == np.isnan(output[:, 2]).all()
    assert not found["query"][:, 2].any()
    found["query"] = found["query"][:, others]
    expected["out_proj.bias"] = given.sum(axis=(0, 1))
    for name, gradient in expected.items():
        assert np.abs(gradient - found[name]).max() <= 1000 * EPS


@pytest.mark.parametrize("average", [True, False], ids=["averaged", "per head"])
def test_flash_gives_what_the_plain_engine_does(average: bool) -> None:
    """Both engines return the same weights and pull them alike, a row without a key included."""
    options: Any = {"attn_mask": hiding(2), "average_attn_weights": average}
    answers = []
    for engine in ("plain", "flash"):
        layer, x, given = drawn(8, engine=engine)
        (output, weights), pull = layer.vjp(x, x, x, **options)
        assert weights is not None
        found = pull(given, np.ones_like(weights) + np.arange(L))
        answers.append([output, weights, *found.values()])
    for plain, flash in zip(*answers, strict=True):
        assert np.allclose(plain, flash, rtol=0, atol=100 * EPS, equal_nan=True)
    assert np.isnan(answers[1][1]).any()


@each_way
@pytest.mark.parametrize("average", [True, False], ids=["averaged", "per head"])
def test_layouts_hold_the_same_numbers(engine: str, need_weights: bool, average: bool) -> None:
    """Sequence first and unbatched are batch first, hidden rows and weights included."""
    layer, x, given = drawn(9, engine=engine)
    turned, *_ = drawn(9, engine=engine)
    turned.batch_first = False
    x, given = x[:1], given[:1]
    padding = np.arange(L)[None] > 3
    options: Any = {"need_weights": need_weights, "average_attn_weights": average}
    options["attn_mask"] = hiding(2)
    cut: list[tuple[MultiheadAttention, Callable[[Any], Any]]] = [
        (layer, lambda array: array),
        (layer, lambda array: array[0]),
        (turned, lambda array: array.swapaxes(0, 1)),
    ]
    answers = []
    for own, laid in cut:
        mask = padding[0] if laid(x).ndim == 2 else padding
        (output, weights), pull = own.vjp(laid(x), laid(x), laid(x), mask, **options)
        found = pull(laid(given), None if weights is None else np.ones_like(weights) * np.arange(L))
        sequences = [np.ravel(found[name]) for name in ("query", "key", "value")]
        answers.append([np.ravel(output), *sequences, found["in_proj_weight"]])
    # Not to the bit: where arrays begin in memory decides the order in which BLAS sums.
    for first, *others in zip(*answers, strict=True):
        for other in others:
            assert np.allclose(first, other, rtol=0, atol=100 * EPS, equal_nan=True)


def test_torch_poisons_all_rows() -> None:
    """What the docstring says of torch is so: one hidden row, and the others' gradients are NaN."""
    theirs = torch.nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64)
    x = torch.ones((N, L, E), dtype=torch.float64, requires_grad=True)
    output, _ = theirs(x, x, x, attn_mask=torch.from_numpy(hiding(2)))
    output[:, :2].sum().backward()
    assert x.grad is not None
    assert x.grad[:, 0].isnan().all()


@each_way
def test_results_are_those_of_forward(engine: str, need_weights: bool) -> None:
    """`vjp` returns what `forward` returns, NaN and all, in the mean over the heads or not."""
    layer, x, _ = drawn(4, engine=engine, add_bias_kv=True)
    for average in (True, False):
        options: Any = {"need_weights": need_weights, "average_attn_weights": average}
        (output, weights), _ = layer.vjp(x, x, x, attn_mask=hiding(1), **options)
        wanted, wanted_weights = layer(x, x, x, attn_mask=hiding(1), **options)
        assert np.allclose(wanted, output, rtol=0, atol=100 * EPS, equal_nan=True)
        assert (wanted_weights is None) == (weights is None)
        if weights is not None and wanted_weights is not None:
            assert np.allclose(wanted_weights, weights, rtol=0, atol=10 * EPS, equal_nan=True)


@each_way
def test_nothing_given_is_written_to(engine: str, need_weights: bool) -> None:
    """Read-only arrays will do, and a second pull returns the same bits, whatever was done since.

    The caller may write into output, weights and gradients: none is shared with `pull`.
    """
    rng = np.random.default_rng(5)
    layer, x, given = drawn(5, engine=engine, add_zero_attn=True)
    masks = {"attn_mask": rng.standard_normal((L, L)), "key_padding_mask": rng.random((N, L)) < 0.3}
    for array in (x, given, *masks.values(), *layer.named_arrays().values()):
        array.flags.writeable = False
    options: Any = {"need_weights": need_weights, "average_attn_weights": False, **masks}
    results, pull = layer.vjp(x, x, x, **options)
    of_weights = None if results[1] is None else rng.standard_normal(results[1].shape)
    first = pull(given, of_weights)
    kept = {name: gradient.copy() for name, gradient in first.items()}
    for array in (*results, *first.values()):
        if array is not None:
            array[...] = 7
    second = pull(given, of_weights)
    assert {True} == {np.array_equal(gradient, second[name]) for name, gradient in kept.items()}


def dropping_sdpa(x: Any, seed: int) -> tuple[Any, Callable[..., Any]]:
    """The attention with dropout from a seeded generator."""
    return scaled_dot_product_attention_vjp(x, x, x, dropout_p=0.4, rng=np.random.default_rng(seed))


def test_pull_drops_what_was_dropped() -> None:
    """With dropout the gradient is the slope of the function with those weights dropped.

    The central difference with step 1e-6 errs by 1e-12 of the third derivative and by some
    roundings / 1e-6, 1e-9 together; other weights dropped make a difference of order 1.
    """
    rng = np.random.default_rng(6)
    x, direction = rng.standard_normal((2, 1, 3, L, 4))
    output, pull = dropping_sdpa(x, seed=1)
    given = rng.standard_normal(output.shape)
    ahead, behind = (dropping_sdpa(x + h * direction, seed=1)[0] for h in (1e-6, -1e-6))
    slope = ((ahead - behind) * given).sum() / 2e-6
    found = sum((gradient * direction).sum() for gradient in pull(given).values())
    other = sum((g * direction).sum() for g in dropping_sdpa(x, seed=2)[1](given).values())
    assert abs(slope - found) < 1e-8
    assert abs(slope - other) > 1e-8


def test_dropout_of_the_layer_stops_with_eval() -> None:
    """In training each call has gradients of its own, in evaluation they are the clean ones."""
    layer, x, given = drawn(7, dropout=0.4)
    first, second = (layer.vjp(x, x, x)[1](given)["value"] for _ in range(2))
    assert np.abs(first - second).max() > 1e-3
    layer.eval()
    clean, again = (layer.vjp(x, x, x)[1](given)["value"] for _ in range(2))
    assert np.array_equal(clean, again)


X = np.ones((N, L, E), np.float32)
LAYER = MultiheadAttention(E, H, batch_first=True)
DROPS = MultiheadAttention(E, H, dropout=0.5, batch_first=True, engine="flash")
PULL, PULL_WITHOUT = LAYER.vjp(X, X, X)[1], LAYER.vjp(X, X, X, need_weights=False)[1]
PULL_CORE = scaled_dot_product_attention_vjp(X, X, X)[1]
WEIGHTS = np.ones((N, L, L), np.float32)
REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: PULL(X[0]), ValueError, r"`output_cotangent` has shape (5, 12), but should have"),
    (lambda: PULL(X.astype(float)), TypeError, "`output_cotangent` has dtype float64, but should"),
    (lambda: PULL(X.astype(int)), TypeError, "`output_cotangent` has dtype int64, but should be"),
    (lambda: PULL(None), TypeError, "`output_cotangent` has dtype object"),
    (lambda: PULL(X, X), ValueError, r"`weights_cotangent` has shape (2, 5, 12), but should have"),
    (lambda: PULL(X, WEIGHTS.astype(float)), TypeError, "`weights_cotangent` has dtype float64"),
    (lambda: PULL_WITHOUT(X, WEIGHTS), ValueError, "`weights_cotangent` is given, but no weights"),
    (lambda: PULL_CORE(X[:, 1:]), ValueError, r"`cotangent` has shape (2, 4, 12), but should have"),
    (lambda: PULL_CORE(X.astype(float)), TypeError, "`cotangent` has dtype float64, but should"),
    (lambda: DROPS.vjp(X, X, X), ValueError, "`engine` is 'flash', but dropout needs all"),
    (lambda: LAYER.vjp(X, X, X, is_causal=True), ValueError, "`is_causal` is True and"),
    (lambda: LAYER.vjp(X, X[:1], X), ValueError, "`value` has shape (2, 5, 12) and `key` has"),
    (
        lambda: scaled_dot_product_attention_vjp(X, X, X, dropout_p=0.5),
        ValueError,
        "`dropout_p` is 0.5 and `rng` is None",
    ),
]


@pytest.mark.parametrize(
    ("call", "error", "message"), REFUSED, ids=[f"{row[2][:60]}" for row in REFUSED]
)
def test_bad_input_is_refused(call: Callable[[], Any], error: Any, message: str) -> None:
    """Each wrong call is refused in one sentence that names the argument and what it got."""
    with pytest.raises(error, match=re.escape(message)):
        call()


@pytest.mark.parametrize("engine", ["plain", "flash"])
def test_a_hidden_score_that_overflows_leaves_gradients_finite(engine: str) -> None:
    """The largest score that is seen is 0, the zero key's, and exp of the hidden one is inf."""
    q, v = np.ones((1, 1, 4, 2)), np.ones((1, 1, 3, 2))
    k = np.array([[4000.0, 4000.0], [0.0, 0.0], [-9.0, -9.0]])[None, None]
    seen = np.array([[False, True, True]] * 4)  # as F.scaled_dot_product_attention has it
    output, pull = scaled_dot_product_attention_vjp(q, k, v, attn_mask=seen, engine=engine)
    assert np.isfinite(output).all()
    found = pull(np.ones_like(output))
    assert {True} == {bool(np.isfinite(each).all()) for each in found.values()}
