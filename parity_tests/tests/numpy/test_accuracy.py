"""How accurate the NumPy layer is beside torch, and the softmax that this rests on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import mha_numpy
from mha_numpy.attention import attend
from mha_numpy.masks import NO_MASK, Masking
from mha_numpy.softmax import exponential, least_sum, row_sums, sums_are_safe
from mha_numpy.validation import quiet

Array = NDArray[Any]
SIZES = [  # batch, queries, keys, head_dim, num_heads
    (2, 31, 37, 8, 3),
    (1, 67, 131, 17, 2),
    (3, 23, 64, 32, 4),
    (2, 41, 400, 64, 2),
    (1, 29, 1031, 16, 5),
]


def rms(actual: Any, reference: Array) -> float:
    """Root mean square of the error against reference."""
    return float(np.sqrt(np.mean(np.square(np.asarray(actual, np.float64) - reference))))


def errors_beside_torch(dtype: str, seeds: range, spoil: float = 0.0) -> list[float]:
    """Our error over torch's, both against torch in float64, for outputs and weights."""
    kind = getattr(torch, dtype)
    ratios = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        batch, queries, keys, head_dim, num_heads = SIZES[seed % len(SIZES)]
        embed_dim = head_dim * num_heads
        torch.manual_seed(seed)
        theirs = torch.nn.MultiheadAttention(embed_dim, num_heads, batch_first=True, dtype=kind)
        ours = mha_numpy.MultiheadAttention(embed_dim, num_heads, batch_first=True, dtype=dtype)
        ours.load_state_dict(theirs.state_dict())
        reference = torch.nn.MultiheadAttention(embed_dim, num_heads, batch_first=True).double()
        reference.load_state_dict(theirs.state_dict())
        size = rng.choice([0.3, 1.0, 3.0])
        x = torch.from_numpy(rng.standard_normal((batch, queries, embed_dim)) * size).to(kind)
        y = torch.from_numpy(rng.standard_normal((batch, keys, embed_dim))).to(kind)
        own_x, own_y = (t.float().numpy().astype(ours.dtype) for t in (x, y))
        for need_weights in (True, False):
            options: dict[str, Any] = {"need_weights": need_weights, "average_attn_weights": False}
            with torch.no_grad():
                wanted = reference(x.double(), y.double(), y.double(), **options)
                torchs = theirs(x, y, y, **options)
            answer = ours(own_x, own_y, own_y, **options)
            for want, near, result in zip(wanted, torchs, answer, strict=True):
                if want is not None and result is not None:
                    exact = want.numpy()
                    error = rms(result.astype(np.float64) * (1 + spoil), exact)
                    ratios.append(error / rms(near.double().numpy(), exact))
    return ratios


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_errors_are_no_larger_than_torchs(dtype: str) -> None:
    """Against float64, our error is at most torch's in the median and twice that at worst."""
    ratios = errors_beside_torch(dtype, range(20))
    assert np.median(ratios) <= 1
    assert max(ratios) <= 2


def test_a_relative_error_of_a_few_roundoffs_is_detected() -> None:
    """The comparison sees an answer that is off by eight float32 roundoffs."""
    ratios = errors_beside_torch("float32", range(5), spoil=8 * 2.0**-24)
    assert np.median(ratios) > 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", [1, 5, 12, 400, 1031])
def test_row_sums_are_sums(dtype: Any, length: int) -> None:
    """The product with ones gives the exact sum up to its dtype's rounding."""
    rows = np.random.default_rng(length).random((2, 7, length), dtype=dtype)
    expected = rows.sum(-1, keepdims=True, dtype=np.longdouble)
    actual = row_sums(rows)
    assert expected.shape == actual.shape
    assert rows.dtype == actual.dtype
    assert np.all(np.abs(expected - actual) <= 16 * np.finfo(dtype).eps * expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@quiet
def test_sums_are_trusted_up_to_their_limits(dtype: Any) -> None:
    """Sums from `least_sum` on, with finite squares, and a finite result are trusted, no others."""
    least, most = least_sum(np.dtype(dtype)), float(np.finfo(dtype).max) ** 0.5
    result = np.ones(3, dtype)
    for value, good in (
        (least * 1.01, True),
        (most * 0.99, True),
        (least * 0.99, False),
        (most * 1.01, False),
        (np.inf, False),
        (np.nan, False),
        (0, False),
    ):
        sums = np.ones((2, 3), dtype)
        sums[1, 2] = value
        assert good == sums_are_safe(sums, result)
    for bad in (np.inf, np.nan):
        result[1] = bad
        assert not sums_are_safe(np.ones((2, 3), dtype), result)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_exponential_is_one_in_its_unit(dtype: Any) -> None:
    """function(unit * x) is exp(x) to some units in the last place of the product."""
    function, unit = exponential(np.dtype(dtype))
    x = np.linspace(-30, 30, 4001).astype(dtype)
    exact = np.exp(x.astype(np.longdouble))
    found = function(x * dtype(unit))
    assert dtype == found.dtype
    assert np.all(np.abs(found - exact) <= (2 * np.abs(x) + 4) * np.finfo(dtype).eps * exact)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("level", [-1000.0, -40.0, 0.0, 40.0, 1000.0])
def test_the_level_of_a_row_does_not_matter(level: float, dtype: Any) -> None:
    """Rows far above or below 0 have the weights of rows at 0: the maximum steps in.

    A score of size |level| is rounded to |level| roundoffs, and changes its weight by as much.
    """
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 3, length, 4)).astype(dtype) for length in (5, 7, 7))
    shift = np.full((1, 1, 5, 1), level, dtype)
    with np.errstate(all="ignore"):
        expected = attend(q, k, v, NO_MASK, 0.5)
        actual = attend(q, k, v, Masking(bias=(shift,)), 0.5)
    for want, result in zip(expected, actual, strict=True):
        assert want is not None
        assert result is not None
        assert np.abs(want - result).max() <= (8 + 2 * abs(level)) * np.finfo(dtype).eps * 4


@pytest.mark.parametrize("zero", [False, True])
def test_empty_rows_are_nan_or_zero(zero: bool) -> None:
    """A row without a key is NaN, or 0 on demand; the others are untouched by the choice."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 3, 5, 4))
    hidden = np.zeros((2, 3, 5, 5), bool)
    hidden[1, 2, 3] = True
    with np.errstate(all="ignore"):
        results = attend(q, k, v, Masking(hidden=(hidden,)), 0.5, empty_rows_are_zero=zero)
        expected = attend(q, k, v, NO_MASK, 0.5)
    for result, want in zip(results, expected, strict=True):
        assert result is not None
        assert want is not None
        row = result[1, 2, 3]
        assert not row.any() if zero else np.isnan(row).all()
        result[1, 2, 3] = want[1, 2, 3]
        assert np.abs(result - want).max() <= 16 * np.finfo(np.float64).eps
