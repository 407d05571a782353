"""The state dict goes to torch and back unchanged, and new layers are drawn as torch's are."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

import mha_numpy

KINDS = [
    dict(zip(("bias", "add_bias_kv", "kdim"), values, strict=True))
    for values in itertools.product([True, False], [True, False], [None, 5])
]
PRECISIONS = ["float64", "float32", "float16", "bfloat16"]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_names_shapes_and_order_are_torchs(options: dict[str, Any]) -> None:
    """state_dict has torch's keys in torch's order, with torch's shapes and dtype."""
    theirs = torch.nn.MultiheadAttention(6, 3, **options).state_dict()
    ours = mha_numpy.MultiheadAttention(6, 3, **options).state_dict()
    assert list(theirs) == list(ours)
    assert [tuple(x.shape) for x in theirs.values()] == [x.shape for x in ours.values()]
    assert {np.dtype(np.float32)} == {x.dtype for x in ours.values()}


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_states_go_both_ways_bit_for_bit(options: dict[str, Any], dtype: str) -> None:
    """From torch to NumPy and back into a second torch layer, every bit survives."""
    kind = getattr(torch, dtype)
    first = torch.nn.MultiheadAttention(6, 3, **options, dtype=kind)
    for parameter in first.parameters():
        torch.nn.init.normal_(parameter)
    own = mha_numpy.MultiheadAttention(6, 3, **options, dtype=dtype)
    assert ([], []) == own.load_state_dict(first.state_dict())
    second = torch.nn.MultiheadAttention(6, 3, **options, dtype=kind)
    state = own.state_dict()
    # NumPy's bfloat16 is a guest that torch.from_numpy does not know; float32 holds it exactly.
    exact = {name: x.astype(np.float32) if dtype == "bfloat16" else x for name, x in state.items()}
    second.load_state_dict({name: torch.from_numpy(x) for name, x in exact.items()})
    for name, expected in first.state_dict().items():
        assert torch.equal(expected, second.state_dict()[name])


def test_state_is_a_copy_both_ways() -> None:
    """Writing into a state dict, given or received, changes no layer."""
    own = mha_numpy.MultiheadAttention(6, 3, rng=np.random.default_rng(0))
    before = own.in_proj_weight.copy() if own.in_proj_weight is not None else None
    state = own.state_dict()
    state["in_proj_weight"][...] = 0
    assert np.array_equal(before, own.in_proj_weight)  # type: ignore[arg-type]  # a packed layer has it
    own.load_state_dict(state)
    state["in_proj_weight"][...] = 1
    assert not np.any(own.in_proj_weight)


def test_parameters_with_gradients_are_taken() -> None:
    """Tensors that require a gradient are read, as named_parameters hands them out."""
    theirs = torch.nn.MultiheadAttention(6, 3)
    own = mha_numpy.MultiheadAttention(6, 3)
    own.load_state_dict(dict(theirs.named_parameters()))
    assert np.array_equal(
        theirs.in_proj_weight.detach().numpy(), own.state_dict()["in_proj_weight"]
    )


def test_not_strict_takes_what_fits_and_names_the_rest() -> None:
    """With strict=False the missing and unexpected keys come back, as from torch."""
    theirs, own = torch.nn.MultiheadAttention(6, 3), mha_numpy.MultiheadAttention(6, 3)
    state = {"out_proj.bias": torch.ones(6), "foo": torch.ones(2)}
    expected = theirs.load_state_dict(state, strict=False)
    actual = own.load_state_dict(state, strict=False)
    assert (expected.missing_keys, expected.unexpected_keys) == tuple(actual)
    assert np.array_equal(np.ones(6, np.float32), own.state_dict()["out_proj.bias"])


def bounds(layer: Any) -> dict[str, tuple[float, float]]:
    """The largest and the root mean square of each parameter."""
    return {
        name: (float(np.abs(x).max()), float(np.sqrt(np.mean(np.square(x)))))
        for name, x in ((name, np.asarray(x)) for name, x in layer.state_dict().items())
    }


@pytest.mark.parametrize("kdim", [None, 128], ids=["packed", "separate"])
def test_new_layers_are_drawn_as_torchs_are(kdim: int | None) -> None:
    """Every parameter has torch's distribution: its spread, its bounds, zeros for the biases."""
    options: dict[str, Any] = {"add_bias_kv": True, "kdim": kdim}
    theirs = bounds(torch.nn.MultiheadAttention(512, 8, **options))
    ours = bounds(mha_numpy.MultiheadAttention(512, 8, **options, rng=np.random.default_rng(0)))
    for name, (largest, spread) in theirs.items():
        count = 512 if name.startswith("bias") else 65536
        # The relative standard error of a root mean square of n draws is at most 1 / sqrt(2 n).
        assert abs(ours[name][1] - spread) <= 5 * math.sqrt(2) * spread / math.sqrt(2 * count)
        if name.endswith("weight"):
            assert ours[name][0] == pytest.approx(largest, rel=1e-3)


def test_one_seed_draws_one_layer() -> None:
    """The same generator state gives the same parameters, another one others."""
    one, same, other = (
        mha_numpy.MultiheadAttention(6, 3, rng=np.random.default_rng(seed)).state_dict()
        for seed in (1, 1, 2)
    )
    assert np.array_equal(one["in_proj_weight"], same["in_proj_weight"])
    assert not np.array_equal(one["in_proj_weight"], other["in_proj_weight"])


def test_assigned_parameters_are_used() -> None:
    """A parameter set by name takes part in the next call."""
    own = mha_numpy.MultiheadAttention(6, 3, rng=np.random.default_rng(0))
    x = np.ones((5, 2, 6), np.float32)
    before, _ = own(x, x, x)
    own.in_proj_weight = np.zeros((18, 6), np.float32)
    after, _ = own(x, x, x)
    assert not np.array_equal(before, after)
    assert np.array_equal(np.zeros_like(after), after)
