"""The textbook forms agree with each other and keep what they promise about dtypes and inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mha_numpy.textbook import keep_mask, packed, projected, valid_lens

Array: TypeAlias = npt.NDArray[Any]
Weighted: TypeAlias = tuple[Array, list[Array]]
EPS = float(np.finfo(float).eps)

small = st.integers(1, 7)
seeds = st.integers(0, 2**32 - 1)


def allowed(q: Array, k: Array, v: Array, head_dim: int, inner: int = 0) -> float:
    """Bound the difference by rounding alone of two outputs from the same inputs.

    A logit rounds each of its terms D + 2 times, and twice `inner` times more where q and k are
    bounds of products over `inner` features. A softmax of logits wrong by d has weights wrong by
    a factor of exp(2 d) at most, the mixing rounds S + inner + 3 times, and two such computations
    differ by twice that.
    """
    logits = (np.abs(q) @ np.abs(k).T).max(initial=0.0) / np.sqrt(head_dim)
    error = (head_dim + 2 + 2 * inner) * EPS / 2 * logits
    mixing = (k.shape[0] + inner + 3) * EPS / 2
    return float(2 * (np.expm1(2 * error) + mixing) * np.abs(v).max(initial=0.0))


def far(expected: Array, actual: Array) -> float:
    """Return the largest difference; shapes must be equal."""
    assert expected.shape == actual.shape
    return float(np.abs(expected - actual).max(initial=0.0))


@given(small, small, small, small, small, seeds)
def test_the_loop_over_heads_equals_all_heads_at_once(
    L: int, S: int, H: int, D: int, Dv: int, seed: int
) -> None:
    """For any sizes, cross-attention and a value width of its own included."""
    rng = np.random.default_rng(seed)
    q, k = 3 * rng.standard_normal((L, H * D)), rng.standard_normal((S, H * D))
    v = rng.standard_normal((S, H * Dv))
    expected = projected.multi_head_attention_loop(q, k, v, H)
    actual = projected.multi_head_attention(q, k, v, H)
    assert (L, H * Dv) == actual.shape
    assert far(expected, actual) <= allowed(q, k, v, D)


@given(small, small, small, small, seeds)
def test_packed_forms_equal_projecting_first(L: int, E: int, H: int, D: int, seed: int) -> None:
    """`compute_qkv` and the projected form, the packed one, and its loop are one function."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((L, E))
    wq, wk, wv = rng.standard_normal((3, E, H * D))
    q, k, v = np.abs(x) @ np.abs(np.stack([wq, wk, wv]))
    bound = allowed(q, k, v, D, E)
    expected = projected.multi_head_attention(*projected.compute_qkv(x, wq, wk, wv), H)
    batched, batched_weights = packed.multi_head_attention(x, wq, wk, wv, H)
    looped, looped_weights = packed.multi_head_attention_loop(x, wq, wk, wv, H)
    assert max(far(expected, batched), far(expected, looped)) <= bound
    # With the identity for values the output is the weights: the bound for v = 1 is theirs.
    bound = allowed(q, k, np.ones(1), D, E)
    assert far(np.stack(looped_weights), np.stack(batched_weights)) <= bound


@given(small, small, small, seeds)
def test_one_head_is_self_attention(L: int, S: int, D: int, seed: int) -> None:
    """`self_attention` is softmax(Q K^T / sqrt(D)) V, written out."""
    rng = np.random.default_rng(seed)
    q, k, v = rng.standard_normal((L, D)), rng.standard_normal((S, D)), rng.standard_normal((S, 3))
    powers = np.exp(q @ k.T / np.sqrt(D))
    expected = powers / powers.sum(axis=1, keepdims=True) @ v
    assert far(expected, projected.self_attention(q, k, v)) <= allowed(q, k, v, D)


def test_the_bound_catches_wrong_scales_and_heads() -> None:
    """A scale by the model's width and heads in another order are far above what is allowed."""
    q, k, v = np.random.default_rng(2).standard_normal((3, 5, 6))
    right, bound = projected.multi_head_attention(q, k, v, 3), allowed(q, k, v, 2)
    wrong_scale = projected.multi_head_attention(q / np.sqrt(3), k, v, 3)
    wrong_heads = projected.multi_head_attention(q[:, ::-1], k, v, 3)
    assert min(far(right, wrong_scale), far(right, wrong_heads)) > bound


def forms(x: Array, w: Array) -> dict[str, Callable[[], Array]]:
    """Return every form on a sequence (L, E) with one weight matrix (E, E) everywhere, 2 heads."""
    lengths = valid_lens.MultiHeadAttention(x.shape[1], 2)
    for letter in "qkvo":
        setattr(lengths, f"W_{letter}", w)
        setattr(lengths, f"b_{letter}", w[0])
    masks: list[keep_mask.MultiHeadAttention] = []
    for kind in (keep_mask.MultiHeadAttention, keep_mask.EfficientMultiHeadAttention):
        masks.append(kind(x.shape[1], 2))
        for letter in "QKVO":
            setattr(masks[-1], f"W_{letter}", w)
    return {
        "compute_qkv": lambda: projected.compute_qkv(x, w, w, w)[0],
        "projected.self_attention": lambda: projected.self_attention(x, x, x),
        "projected.multi_head_attention": lambda: projected.multi_head_attention(x, x, x, 2),
        "projected.loop": lambda: projected.multi_head_attention_loop(x, x, x, 2),
        "packed.self_attention": lambda: packed.self_attention(x, w, w, w)[0],
        "packed.multi_head_attention": lambda: packed.multi_head_attention(x, w, w, w, 2)[0],
        "packed.loop": lambda: packed.multi_head_attention_loop(x, w, w, w, 2)[0],
        "valid_lens": lambda: lengths.forward(x[None], x[None], x[None], [3])[0],
        "keep_mask": lambda: masks[0].forward(x, np.tri(len(x)))[0],
        "keep_mask.Efficient": lambda: masks[1].forward(x, np.tri(len(x)))[0],
    }


NAMES = list(forms(np.ones((5, 4)), np.ones((4, 4))))
each_form = pytest.mark.parametrize("form", NAMES)


def example(dtype: npt.DTypeLike) -> tuple[Array, Array]:
    """Return a sequence (5, 4) and a weight matrix (4, 4)."""
    rng = np.random.default_rng(13)
    x, w = rng.standard_normal((5, 4)), rng.standard_normal((4, 4))
    return (2 * x).astype(dtype), w.astype(dtype)


@each_form
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_dtype_that_comes_in_goes_out(form: str, dtype: npt.DTypeLike) -> None:
    """Every form returns the dtype of its inputs, half precision among them."""
    expected = np.dtype(dtype)
    actual = forms(*example(dtype))[form]().dtype
    assert expected == actual


@each_form
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_rounded_once(form: str, dtype: npt.DTypeLike) -> None:
    """Half precision gives what float32 gives for the same numbers, rounded at the end."""
    x, w = example(dtype)
    expected = forms(x.astype(np.float32), w.astype(np.float32))[form]().astype(dtype)
    actual = forms(x, w)[form]()
    np.testing.assert_array_equal(actual, expected)


@each_form
def test_integers_become_float64(form: str) -> None:
    """Integers are never the dtype of a result, nor truncated to on the way."""
    x, w = example(np.int64)
    expected = forms(x.astype(float), w.astype(float))[form]()
    actual = forms(x, w)[form]()
    assert actual.dtype == np.float64
    np.testing.assert_array_equal(actual, expected)


@each_form
def test_inputs_are_not_modified(form: str) -> None:
    """Arrays that cannot be written to are good enough, and give the same."""
    x, w = example(np.float64)
    expected = forms(x.copy(), w.copy())[form]()
    x.flags.writeable = w.flags.writeable = False
    actual = forms(x, w)[form]()
    np.testing.assert_array_equal(actual, expected)


@each_form
@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_what_is_no_number_goes_through_without_a_warning(form: str, special: float) -> None:
    """NaN and infinity in the first token reach its row of the output, as in torch."""
    x, w = example(np.float64)
    x[0] = special
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = forms(x, w)[form]()
    assert not np.isfinite(result[0]).any()
