"""Heads as an axis or side by side, and the softmax, on numbers that are known."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.core.arrays import merge_heads, softmax, split_heads


def test_heads_own_columns_that_lie_side_by_side() -> None:
    """Head h has the columns from h D on; merging gives the rows back."""
    rows = np.arange(2 * 3 * 8).reshape(2, 3, 8)
    heads = split_heads(rows, 4)
    assert (2, 4, 3, 2) == heads.shape
    assert [6, 7] == heads[0, 3, 0].tolist()
    np.testing.assert_array_equal(rows, merge_heads(heads))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.longdouble])
def test_softmax_divides_exponentials_by_their_sum(dtype: type[np.floating]) -> None:
    """Along either axis, in the dtype of the scores; exp never overflows, hidden keys get 0."""
    scores = np.array([[1000, 1000 + np.log(3), -np.inf]], dtype=dtype)
    expected = [[0.25, 0.75, 0]]
    assert dtype == softmax(scores).dtype
    np.testing.assert_allclose(softmax(scores), expected, rtol=1e-4)
    np.testing.assert_allclose(softmax(scores.T, axis=-2).T, expected, rtol=1e-4)


def test_a_softmax_over_no_keys_is_empty() -> None:
    """Nothing warns of the largest of no scores."""
    assert (2, 0) == softmax(np.zeros((2, 0))).shape
