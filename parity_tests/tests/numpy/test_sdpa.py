"""scaled_dot_product_attention in NumPy against torch's, over shapes, masks and options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mha_numpy import scaled_dot_product_attention

Array = NDArray[Any]
EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Problem:
    """The axes and options of one call."""

    seed: int = 0
    outer: tuple[int, ...] = (2,)
    groups: int = 1
    kv_heads: int = 3
    queries: int = 5
    keys: int = 7
    width: int = 4
    value_width: int = 6
    mask: str = "none"
    scale: float | None = None
    engine: str = "auto"

    @property
    def options(self) -> dict[str, Any]:
        """The keywords of both functions."""
        return {
            "is_causal": self.mask == "causal",
            "scale": self.scale,
            "enable_gqa": self.groups > 1,
        }


PROBLEMS = st.builds(
    Problem,
    seed=st.integers(0, 10**6),
    outer=st.sampled_from([(), (2,), (3, 1), (2, 1, 3)]),
    groups=st.integers(1, 3),
    kv_heads=st.integers(1, 3),
    queries=st.integers(1, 9),
    keys=st.integers(1, 9),
    width=st.integers(1, 9),
    value_width=st.integers(1, 9),
    mask=st.sampled_from(["none", "causal", "bool", "float", "bool per head", "float full"]),
    scale=st.sampled_from([None, 0.0, 0.3, -1.0, 2.0]),
    engine=st.sampled_from(["auto", "plain", "plain", "flash"]),
)


def arrays(problem: Problem) -> tuple[Array, Array, Array, Array | None]:
    """Query, key, value and mask of a problem."""
    rng = np.random.default_rng(problem.seed)
    heads = problem.groups * problem.kv_heads
    q = rng.standard_normal((*problem.outer, heads, problem.queries, problem.width))
    k = rng.standard_normal((*problem.outer, problem.kv_heads, problem.keys, problem.width))
    v = rng.standard_normal((*problem.outer, problem.kv_heads, problem.keys, problem.value_width))
    if problem.mask in {"none", "causal"}:
        return q, k, v, None
    pair = (problem.queries, problem.keys)
    lead = {"per head": (heads, 1), "full": (*problem.outer, heads)}
    kind, _, extent = problem.mask.partition(" ")
    shape = (*lead.get(extent, ())[:1], *pair) if extent == "per head" else pair
    shape = (*lead["full"], *pair) if extent == "full" else shape
    keep = rng.random(shape) < 2 / 3
    mask: Array = keep if kind == "bool" else np.where(keep, rng.standard_normal(shape), -np.inf)
    return q, k, v, mask


def torch_sdpa(*arrays: Array | None, **options: Any) -> Array:
    """The output of torch's function as an array."""
    function: Any = torch.nn.functional.scaled_dot_product_attention
    answer = function(*(None if x is None else torch.from_numpy(x) for x in arrays), **options)
    return np.asarray(answer)


def torch_answer(problem: Problem) -> Array:
    """The output of torch's function for a problem."""
    return torch_sdpa(*arrays(problem), **problem.options)


def allowed(problem: Problem) -> float:
    """Bound the difference of two correct float64 answers.

    A logit of `width` products is off by at most width * eps * sum|q||k| * scale, twice that is
    the relative error of a weight, and each of `keys` weights adds an eps of its own; all times
    the largest value, for each of the two answers.
    """
    q, k, v, mask = arrays(problem)
    scale = problem.width**-0.5 if problem.scale is None else abs(problem.scale)
    size = scale * problem.width * np.abs(q).max() * np.abs(k).max()
    if mask is not None and mask.dtype != np.bool_ and np.isfinite(mask).any():
        size += np.abs(mask[np.isfinite(mask)]).max()
    weight = 2 * (problem.width + 3) * size + problem.keys + 8
    return float(2 * EPS * weight * np.abs(v).max())


def assert_as_torch(problem: Problem, actual: Array) -> None:
    """Shape, dtype and numbers are torch's."""
    expected = torch_answer(problem)
    assert expected.shape == actual.shape
    assert expected.dtype == actual.dtype
    assert np.abs(expected - actual).max() <= allowed(problem)


def scales_by_zero() -> bool:
    """Whether torch takes a scale of 0; some before made NaN of hidden keys, 0 * -inf."""
    x = torch.ones((1, 2, 3))
    function: Any = torch.nn.functional.scaled_dot_product_attention
    return not function(x, x, x, is_causal=True, scale=0.0).isnan().any()


@given(problem=PROBLEMS)
def test_function_agrees_with_torch_over_all_options(problem: Problem) -> None:
    """Any leading axes, grouped heads, masks and scales give torch's answer; empty rows give 0."""
    assume(problem.scale != 0 or scales_by_zero())
    q, k, v, mask = arrays(problem)
    actual = scaled_dot_product_attention(q, k, v, mask, **problem.options, engine=problem.engine)
    assert_as_torch(problem, actual)


@pytest.mark.parametrize(
    ("name", "spoilt"),
    [
        ("polarity", {"mask": lambda mask: ~mask}),
        ("value order", {"v": lambda v: v[:, :, ::-1]}),
        ("scale", {"q": lambda q: q * (1 + 1e-12)}),
        ("heads", {"k": lambda k: k[:, ::-1]}),
    ],
)
def test_a_spoilt_call_is_detected(name: str, spoilt: dict[str, Any]) -> None:
    """The comparison with torch fails for an answer that is wrong in one thing."""
    problem = Problem(mask="bool")
    given_arrays = dict(zip(("q", "k", "v", "mask"), arrays(problem), strict=True))
    for key, change in spoilt.items():
        given_arrays[key] = change(given_arrays[key])
    actual = scaled_dot_product_attention(*given_arrays.values())  # type: ignore[arg-type]  # all are arrays here
    with pytest.raises(AssertionError):
        assert_as_torch(problem, actual)
    assert name


BROADCASTS = [
    ((3, 5, 4), (7, 4), (7, 6)),
    ((2, 3, 5, 4), (3, 7, 4), (1, 1, 7, 6)),
    ((5, 4), (2, 3, 7, 4), (3, 7, 6)),
    ((2, 1, 3, 5, 4), (1, 2, 1, 7, 4), (7, 6)),
    ((5, 4), (7, 4), (7, 6)),
]


@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
def test_leading_axes_broadcast_as_in_torch(shapes: tuple[tuple[int, ...], ...]) -> None:
    """Leading axes of query, key and value broadcast against each other."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape) for shape in shapes)
    expected = torch_sdpa(q, k, v)
    actual = scaled_dot_product_attention(q, k, v)
    assert expected.shape == actual.shape
    assert np.abs(expected - actual).max() <= 100 * EPS * np.abs(v).max()


def test_key_and_value_may_have_unlike_numbers_of_heads() -> None:
    """With enable_gqa torch lets key and value each repeat to query's heads; so do we."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 6, 5, 4)), rng.standard_normal((2, 3, 7, 4))
    v = rng.standard_normal((2, 2, 7, 6))
    expected = torch_sdpa(q, k, v, enable_gqa=True)
    actual = scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert np.abs(expected - actual).max() <= 100 * EPS * np.abs(v).max()


@pytest.mark.parametrize("empty", ["queries", "keys", "width"])
def test_empty_axes_are_as_in_torch(empty: str) -> None:
    """No queries gives an empty answer, no keys zeros, no width the mean of the values."""
    sizes: dict[str, Any] = {empty: 0}
    problem = Problem(**sizes)
    expected = torch_answer(problem)
    q, k, v, _ = arrays(problem)
    actual = scaled_dot_product_attention(q, k, v)
    assert expected.shape == actual.shape
    assert np.allclose(expected, actual, rtol=0, atol=10 * EPS)


@pytest.mark.parametrize("magnitude", [20.0, 200.0, 2000.0, 1e6])
@pytest.mark.parametrize("shift", [0.0, -1e4])
def test_large_logits_stay_finite_and_right(magnitude: float, shift: float) -> None:
    """Logits past 709, where exp overflows, and rows far below 0 give torch's answer."""
    problem = Problem(mask="float")
    q, k, v, mask = arrays(problem)
    assert mask is not None
    mask[:, 0] = 0
    mask += shift
    expected = torch_sdpa(q * magnitude, k, v, mask)
    actual = scaled_dot_product_attention(q * magnitude, k, v, mask)
    # Twice the error of the largest logit, relative to each weight.
    tolerance = allowed(problem) * max(magnitude, 1) + 4 * EPS * abs(shift) * np.abs(v).max()
    assert np.isfinite(actual).all()
    assert np.abs(expected - actual).max() <= tolerance


def test_a_mask_of_five_axes_over_no_key() -> None:
    """Rows that see no key are 0, also where S is 0 and the mask has an axis of its own."""
    q, k = np.ones((2, 3, 2, 4, 5)), np.ones((2, 3, 2, 0, 5))
    for mask in (np.ones((2, 1, 1, 4, 0), bool), np.zeros((2, 3, 2, 4, 0))):
        assert np.array_equal(np.zeros_like(q), scaled_dot_product_attention(q, k, k, mask))


@pytest.mark.parametrize("engine", ["plain", "flash"])
def test_a_row_whose_only_score_is_infinite_is_that_of_torch(engine: str) -> None:
    """The row of -inf is 0, as one without keys, and those of inf and NaN are NaN.

    Kills a plain engine whose row of -inf is NaN where there is no mask.
    """
    q, k, v = np.array([[1.0], [-1.0], [0.0]]), np.array([[np.inf]]), np.array([[2.0]])
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        query, key, value = (torch.from_numpy(each)[None, None] for each in (q, k, v))
        found = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    actual = scaled_dot_product_attention(q, k, v, engine=engine)
    assert [[True], [False], [True]] == np.isnan(actual).tolist()
    np.testing.assert_array_equal(actual, found[0, 0].numpy())
