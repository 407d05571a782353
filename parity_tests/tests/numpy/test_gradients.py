"""The NumPy layer's vector-Jacobian product is torch's, in every feature, dtype and layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mha_torch
from mha_numpy import MultiheadAttention, scaled_dot_product_attention_vjp
from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import cotangent, make_problem
from mha_parity.core.arrays import merge_heads, split_heads
from mha_parity.core.candidate import Answer
from mha_parity.core.check_result import CheckResult
from mha_parity.core.features import AXES, make_offer
from mha_parity.core.problem import Problem
from mha_parity.judging.gradients import judge_gradients
from mha_parity.oracle.reference import reference_answer

if TYPE_CHECKING:
    from collections.abc import Iterable

N, L, S, E, H = 2, 5, 11, 12, 3
EPS = 2.0**-52
EVERYTHING: dict[str, Iterable[str]] = {
    axis: values
    for axis, values in AXES.items()
    if axis not in {"dtype", "size", "weights", "gradients"}
}
# The layer has all biases or none, and weights between all channels.
EVERYTHING |= {"bias": ("no", "yes"), "projection": ("packed", "separate", "none")}
DTYPES = ["float64", "float32", "float16", "bfloat16"]
ENGINES = ["plain", "flash"]
BUGS = {
    "query": lambda gradient: gradient * 1.01,
    "value": lambda gradient: gradient[:, ::-1],
    "out_proj.weight": lambda gradient: gradient.T,
    "in_proj_bias": lambda gradient: gradient * (np.arange(len(gradient)) > 0),
}


def layer_gradients(problem: Problem, engine: str) -> dict[str, Any]:
    """Return the gradients of a problem with projections, without weights requested."""
    state = problem.state()
    identity = "out_proj.weight" not in state
    width = problem.query.shape[2]
    layer = MultiheadAttention(
        width,
        problem.num_heads,
        bias=problem.b_q is not None,
        add_bias_kv=problem.bias_k is not None,
        add_zero_attn=problem.add_zero_attn,
        kdim=problem.key.shape[2],
        vdim=problem.value.shape[2],
        batch_first=True,
        dtype=problem.dtype,
        engine=engine,
    )
    plain = {"out_proj.weight": np.eye(width, dtype=problem.dtype)}
    layer.load_state_dict({**layer.state_dict(), **plain, **state})
    mask = problem.attn_mask
    if problem.is_causal:
        mask = np.triu(np.ones((problem.query.shape[1], problem.key.shape[1]), bool), 1)
    inputs = problem.query, problem.key, problem.value
    _, pull = layer.vjp(*inputs, problem.key_padding_mask, False, mask, is_causal=problem.is_causal)
    found = pull(cotangent(problem))
    kept = {name for name in found if not name.startswith("out_proj")} | set(state)
    return {name: found[name] for name in found if name in kept or not identity}


def core_gradients(problem: Problem, engine: str) -> dict[str, Any]:
    """Return the gradients of a problem on projected arrays, its masks given as one."""
    heads, groups = problem.num_heads, problem.num_kv_heads
    full = np.where(problem.hidden(), -np.inf, problem.additive()).astype(problem.dtype)
    _, pull = scaled_dot_product_attention_vjp(
        split_heads(problem.query, heads),
        split_heads(problem.key, groups),
        split_heads(problem.value, groups),
        np.broadcast_to(full, problem.weights_shape),
        scale=problem.given_scale,
        enable_gqa=groups != heads,
        engine=engine,
    )
    found = pull(np.ascontiguousarray(split_heads(cotangent(problem), heads)))
    named = {name: merge_heads(found[name]) for name in ("query", "key", "value")}
    wide = found["attn_mask"].astype(np.float64)
    if problem.attn_mask is not None and problem.attn_mask.ndim == 2:
        named["attn_mask"] = wide.sum(axis=(0, 1)).astype(problem.dtype)
    elif problem.attn_mask is not None:
        named["attn_mask"] = found["attn_mask"].reshape(problem.attn_mask.shape)
    named["key_padding_mask"] = wide.sum(axis=(1, 2)).astype(problem.dtype)
    return named


def judged(problem: Problem, found: dict[str, Any]) -> list[CheckResult]:
    """Judge gradients alone."""
    with np.errstate(all="ignore"):
        output = np.zeros(problem.output_shape)
        return judge_gradients(
            problem, reference_answer(problem), Answer(output=output, gradients=found)
        )


@pytest.mark.repeats(4)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_drawn_problems_are_judged_right(dtype: str, engine: str) -> None:
    """No gradient of 24 problems drawn over all features fails, fully masked rows among them."""
    offered = make_offer(**EVERYTHING, size=("small", "medium", "equal", "ones"), dtype=dtype)
    count = 0
    for case in draw_cases(offered, 24, 20261121):
        problem = make_problem(case)
        gradients = layer_gradients if case.form == "mha" else core_gradients
        for check_result in judged(problem, gradients(problem, engine)):
            assert not check_result.severity.fails, check_result
            count += 1
    assert count > 60, "most problems have gradients to judge"


@pytest.mark.parametrize("name", BUGS)
def test_a_wrong_gradient_is_judged_wrong(name: str) -> None:
    """The judge that finds nothing above finds a factor, an order, a transposition, a zero."""
    offered = make_offer(
        form="mha", dtype="float32", bias="yes", out_proj="general", projection="packed"
    )
    (case,) = draw_cases(offered, 1, 3)
    problem = make_problem(case)
    found = layer_gradients(problem, "plain")
    found[name] = np.ascontiguousarray(BUGS[name](found[name]))
    assert {f"gradient of {name}"} == {
        each.check for each in judged(problem, found) if each.severity.fails
    }


def drawn_layer(rng: np.random.Generator, **options: Any) -> MultiheadAttention:
    """A layer in float64 none of whose biases is zero."""
    layer = MultiheadAttention(E, H, dtype=np.float64, rng=rng, **options)
    for array in layer.named_arrays().values():
        array[...] += 0.3 * rng.standard_normal(array.shape)
    return layer


def drawn_mask(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Any:
    """A mask that hides some keys, or adds to them, or none."""
    if kind == "bool":
        return rng.random(shape) < 0.2
    return None if kind == "none" else rng.standard_normal(shape)


@given(
    seed=st.integers(0, 99),
    layout=st.sampled_from(["batch_first", "sequence_first", "unbatched"]),
    widths=st.sampled_from([{}, {"kdim": 7, "vdim": 5}]),
    switches=st.fixed_dictionaries(
        {name: st.booleans() for name in ("bias", "add_bias_kv", "add_zero_attn")}
    ),
    masks=st.tuples(
        st.sampled_from(["none", "bool", "float2d", "float3d"]),
        st.sampled_from(["none", "bool", "float"]),
    ),
    way=st.sampled_from([("flash", False), ("flash", True), ("plain", False), ("plain", True)]),
)
def test_every_layout_has_torchs_gradients(
    seed: int, layout: Any, widths: Any, switches: Any, masks: Any, way: tuple[str, bool]
) -> None:
    """All gradients, by name and shape, are those of torch's autograd in float64.

    Both compute in float64 along chains of six products with at most 40 terms, whose terms are
    of the order of the result: some hundred roundings of numbers of order 100, 2^-52 each.
    """
    rng = np.random.default_rng(seed)
    engine, need_weights = way
    layer = drawn_layer(
        rng, batch_first=layout == "batch_first", engine=engine, **widths, **switches
    )
    batch = 1 if layout == "unbatched" else N
    sizes = (batch, L, E), (batch, S, layer.kdim), (batch, S, layer.vdim), (batch, L, E)
    *inputs, given_back = (rng.standard_normal(size) for size in sizes)
    attn = drawn_mask(rng, masks[0], (batch * H, L, S) if masks[0] == "float3d" else (L, S))
    padding = drawn_mask(rng, masks[1], (batch, S))

    def laid_out(array: Any) -> Any:
        if layout == "unbatched":
            return array[0]
        return array.swapaxes(0, 1) if layout == "sequence_first" else array

    own_padding = padding[0] if padding is not None and layout == "unbatched" else padding
    query, key, value = inputs
    own = laid_out(query), laid_out(key), laid_out(value)
    _, pull = layer.vjp(*own, own_padding, need_weights, attn)
    found = pull(laid_out(given_back))
    expected = mha_torch.gradients(
        query,
        key,
        value,
        layer.state_dict(),
        given_back,
        num_heads=H,
        add_zero_attn=layer.add_zero_attn,
        key_padding_mask=padding,
        attn_mask=attn,
    )
    if any(np.isnan(each).any() for each in expected.values()):
        return  # a row without a key: torch has no answer, see test_numpy_gradients_rows
    assert set(expected) == set(found)
    for name, gradient in expected.items():
        wanted = laid_out(gradient) if name in {"query", "key", "value"} else gradient
        wanted = wanted.reshape(found[name].shape) if name == "key_padding_mask" else wanted
        assert wanted.shape == found[name].shape
        assert np.abs(wanted - found[name]).max() <= 1e4 * EPS


@pytest.mark.parametrize("average", [True, False], ids=["averaged", "per head"])
def test_weights_have_a_cotangent_of_their_own(average: bool) -> None:
    """Gradients of a function of output and weights are torch's, and not those of output alone."""
    rng = np.random.default_rng(7)
    layer = drawn_layer(rng, batch_first=True, add_bias_kv=True)
    theirs = torch.nn.MultiheadAttention(
        E, H, batch_first=True, add_bias_kv=True, dtype=torch.float64
    )
    theirs.load_state_dict({n: torch.from_numpy(a) for n, a in layer.state_dict().items()})
    x, y = rng.standard_normal((N, L, E)), rng.standard_normal((N, S, E))
    options: Any = {"average_attn_weights": average}
    (output, weights), pull = layer.vjp(x, y, y, **options)
    assert weights is not None
    of_output, of_weights = rng.standard_normal(output.shape), rng.standard_normal(weights.shape)
    leaves = [torch.from_numpy(each.copy()).requires_grad_() for each in (x, y, y)]
    results = theirs(*leaves, **options)
    pairs = zip(results, (of_output, of_weights), strict=True)
    total = sum((result * torch.from_numpy(g)).sum() for result, g in pairs)
    total.backward()
    found, without = pull(of_output, of_weights), pull(of_output)
    named: dict[str, Any] = dict(theirs.named_parameters())
    named |= dict(zip(("query", "key", "value"), leaves, strict=True))
    expected = {name: each.grad.numpy() for name, each in named.items()}
    assert set(expected) == set(found)
    for name, gradient in expected.items():
        assert np.abs(gradient - found[name]).max() <= 1e4 * EPS
    assert np.abs(expected["query"] - without["query"]).max() > 1e4 * EPS


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("engine", ENGINES)
def test_halves_are_float32_rounded_once(dtype: str, engine: str) -> None:
    """Gradients in a half dtype are bit for bit the float32 ones of the same numbers, rounded."""
    rng = np.random.default_rng(11)
    half = MultiheadAttention(E, H, add_bias_kv=True, dtype=dtype, rng=rng, engine=engine)
    wide = MultiheadAttention(E, H, add_bias_kv=True, engine=engine)
    wide.load_state_dict(half.state_dict())
    x, g, mask = (rng.standard_normal(s).astype(half.dtype) for s in ((L, N, E),) * 2 + ((L, L),))
    _, pull = half.vjp(x, x, x, need_weights=False, attn_mask=mask)
    x32, mask32 = x.astype(np.float32), mask.astype(np.float32)
    _, pull32 = wide.vjp(x32, x32, x32, need_weights=False, attn_mask=mask32)
    expected = pull32(g.astype(np.float32))
    for name, gradient in pull(g).items():
        assert half.dtype == gradient.dtype
        assert np.array_equal(expected[name].astype(half.dtype), gradient)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_parameters_assigned_after_the_call_change_no_gradient(dtype: type) -> None:
    """`pull` reads the parameters of the call, in a working dtype of its own or not."""
    layer = MultiheadAttention(6, 2, dtype=dtype, rng=np.random.default_rng(2))
    x: Any = np.random.default_rng(3).standard_normal((4, 2, 6)).astype(dtype)
    (output, _), pull = layer.vjp(x, x, x)
    expected = pull(np.ones_like(output))
    assert layer.in_proj_weight is not None
    layer.in_proj_weight = 2 * layer.in_proj_weight
    layer.out_proj = layer.out_proj._replace(weight=3 * layer.out_proj.weight)
    for name, gradient in pull(np.ones_like(output)).items():
        assert np.array_equal(expected[name], gradient), name
