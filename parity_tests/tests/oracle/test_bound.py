"""The rounding bound holds for honest arithmetic and is not so wide that it means nothing."""

from __future__ import annotations

import numpy as np
import pytest

from mha_torch import multihead_attention, plain
from mha_torch.bound import attention_bound, gamma, unit_roundoff
from mha_torch.example import example

SEEDS = range(8)


def test_gamma_is_highams() -> None:
    """gamma_n = n u / (1 - n u), and nothing is promised once n u reaches 1."""
    assert 1 / 3 == gamma(1, 0.25)
    assert gamma(2, 0.5) == float("inf")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unit_roundoff_is_half_a_step(dtype: type[np.floating]) -> None:
    """1 + u rounds to 1, and 1 + 3u does not."""
    unit = dtype(unit_roundoff(dtype))
    assert 1 == dtype(1) + unit
    assert dtype(1) + 3 * unit > 1


@pytest.mark.parametrize("seed", SEEDS, ids="seed={}".format)
@pytest.mark.parametrize(("factor", "least"), [(1e-3, 1e-4), (1.0, 1e-4), (30.0, 1e-5)])
def test_float32_torch_stays_within(seed: int, factor: float, least: float) -> None:
    """Float32 torch keeps the float32 bound, and not by orders without end."""
    case = example(seed)
    query, key, value = (a.astype(np.float32) for a in (factor * case.query, case.key, case.value))
    state = {name: array.astype(np.float32) for name, array in case.state.items()}
    output, weights = multihead_attention(query, key, value, state, num_heads=3, dtype="float32")
    reference = plain.stages(query, key, value, state, num_heads=3, dtype=np.longdouble)
    bound = attention_bound(
        query,
        key,
        value,
        state,
        reference,
        unit=unit_roundoff(np.float32),
        tiny=float(np.finfo(np.float32).smallest_normal),
    )
    for actual, expected, allowed in (
        (output, reference.output, bound.output),
        (weights, reference.weights, bound.weights),
    ):
        units = np.abs(actual - expected) / allowed
        assert least < units.max() < 1


def test_bound_knows_huge_logits() -> None:
    """Where one rounding of a logit outweighs e, a weight may be anything from 0 to 1."""
    case = example(1)
    stages = plain.stages(1e18 * case.query, case.key, case.value, case.state, num_heads=3)
    bound = attention_bound(
        1e18 * case.query, case.key, case.value, case.state, stages, unit=2.0**-53
    )
    assert 1 == bound.weights.max()


def test_hidden_keys_have_no_error() -> None:
    """The weight of a hidden key is exactly 0, and its bound says so."""
    case, hidden = example(2), np.zeros((5, 11), dtype=bool)
    hidden[:, 4] = True
    stages = plain.stages(*case.arrays, num_heads=3, attn_mask=hidden)
    bound = attention_bound(*case.arrays, stages, unit=2.0**-53)
    assert 0 == bound.weights[..., 4].max()
    assert bound.weights[..., 5].min() > 0
