"""Masks of the most negative numbers, which a factor of log2 e would take to -inf."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import mha_numpy
from mha_numpy.masks import Masking

Array = NDArray[Any]
ENGINES = ["plain", "flash"]
MIN = float(np.finfo(np.float32).min)
LEAST_BFLOAT16 = -3.3895313892515355e38


def layers(engine: str) -> tuple[torch.nn.MultiheadAttention, mha_numpy.MultiheadAttention]:
    """Torch's layer in float32 and ours with its weights."""
    torch.manual_seed(7)
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    ours = mha_numpy.MultiheadAttention(8, 2, batch_first=True, engine=engine, dtype=np.float32)
    ours.load_state_dict(
        {name: held.detach().numpy() for name, held in theirs.state_dict().items()}
    )
    return theirs, ours


def padded_causal() -> Array:
    """A causal mask in which two rows of padding see no key at all, by finite numbers alone."""
    mask = np.triu(np.full((5, 5), MIN, np.float32), 1)
    mask[:2] = MIN
    return mask


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "no weights"])
@pytest.mark.parametrize("shift", [0.0, -MIN], ids=["most negative", "none and largest"])
def test_rows_of_the_most_negative_number_see_all_keys_alike(
    engine: str, need_weights: bool, shift: float
) -> None:
    """Output and weights are torch's where a float mask lowers all keys of a row by finfo.min."""
    theirs, ours = layers(engine)
    x = np.random.default_rng(3).standard_normal((2, 5, 8), dtype=np.float32)
    mask = padded_causal() + np.float32(shift)
    with torch.no_grad():
        expected, expected_weights = theirs(
            *[torch.from_numpy(x)] * 3, attn_mask=torch.from_numpy(mask), need_weights=need_weights
        )
    output, weights = ours(x, x, x, attn_mask=mask, need_weights=need_weights)
    np.testing.assert_allclose(output, expected.numpy(), rtol=1e-5, atol=1e-6)
    if need_weights:
        assert weights is not None
        np.testing.assert_allclose(weights, expected_weights.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_padding_by_the_most_negative_number_hides_nothing_where_it_hides_all(engine: str) -> None:
    """A sample padded wholly by the least bfloat16 sees its keys alike, as with -1e30."""
    rng = np.random.default_rng(4)
    layer = mha_numpy.MultiheadAttention(
        8, 2, batch_first=True, engine=engine, dtype="bfloat16", rng=rng
    )
    x = rng.standard_normal((2, 5, 8)).astype(ml_dtypes.bfloat16)
    outputs = []
    for number in (-1e30, LEAST_BFLOAT16):  # both absorb the scores
        padding = np.zeros((2, 5), ml_dtypes.bfloat16)
        padding[0] = number
        output, _ = layer(x, x, x, key_padding_mask=padding, need_weights=False)
        outputs.append(output.astype(np.float32))
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert outputs[0][0].any()


@pytest.mark.parametrize("engine", ENGINES)
def test_gradients_of_such_rows_are_torchs(engine: str) -> None:
    """Gradients of the input and of the mask are torch's with rows of finfo.min."""
    theirs, ours = layers(engine)
    x = np.random.default_rng(5).standard_normal((2, 5, 8), dtype=np.float32)
    cotangent = np.random.default_rng(6).standard_normal((2, 5, 8), dtype=np.float32)
    given, mask = torch.from_numpy(x).requires_grad_(), torch.from_numpy(padded_causal())
    theirs(given, given, given, attn_mask=mask.requires_grad_(), need_weights=False)[0].backward(
        torch.from_numpy(cotangent)
    )
    _, pull = ours.vjp(x, x, x, attn_mask=mask.detach().numpy(), need_weights=False)
    found = pull(cotangent)
    for expected, own in (
        (given.grad, found["query"] + found["key"] + found["value"]),
        (mask.grad, found["attn_mask"]),
    ):
        assert expected is not None
        np.testing.assert_allclose(own, expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([0.0, -1e9, -np.inf], False),
        ([0.0, MIN], True),
        ([-np.inf, MIN], True),
        ([-MIN, np.inf, np.nan], True),
        ([-MIN / 4, np.inf], False),
    ],
    ids=str,
)
def test_only_finite_numbers_are_out_of_range(numbers: list[float], expected: bool) -> None:
    """-inf is as good in powers of two; the least and the largest finite numbers are not."""
    masking = Masking(bias=(np.array(numbers, np.float32).reshape(1, 1, 1, -1),))
    assert masking.exceeds(-MIN / 4, np.float32) is expected
