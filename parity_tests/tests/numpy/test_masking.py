"""Every kind of mask in its one form, against the definition written out cell by cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mha_numpy import MultiheadAttention
from mha_numpy.attention import attend
from mha_numpy.call import CallOptions, check_call
from mha_numpy.masks import NO_MASK, Masking, causal_hidden

Array = NDArray[Any]
N, H, L, S = 2, 3, 5, 7


def drawn(*shape: int) -> Array:
    """Booleans, about a third of them True."""
    return np.random.default_rng(sum(shape)).random(shape) < 1 / 3


@pytest.mark.parametrize(("queries", "keys"), [(5, 7), (7, 5), (4, 4), (1, 3), (3, 1), (0, 2)])
@pytest.mark.parametrize("appended", [0, 1, 2])
def test_causal_rule_counts_from_the_top_left(queries: int, keys: int, appended: int) -> None:
    """Query i is kept from key j exactly where j > i, save for the appended keys."""
    total = keys + appended
    expected = [[j > i and j < keys for j in range(total)] for i in range(queries)]
    actual = causal_hidden(queries, total, appended)
    assert (queries, total) == actual.shape
    assert expected == actual.tolist()


def test_all_kinds_add_up() -> None:
    """Two boolean masks, two float ones and the causal rule hide and add all that they name."""
    hidden = (drawn(N, 1, 1, S), drawn(1, H, L, S))
    bias = (np.random.default_rng(0).standard_normal((1, 1, L, S)), np.full((N, 1, 1, 1), 0.25))
    actual = Masking(hidden, bias, causal=True).additive(L, S, np.float64)
    assert actual is not None
    expected = np.empty((N, H, L, S))
    for n, h, i, j in np.ndindex(N, H, L, S):
        unseen = hidden[0][n, 0, 0, j] or hidden[1][0, h, i, j] or j > i
        expected[n, h, i, j] = -np.inf if unseen else bias[0][0, 0, i, j] + 0.25
    assert np.array_equal(expected, np.broadcast_to(actual, expected.shape))


@pytest.mark.parametrize(
    ("masking", "shape"),
    [
        (Masking(hidden=(drawn(N, 1, 1, S),)), (N, 1, 1, S)),
        (Masking(causal=True), (1, 1, L, S)),
        (Masking(bias=(np.ones((1, H, L, 1)),)), (1, H, L, 1)),
    ],
    ids=["padding", "causal", "per head and query"],
)
def test_masks_stay_as_small_as_they_came(masking: Masking, shape: tuple[int, ...]) -> None:
    """No mask is blown up to (N, H, L, S) on its own."""
    actual = masking.additive(L, S, np.float32)
    assert actual is not None
    assert shape == actual.shape
    assert np.float32 == actual.dtype


def test_no_mask_adds_nothing() -> None:
    """The empty masking says so, and appended keys alone do not change that."""
    for masking in (NO_MASK, Masking(appended=2)):
        assert masking.is_empty
    assert not Masking(causal=True).is_empty


@pytest.mark.parametrize("appended", [0, 1, 2])
def test_three_axes_run_over_samples_then_heads(appended: int) -> None:
    """Row n * H + h of a (N*H, L, S) mask belongs to sample n and head h; appended keys show."""
    attn, padding = drawn(N * H, L, S), drawn(N, S)
    zero = appended > 0
    layer = MultiheadAttention(H, H, add_bias_kv=appended > 1, add_zero_attn=zero)
    query, key = np.zeros((L, N, H), np.float32), np.zeros((S, N, H), np.float32)
    options = CallOptions(H, zero, attn_mask=attn, key_padding_mask=padding)
    masking = check_call((query, key, key), layer, options).masking
    actual = masking.additive(L, S + appended, np.float64)
    assert actual is not None
    for n, h, i, j in np.ndindex(N, H, L, S + appended):
        unseen = j < S and (attn[n * H + h, i, j] or padding[n, j])
        assert unseen == (actual[n, h, i, j] == -np.inf)


def test_nan_at_a_hidden_key_stays() -> None:
    """Masks are added, not written over the logits: NaN shows through, as in torch."""
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 1, 1, 4, 2))
    k[0, 0, 3] = np.nan
    hidden = np.zeros((1, 1, 1, 4), np.bool_)
    hidden[..., 3] = True
    with np.errstate(invalid="ignore"):
        out, _ = attend(q, k, v, Masking(hidden=(hidden,)), 1.0)
    assert np.isnan(out).all()


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_grouped_heads_read_their_groups_keys(kv_heads: int) -> None:
    """Query head h reads key head h // (H // Hkv), under masks of every head's own."""
    rng = np.random.default_rng(0)
    q = rng.standard_normal((N, 6, L, 4))
    k, v = rng.standard_normal((N, kv_heads, S, 4)), rng.standard_normal((N, kv_heads, S, 3))
    masking = Masking(bias=(rng.standard_normal((1, 6, L, S)),))
    all_k, all_v = (np.repeat(x, 6 // kv_heads, axis=1) for x in (k, v))
    expected = attend(q, all_k, all_v, masking, 0.5)
    actual = attend(q, k, v, masking, 0.5)
    for want, result in zip(expected, actual, strict=True):
        assert want is not None
        assert result is not None
        assert want.shape == result.shape
        assert np.allclose(want, result, rtol=0, atol=50 * np.finfo(np.float64).eps)


def test_heads_come_out_ready_to_merge() -> None:
    """heads_out lies in memory as (N, L, H, Dv), so merging the heads copies nothing."""
    q = np.ones((N, H, L, 4))
    out, _ = attend(q, q, q)
    assert out.transpose(0, 2, 1, 3).flags.c_contiguous
