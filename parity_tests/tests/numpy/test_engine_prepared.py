"""A prepared layer computes what the layer computes, the short way and the layer's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mha_numpy import MultiheadAttention

# (N, L, E, H): the last of the short ones has too many rows for one product.
SHORT = [(1, 5, 6, 3), (3, 7, 15, 5), (2, 17, 33, 3)]
LONG = [(1, 67, 6, 3), (2, 11, 264, 3)]


def layer(embed_dim: int, num_heads: int, dtype: Any = np.float32, **options: Any) -> Any:
    """Return a layer with biases everywhere."""
    rng = np.random.default_rng(3)
    one = MultiheadAttention(embed_dim, num_heads, dtype=dtype, rng=rng, **options)
    for name, array in one.state_dict().items():
        if "bias" in name:
            one.load_state_dict({name: rng.standard_normal(array.shape)}, strict=False)
    return one.eval()


def inputs(n: int, length: int, width: int, dtype: Any = np.float32) -> NDArray[Any]:
    """Return random x (N, L, E)."""
    return np.random.default_rng(5).standard_normal((n, length, width)).astype(dtype)


def assert_close_in_rounding(
    actual: NDArray[Any], one: Any, x: NDArray[Any], *, reach: float = 1.0, **masks: Any
) -> None:
    """Compare with the same layer in float64.

    A hundred roundings of the largest number on the way: sums over E and L of random signs grow
    as square roots, below 11 here, over four products. exp turns roundings of logits as large as
    `reach` into as many of its own.
    """
    exact_layer = MultiheadAttention(
        one.embed_dim, one.num_heads, batch_first=one.batch_first, dtype=np.float64
    ).eval()
    exact_layer.load_state_dict(one.state_dict())
    doubles = x.astype(np.float64)
    exact, _ = exact_layer(doubles, doubles, doubles, need_weights=False, **masks)
    allowed = 100 * np.finfo(actual.dtype).eps * max(np.abs(exact).max(), 1) * reach
    assert actual.shape == exact.shape
    assert actual.dtype == x.dtype
    assert np.abs(actual - exact).max() <= allowed


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("sizes", SHORT + LONG)
def test_equals_the_layer(sizes: tuple[int, ...], batch_first: bool, dtype: Any) -> None:
    """Both ways give the layer's function up to rounding, in both layouts and dtypes."""
    n, length, width, heads = sizes
    one = layer(width, heads, dtype, batch_first=batch_first)
    x = inputs(n, length, width, dtype)
    x = x if batch_first else np.ascontiguousarray(x.swapaxes(0, 1))
    assert_close_in_rounding(one.prepare()(x, x, x), one, x)


@pytest.mark.parametrize(("n", "length"), [(0, 5), (2, 0), (0, 0)])
def test_nothing_in_nothing_out(n: int, length: int) -> None:
    """No samples or an empty sequence are computed as the layer does: an output without numbers."""
    one, x = layer(6, 3, np.float32), inputs(n, length, 6)
    expected, _ = one(x, x, x, need_weights=False)
    found = one.prepare()(x, x, x)
    assert (n, length, 6) == expected.shape == found.shape
    assert expected.dtype == found.dtype


@pytest.mark.parametrize(
    ("sizes", "short"), [(s, True) for s in SHORT] + [(s, False) for s in LONG]
)
def test_small_problems_take_the_short_way(sizes: tuple[int, ...], short: bool) -> None:
    """Few scores and narrow layers do, others do not."""
    n, length, width, heads = sizes
    prepared = layer(width, heads, batch_first=True).prepare()
    assert short == prepared._fits(inputs(n, length, width))


def test_a_wrong_layer_is_detected() -> None:
    """The comparison fails for a prepared layer whose output's bias is off by a thousandth."""
    one = layer(6, 3, batch_first=True)
    x = inputs(2, 5, 6)
    wrong = one.prepare()(x, x, x) + np.float32(1e-3)
    with pytest.raises(AssertionError):
        assert_close_in_rounding(wrong, one, x)


def test_shapes_may_alternate() -> None:
    """What the tiny way keeps of the last shape is not taken for another one."""
    prepared = layer(6, 3, batch_first=True).prepare()
    some = [inputs(n, length, 6) for n, length in ((1, 5), (2, 5), (1, 4), (5, 1))]
    separate = [layer(6, 3, batch_first=True).prepare()(x, x, x) for x in some]
    for _ in range(2):
        for x, expected in zip(some, separate, strict=True):
            np.testing.assert_array_equal(expected, prepared(x, x, x))


@pytest.mark.parametrize("size", [0.1, 30.0])
def test_large_scores_take_the_maximum(size: float) -> None:
    """Scores in the thousands come out right."""
    one = layer(6, 3, np.float64, batch_first=True)
    x = size * inputs(2, 5, 6, np.float64)
    assert_close_in_rounding(one.prepare()(x, x, x), one, x, reach=max(size * size, 1))


@pytest.mark.parametrize("which", ["key_padding_mask", "attn_mask"])
def test_masks_take_the_ordinary_way(which: str) -> None:
    """With masks the prepared layer answers as the layer does, rows without a key included."""
    one = layer(6, 3, batch_first=True)
    x = inputs(2, 5, 6)
    mask = np.array([[False] * 5, [True] * 5]) if which == "key_padding_mask" else np.tri(5) == 0
    expected, _ = one(x, x, x, need_weights=False, **{which: mask})
    actual = one.prepare()(x, x, x, **{which: mask})
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    "options", [{"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 4, "vdim": 9}]
)
def test_other_layers_take_the_ordinary_way(options: dict[str, Any]) -> None:
    """Appended keys and other widths answer as the layer does."""
    one = layer(6, 3, batch_first=True, **options)
    query = inputs(2, 5, 6)
    key, value = inputs(2, 7, one.kdim), inputs(2, 7, one.vdim)
    expected, _ = one(query, key, value, need_weights=False)
    np.testing.assert_array_equal(one.prepare()(query, key, value), expected)


def test_it_keeps_copies() -> None:
    """What happens to the layer afterwards does not reach the prepared one."""
    one = layer(6, 3, batch_first=True)
    x = inputs(2, 5, 6)
    prepared = one.prepare()
    expected = prepared(x, x, x)
    for array in (one.in_proj_weight, one.in_proj_bias, one.out_proj.weight, one.out_proj.bias):
        array[...] = 0
    np.testing.assert_array_equal(prepared(x, x, x), expected)


def test_it_refuses_what_the_layer_refuses() -> None:
    """A width that does not fit is refused in the layer's own words."""
    one = layer(6, 3, batch_first=True)
    x = inputs(2, 5, 7)
    with pytest.raises(ValueError, match=r"`query` has shape \(2, 5, 7\)"):
        one.prepare()(x, x, x)


@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True}, {"kdim": 7}])
def test_a_layer_that_is_not_laid_out_computes_as_the_layer(options: dict[str, int]) -> None:
    """Large layers, appended keys and separate projections take the layer's way."""
    one = MultiheadAttention(320, 4, batch_first=True, **options)  # type: ignore[arg-type]  # by name
    x = np.random.default_rng(1).standard_normal((2, 3, 320), dtype=np.float32)
    key = x[..., :7] if "kdim" in options else x
    expected, _ = one.eval()(x, key, x, need_weights=False)
    np.testing.assert_array_equal(one.prepare()(x, key, x), expected)
