"""Memory around the arrays of a problem: a target that reads outside them is seen."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from mha_parity.cases.memory_layout import GUARD, copy_in_layout
from mha_parity.core.features import AXES
from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome
from mha_parity.run.check import check
from mha_parity.targets.bind import bind


@pytest.mark.parametrize("memory", AXES["memory"])
@pytest.mark.parametrize("shape", [(3, 5, 7), (4, 6), (2, 0, 3), (5,)])
def test_nan_lies_on_both_sides(memory: str, shape: tuple[int, ...]) -> None:
    """The buffer has NaN before the first and after the last element, and nowhere inside."""
    copy = copy_in_layout(np.ones(shape), memory)
    base = copy
    while base.base is not None:
        base = base.base

    assert not np.isnan(copy).any()
    assert np.isnan(base[:GUARD]).all()
    assert np.isnan(base[-GUARD:]).all()


def test_masks_are_hidden_on_both_sides() -> None:
    """A boolean array lies among True, which hides a key that is read from there."""
    copy = copy_in_layout(np.zeros((2, 3), dtype=bool), "c")

    assert as_strided(copy, (7,), (1,))[6]


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, num_heads: int) -> np.ndarray:
    """Return attention on projected q, k, v."""
    n, length, width = q.shape
    heads = [
        x.reshape(n, x.shape[1], num_heads, -1).swapaxes(1, 2).astype(np.float64) for x in (q, k, v)
    ]
    scores = heads[0] @ heads[1].swapaxes(-1, -2) / np.sqrt(heads[0].shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    out = (weights / weights.sum(axis=-1, keepdims=True)) @ heads[2]
    return np.asarray(out.swapaxes(1, 2).reshape(n, length, width).astype(q.dtype))


def reads_one_more_key(q: np.ndarray, k: np.ndarray, v: np.ndarray, num_heads: int) -> np.ndarray:
    """Add 0 times the element behind the last key, as a tile does that is filled past the end."""
    behind = as_strided(k, (*k.shape[:-1], k.shape[-1] + 1), k.strides)[-1, -1, -1]
    return np.asarray(attention(q, k, v, num_heads) + 0 * behind)


@pytest.mark.parametrize("seed", [0], ids="seed{}".format)
def test_a_read_past_the_end_is_seen(seed: int) -> None:
    """Attention that adds 0 times what lies behind the keys fails; without that it passes."""
    options = Options(cases=24, seed=seed, diagnose=False, shrink=False, draw=False)

    assert Outcome.FAIL is check(bind(reads_one_more_key, "qkv-heads"), options).outcome
    assert Outcome.FAIL is not check(bind(attention, "qkv-heads"), options).outcome
