"""How accurate the NumPy layer is beside torch, and the softmax that this rests on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import mha_numpy
from mha_numpy._softmax import BLOCK, LIMITS, LONG_ROW, is_bounded, row_sums, softmax_inplace

Array = NDArray[Any]
SIZES = [  # batch, queries, keys, head_dim, num_heads
    (2, 31, 37, 8, 3),
    (1, 67, 131, 17, 2),
    (3, 23, 64, 32, 4),
    (2, 41, 400, 64, 2),
    (1, 29, 1031, 16, 5),
]


def rms(actual: Any, gold: Array) -> float:
    """Root mean square of the error against gold."""
    return float(np.sqrt(np.mean(np.square(np.asarray(actual, np.float64) - gold))))


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
        gold = torch.nn.MultiheadAttention(embed_dim, num_heads, batch_first=True).double()
        gold.load_state_dict(theirs.state_dict())
        size = rng.choice([0.3, 1.0, 3.0])
        x = torch.from_numpy(rng.standard_normal((batch, queries, embed_dim)) * size).to(kind)
        y = torch.from_numpy(rng.standard_normal((batch, keys, embed_dim))).to(kind)
        own_x, own_y = (t.float().numpy().astype(ours.dtype) for t in (x, y))
        for need_weights in (True, False):
            options: dict[str, Any] = {"need_weights": need_weights, "average_attn_weights": False}
            with torch.no_grad():
                wanted = gold(x.double(), y.double(), y.double(), **options)
                torchs = theirs(x, y, y, **options)
            answer = ours(own_x, own_y, own_y, **options)
            for want, near, got in zip(wanted, torchs, answer, strict=True):
                if want is not None and got is not None:
                    exact = want.numpy()
                    error = rms(got.astype(np.float64) * (1 + spoil), exact)
                    ratios.append(error / rms(near.double().numpy(), exact))
    return ratios


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_errors_are_no_larger_than_torchs(dtype: str) -> None:
    """Against float64, our error is at most torch's in the median and twice that at worst."""
    ratios = errors_beside_torch(dtype, range(20))
    assert np.median(ratios) <= 1
    assert max(ratios) <= 2


def test_a_relative_error_of_a_few_roundoffs_is_told_apart() -> None:
    """The comparison sees an answer that is off by eight float32 roundoffs."""
    ratios = errors_beside_torch("float32", range(5), spoil=8 * 2.0**-24)
    assert np.median(ratios) > 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", [1, 5, 11, 12, 13, 400, LONG_ROW, LONG_ROW + 1])
def test_row_sums_are_sums(dtype: Any, length: int) -> None:
    """Each of the ways to sum rows gives the exact sum up to its dtype's rounding."""
    for count in (3, BLOCK // length + 7):
        rows = np.random.default_rng(length).random((2, count, length), dtype=dtype)
        expected = rows.sum(-1, keepdims=True, dtype=np.longdouble)
        actual = row_sums(rows)
        assert expected.shape == actual.shape
        assert rows.dtype == actual.dtype
        assert np.all(np.abs(expected - actual) <= 16 * np.finfo(dtype).eps * expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bound_holds_up_to_the_limit_and_for_no_other_number(dtype: Any) -> None:
    """Logits are bounded up to the limit on both sides; infinity and NaN never are."""
    limit = LIMITS[np.dtype(dtype)]
    for size in (11, 8192):
        logits = np.zeros((1, 1, 1, size), dtype)
        assert is_bounded(logits)
        for value, bounded in (
            (limit, True),
            (-limit, True),
            (limit * 1.01, False),
            (-limit * 1.01, False),
            (np.inf, False),
            (-np.inf, False),
            (np.nan, False),
        ):
            logits[..., 3] = value
            assert bounded == is_bounded(logits)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unshifted_softmax_is_safe_at_its_limit(dtype: Any) -> None:
    """With all logits at either limit the softmax without a shift is the one with it."""
    limit = LIMITS[np.dtype(dtype)]
    rng = np.random.default_rng(0)
    for level in (-limit, limit):
        logits = (level - np.sign(level) * rng.random((3, 4, 5, 6000))).astype(dtype)
        expected = softmax_inplace(logits.copy())
        actual = softmax_inplace(logits.copy(), bounded=True)
        # The shift itself rounds a logit of this size by half a unit in its last place.
        tolerance = 4 * np.spacing(dtype(limit)) * expected.max()
        assert np.abs(expected - actual).max() <= tolerance


@pytest.mark.parametrize("bounded", [True, False])
def test_empty_rows_are_nan_or_zero(bounded: bool) -> None:
    """A row of -inf is NaN, or 0 on demand; the rows beside it are untouched by the choice."""
    logits = np.random.default_rng(0).standard_normal((2, 3, 5, 7))
    logits[1, 2, 3] = -np.inf
    with np.errstate(invalid="ignore"):
        nan = softmax_inplace(logits.copy(), bounded=bounded)
        zero = softmax_inplace(logits.copy(), bounded=bounded, empty_rows_are_zero=True)
    assert np.isnan(nan[1, 2, 3]).all()
    assert not np.any(zero[1, 2, 3])
    assert np.array_equal(zero, np.nan_to_num(nan, nan=0.0))
