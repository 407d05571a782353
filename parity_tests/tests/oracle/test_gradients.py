"""The oracle's gradients are the derivatives of the second oracle, measured in long double."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mha_torch import Path, PathNotTakenError, gradients, plain, sdpa_gradients
from mha_torch.example import example

SEEDS = range(4)
N, L, S, H = 2, 5, 11, 3

# Along directions of length 1 all derivatives are of order 1 to 100. The five-point difference
# errs by step^4 / 30 of the fifth, below 1e-11, and by roundoff / step, below 1e-14 with 80 bits.
STEP = np.longdouble(1e-3)
TOLERANCE = 1e-10

seeded = pytest.mark.parametrize("seed", SEEDS, ids="seed={}".format)


def slope(function: Any, tensors: dict[str, Any], direction: dict[str, Any]) -> Any:
    """Return the derivative of `function` at `tensors` along `direction`, in long double."""
    at = {
        steps: function({name: a + steps * STEP * direction[name] for name, a in tensors.items()})
        for steps in (-2, -1, 1, 2)
    }
    return (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * STEP)


def random_like(tensors: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Return directions of length 1 for each tensor."""
    parts = {name: rng.standard_normal(a.shape) for name, a in tensors.items()}
    return {name: part / np.linalg.norm(part) for name, part in parts.items()}


@seeded
@pytest.mark.parametrize("layout", ["batch_first", "sequence_first", "unbatched"])
def test_gradients_are_slopes(seed: int, layout: Any) -> None:
    """Along a random direction through inputs, weights and float masks, slope = gradient."""
    rng = np.random.default_rng(seed)
    widths: dict[str, Any] = {"kdim": 13, "vdim": 17} if seed % 2 else {}
    case = example(seed, bias_kv=True, **widths)
    inputs = ("query", "key", "value")
    masks: dict[str, Any] = {
        "attn_mask": rng.standard_normal((N * H, L, S) if seed % 2 else (L, S)),
        "key_padding_mask": rng.standard_normal((N, S)),
    }
    tensors = {"query": case.query, "key": case.key, "value": case.value, **case.state, **masks}
    cotangent = rng.standard_normal(case.query.shape)
    options: dict[str, Any] = {"num_heads": H, "add_zero_attn": True}

    def functional(at: dict[str, Any]) -> Any:
        state = {name: at[name] for name in case.state}
        given: dict[str, Any] = {name: at[name] for name in (*inputs, *masks)}
        stages = plain.stages(**given, state=state, dtype=np.longdouble, **options)
        return (stages.output * cotangent).sum()

    given: Any = {**masks, **options}
    found = gradients(*case.arrays, cotangent, layout=layout, **given)
    assert set(tensors) == set(found)
    for name, part in random_like(tensors, rng).items():
        direction = {n: part if n == name else np.zeros_like(a) for n, a in tensors.items()}
        expected = slope(functional, tensors, direction)
        assert tensors[name].shape == found[name].shape
        assert abs(expected - (found[name] * part).sum()) < TOLERANCE


@seeded
@pytest.mark.parametrize("scale", [None, 0.3])
def test_sdpa_gradients_are_slopes(seed: int, scale: float | None) -> None:
    """The same for the scaled dot-product attention, grouped heads and a float mask included."""
    rng = np.random.default_rng(seed)
    shapes = {"query": (N, 6, L, 7), "key": (N, 3, S, 7), "value": (N, 3, S, 13)}
    tensors: Any = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    tensors["attn_mask"] = rng.standard_normal((N, 1, L, S))
    cotangent = rng.standard_normal((N, 6, L, 13))

    def functional(at: dict[str, Any]) -> Any:
        stages = plain.sdpa_stages(**at, scale=scale, enable_gqa=True, dtype=np.longdouble)
        return (stages.output * cotangent).sum()

    direction = random_like(tensors, rng)
    found = sdpa_gradients(**tensors, cotangent=cotangent, scale=scale, enable_gqa=True)
    actual = sum((found[name] * direction[name]).sum() for name in tensors)
    assert abs(slope(functional, tensors, direction) - actual) < TOLERANCE


def test_slopes_would_notice() -> None:
    """A gradient off by one part in a million is farther from the slope than allowed."""
    case = example(0)
    direction = random_like({"query": case.query}, np.random.default_rng(1))
    cotangent = np.random.default_rng(2).standard_normal(case.query.shape)

    def functional(at: dict[str, Any]) -> Any:
        given = at["query"], case.key, case.value, case.state
        stages = plain.stages(*given, num_heads=H, dtype=np.longdouble)
        return (stages.output * cotangent).sum()

    expected = slope(functional, {"query": case.query}, direction)
    found = gradients(*case.arrays, cotangent, num_heads=H)["query"] * (1 + 1e-6)
    assert abs(expected - (found * direction["query"]).sum()) > TOLERANCE


def test_self_attention_has_three_gradients() -> None:
    """One array as query, key and value still gives a gradient for each role."""
    case = example(3, self_attention=True)
    found = gradients(*case.arrays, np.ones_like(case.query), num_heads=H)
    assert not np.allclose(found["query"], found["key"])
    assert not np.allclose(found["key"], found["value"])


def test_boolean_masks_have_no_gradient() -> None:
    """Only what is of floating point is differentiated."""
    case, hidden = example(3), np.zeros((L, S), dtype=bool)
    found = gradients(*case.arrays, np.ones_like(case.query), num_heads=H, attn_mask=hidden)
    assert {"query", "key", "value", *case.state} == set(found)


@pytest.mark.parametrize("path", [Path.FAST, Path.EVAL], ids=str)
def test_fast_path_has_no_gradients(path: Path) -> None:
    """Where torch would leave the path for want of a gradient, that is said."""
    case = example(3)
    with pytest.raises(PathNotTakenError, match="has no gradients"):
        gradients(*case.arrays, np.ones_like(case.query), num_heads=H, path=path)


@seeded
def test_paths_have_the_same_gradients(seed: int) -> None:
    """Without fully masked rows the SDPA path differentiates to the same numbers.

    Both are float64: their difference is some hundred roundings of numbers of order 10.
    """
    case = example(seed)
    cotangent = np.random.default_rng(seed).standard_normal(case.query.shape)
    pinned = gradients(*case.arrays, cotangent, num_heads=H)
    other = gradients(*case.arrays, cotangent, num_heads=H, path=Path.NO_WEIGHTS)
    differences = [np.abs(pinned[name] - other[name]).max() for name in pinned]
    assert np.max(differences) < 1000 * 2**-52
