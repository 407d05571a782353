"""Dtypes, memory layouts and ownership: what comes in, what goes out, what is left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import torch

import mha_numpy
from mha_numpy import multi_head_attention_forward, scaled_dot_product_attention

if TYPE_CHECKING:
    from collections.abc import Callable

PRECISIONS = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
RNG = np.random.default_rng(0)
Q, K, V = (RNG.standard_normal((2, 3, *shape)) for shape in ((5, 4), (7, 4), (7, 6)))
X, Y = RNG.standard_normal((5, 2, 6)), RNG.standard_normal((7, 2, 6))


def new_layer(dtype: Any = np.float64, **options: Any) -> mha_numpy.MultiheadAttention:
    """A layer whose parameters come from one seed."""
    return mha_numpy.MultiheadAttention(6, 3, dtype=dtype, rng=np.random.default_rng(1), **options)


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("need_weights", [True, False])
def test_output_has_the_inputs_dtype(name: str, need_weights: bool) -> None:
    """Output and weights come in the dtype that went in, whatever it was computed in."""
    dtype = PRECISIONS[name]
    x, y = X.astype(dtype), Y.astype(dtype)
    output, weights = new_layer(name)(x, y, y, need_weights=need_weights)
    assert dtype == output.dtype
    assert weights is None or dtype == weights.dtype
    heads = (Q.astype(dtype), K.astype(dtype), V.astype(dtype))
    assert dtype == scaled_dot_product_attention(*heads).dtype


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32_and_rounded_once(name: str) -> None:
    """The answer is float32's on the same numbers, rounded once at the end."""
    dtype = PRECISIONS[name]
    half = new_layer(name)
    wide = new_layer(np.float32)
    wide.load_state_dict(half.state_dict())
    x, y = X.astype(dtype), Y.astype(dtype)
    expected = wide(x.astype(np.float32), y.astype(np.float32), y.astype(np.float32))
    actual = half(x, y, y)
    for want, result in zip(expected, actual, strict=True):
        assert want is not None
        assert result is not None
        assert np.array_equal(want.astype(dtype), result)


def test_float16_products_past_its_range_do_not_overflow() -> None:
    """Raw products of 4e5, past float16's 65504, give torch's finite answer."""
    q = np.full((1, 1, 3, 64), 80, np.float16)
    k = np.full((1, 1, 5, 64), 80, np.float16)
    v = np.arange(20, dtype=np.float16).reshape(1, 1, 5, 4)
    tensors: list[Any] = [torch.from_numpy(x) for x in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(*tensors)
    assert np.array_equal(expected.numpy(), scaled_dot_product_attention(q, k, v))


@pytest.mark.parametrize("order", [">f4", ">f8"])
def test_foreign_byte_order_is_read(order: str) -> None:
    """Arrays of the other byte order count as the native dtype they stand for."""
    native = np.dtype(order).newbyteorder("=")
    layer = new_layer(native)
    x = X.astype(native)
    expected, _ = layer(x, x, x)
    foreign = x.astype(order)
    actual, _ = layer(foreign, foreign, foreign)
    assert np.array_equal(expected, actual)


def reversed_twice(x: Any) -> Any:
    """The same numbers seen through negative strides."""
    return np.ascontiguousarray(x[..., ::-1])[..., ::-1]


def sliced(x: Any) -> Any:
    """The same numbers as every second one of a larger array."""
    larger = np.full((*x.shape[:-1], 2 * x.shape[-1]), np.nan)
    larger[..., ::2] = x
    return larger[..., ::2]


def read_only(x: Any) -> Any:
    """Return the same numbers in memory that is read-only."""
    frozen = x.copy()
    frozen.flags.writeable = False
    return frozen


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "Fortran": np.asfortranarray,
    "negative strides": reversed_twice,
    "sliced": sliced,
    "read-only": read_only,
    "misaligned": lambda x: np.frombuffer(b"0" + x.tobytes(), offset=1).reshape(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("engine", ["plain", "flash"])
def test_memory_layout_does_not_matter(layout: str, engine: str) -> None:
    """Inputs in any memory layout give the same answer up to the order of the sums."""
    change = LAYOUTS[layout]
    tolerance = 100 * np.finfo(np.float64).eps
    layer = new_layer(engine=engine)
    expected, _ = layer(X, Y, Y, need_weights=False)
    actual, _ = layer(change(X), change(Y), change(Y), need_weights=False)
    assert np.allclose(expected, actual, rtol=0, atol=tolerance)
    want = scaled_dot_product_attention(Q, K, V, engine=engine)
    result = scaled_dot_product_attention(change(Q), change(K), change(V), engine=engine)
    assert np.allclose(want, result, rtol=0, atol=tolerance)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
def test_nothing_passed_in_is_modified(batch_first: bool, need_weights: bool) -> None:
    """Read-only inputs, masks and parameters are enough, and their bytes stay what they were."""
    layer = new_layer(batch_first=batch_first, add_bias_kv=True, add_zero_attn=True)
    shape = (2, 5, 6) if batch_first else (5, 2, 6)
    x = RNG.standard_normal(shape)
    given = {
        "query": x,
        "key": x + 1,
        "value": x - 1,
        "key_padding_mask": RNG.standard_normal((2, 5)),
        "attn_mask": np.triu(np.ones((6, 5, 5), np.bool_), 1),
    }
    for array in (*given.values(), *layer.named_arrays().values()):
        if array is not None:
            array.flags.writeable = False
    before = {name: array.tobytes() for name, array in given.items()}
    parameters = {name: array.tobytes() for name, array in layer.state_dict().items()}
    options: dict[str, Any] = dict(given)
    layer(**options, need_weights=need_weights)
    assert before == {name: array.tobytes() for name, array in given.items()}
    assert parameters == {name: array.tobytes() for name, array in layer.state_dict().items()}


@pytest.mark.parametrize("engine", ["plain", "flash"])
@pytest.mark.parametrize("keys", [1, 7])
def test_outputs_are_the_callers_own(engine: str, keys: int) -> None:
    """No output shares memory with an input, not even where there is but one key."""
    q, k, v = Q.copy(), K[:, :, :keys].copy(), V[:, :, :keys].copy()
    out = scaled_dot_product_attention(q, k, v, engine=engine)
    assert not any(np.shares_memory(out, x) for x in (q, k, v))
    assert out.flags.writeable
    layer = new_layer(engine=engine)
    output, _ = layer(X, Y[:keys], Y[:keys], need_weights=False)
    arrays = list(layer.named_arrays().values())
    assert not any(np.shares_memory(output, x) for x in (X, Y, *arrays))
    assert output.flags.writeable


def test_equal_calls_give_equal_bits() -> None:
    """One object passed thrice and three equal objects differ by the order of sums at most."""
    layer = new_layer()
    first, _ = layer(X, X, X)
    second, _ = layer(X, X, X)
    copied, _ = layer(X, X.copy(), X.copy())
    assert np.array_equal(first, second)
    assert np.allclose(first, copied, rtol=0, atol=100 * np.finfo(np.float64).eps)


def test_torch_tensors_and_lists_are_read() -> None:
    """What NumPy can read as an array is taken: tensors on the CPU, nested lists."""
    layer = new_layer()
    expected, _ = layer(X, Y, Y)
    for convert in (torch.from_numpy, np.ndarray.tolist):
        actual, _ = layer(convert(X), convert(Y), convert(Y))
        assert np.allclose(expected, actual, rtol=0, atol=100 * np.finfo(np.float64).eps)


def test_the_callers_error_state_is_left_alone() -> None:
    """NaN in silence inside, and the caller's own numpy.errstate afterwards."""
    with np.errstate(all="raise"):
        before = np.geterr()
        layer = new_layer()
        x = np.full((5, 2, 6), np.inf)
        output, _ = layer(x, x, x)
        assert np.isnan(output).all()
        assert before == np.geterr()


def test_functional_form_is_the_layer() -> None:
    """multi_head_attention_forward with a layer's parameters gives the layer's bits."""
    layer = new_layer(add_bias_kv=True, kdim=4, vdim=6)
    expected = layer(X, Y[..., :4], Y)
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    actual = multi_head_attention_forward(
        X,
        Y[..., :4],
        Y,
        6,
        3,
        None,
        layer.in_proj_bias,
        layer.bias_k,
        layer.bias_v,
        False,
        0.0,
        layer.out_proj.weight,
        layer.out_proj.bias,
        use_separate_proj_weight=True,
        **{name: getattr(layer, name) for name in names},
    )
    for want, result in zip(expected, actual, strict=True):
        assert want is not None
        assert result is not None
        assert np.array_equal(want, result)
