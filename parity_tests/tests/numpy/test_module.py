"""The NumPy layer against torch.nn.MultiheadAttention in float64, over every option."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import mha_numpy
from mha_numpy.engines import dispatch

Array = NDArray[Any]

# Rounding errors grow in proportion to the unit roundoff. torch's own distance from float32 to
# float64 on the same problem, brought down to float64's roundoff, is thus the size to expect; a
# different order of the sums may well be some times worse on one problem, hence the factor.
FROM_FLOAT32 = float(np.finfo(np.float64).eps / np.finfo(np.float32).eps)
EVAL_ORDERS = 16.0


@dataclass(frozen=True)
class Call:
    """One constructor and one call of the layer, in numbers that say all about it."""

    seed: int = 0
    batch: int = 2
    queries: int = 5
    keys: int = 7
    head_dim: int = 3
    num_heads: int = 2
    batched: bool = True
    same: str = "cross"
    mask: str = "none"
    padding: str = "none"
    hint: bool = False
    need_weights: bool = True
    average: bool = True
    bias: bool = True
    add_bias_kv: bool = False
    add_zero_attn: bool = False
    other_widths: bool = False
    batch_first: bool = False
    engine: str = "auto"

    @property
    def constructor(self) -> dict[str, Any]:
        """The keywords of both constructors."""
        widths = {"kdim": 11, "vdim": 13} if self.other_widths else {}
        return {
            "embed_dim": self.head_dim * self.num_heads,
            "num_heads": self.num_heads,
            "bias": self.bias,
            "add_bias_kv": self.add_bias_kv,
            "add_zero_attn": self.add_zero_attn,
            "batch_first": self.batch_first,
            **widths,
        }


CALLS = st.builds(
    Call,
    seed=st.integers(0, 10**6),
    batch=st.integers(1, 4),
    queries=st.integers(1, 9),
    keys=st.integers(1, 9),
    head_dim=st.integers(1, 9),
    num_heads=st.integers(1, 5),
    batched=st.booleans(),
    same=st.sampled_from(["cross", "key is value", "self"]),
    mask=st.sampled_from(["none", "bool 2-D", "float 2-D", "bool 3-D", "float 3-D", "causal"]),
    padding=st.sampled_from(["none", "bool", "float"]),
    hint=st.booleans(),
    need_weights=st.booleans(),
    average=st.booleans(),
    bias=st.booleans(),
    add_bias_kv=st.booleans(),
    add_zero_attn=st.booleans(),
    other_widths=st.booleans(),
    batch_first=st.booleans(),
    engine=st.sampled_from(["plain", "flash"]),
)


def torch_layer(call: Call) -> torch.nn.MultiheadAttention:
    """A torch layer in float64 with every parameter, the biases too, drawn anew."""
    layer = torch.nn.MultiheadAttention(**call.constructor, dtype=torch.float64)
    generator = torch.Generator().manual_seed(call.seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(generator=generator)
    return layer


def numpy_layer(layer: torch.nn.MultiheadAttention, call: Call) -> mha_numpy.MultiheadAttention:
    """The NumPy layer with the same parameters."""
    own = mha_numpy.MultiheadAttention(**call.constructor, dtype=np.float64, engine=call.engine)
    own.load_state_dict(layer.state_dict())
    return own


def sequences(call: Call) -> tuple[Array, Array, Array]:
    """Query, key and value, the same object where the call says so."""
    rng = np.random.default_rng(call.seed)
    embed_dim = call.head_dim * call.num_heads
    kdim, vdim = (11, 13) if call.other_widths else (embed_dim, embed_dim)

    def draw(length: int, width: int) -> Array:
        if not call.batched:
            return rng.standard_normal((length, width))
        lead = (call.batch, length) if call.batch_first else (length, call.batch)
        return rng.standard_normal((*lead, width))

    query = draw(call.queries, embed_dim)
    if call.same == "self" and not call.other_widths:
        return query, query, query
    key = draw(call.keys, kdim)
    if call.same != "cross" and not call.other_widths:
        return query, key, key
    return query, key, draw(call.keys, vdim)


def masks(call: Call) -> dict[str, Any]:
    """attn_mask and key_padding_mask; key 0 stays visible, so that no row is empty."""
    rng = np.random.default_rng(call.seed + 1)
    keys = call.queries if call.same == "self" and not call.other_widths else call.keys
    batch = call.batch if call.batched else 1
    shape = (call.queries, keys)
    if call.mask.endswith("3-D"):
        shape = (batch * call.num_heads, *shape)  # type: ignore[assignment]  # a rank more
    options: dict[str, Any] = {}
    if call.mask == "causal":
        options["attn_mask"] = np.triu(np.ones(shape, np.bool_), 1)
    elif call.mask != "none":
        options["attn_mask"] = drawn_mask(rng, shape, call.mask.split()[0])
    if call.padding != "none":
        padding = drawn_mask(rng, (batch, keys), call.padding)
        options["key_padding_mask"] = padding if call.batched else padding[0]
    # The hint is passed where it is true: torch follows a wrong one on some of its paths.
    if call.hint and call.mask == "causal" and not (call.add_bias_kv or call.add_zero_attn):
        options["is_causal"] = True
    return options


def drawn_mask(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Array:
    """A mask that hides about a third and never key 0."""
    hidden = rng.random(shape) < 1 / 3
    hidden[..., 0] = False
    return hidden if kind == "bool" else np.where(hidden, -np.inf, rng.standard_normal(shape))


def as_torch(value: Any, dtype: torch.dtype) -> Any:
    """A tensor where an array comes in, floats in `dtype`; anything else unchanged."""
    if not isinstance(value, np.ndarray):
        return value
    tensor = torch.from_numpy(value)
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def torch_answer(
    layer: torch.nn.MultiheadAttention,
    inputs: tuple[Array, Array, Array],
    options: dict[str, Any],
    dtype: torch.dtype = torch.float64,
) -> list[Array]:
    """The output and weights of torch as float64 arrays."""
    tensors = {id(x): as_torch(x, dtype) for x in inputs}
    options = {name: as_torch(value, dtype) for name, value in options.items()}
    with torch.no_grad():
        answer = layer.to(dtype)(*(tensors[id(x)] for x in inputs), **options)
    return [x.double().numpy() for x in answer if x is not None]


def assert_as_torch(call: Call, actual: list[Array]) -> None:
    """Both answers have the same shapes and agree up to rounding."""
    layer, inputs = torch_layer(call), sequences(call)
    options = masks(call) | {
        "need_weights": call.need_weights,
        "average_attn_weights": call.average,
    }
    expected = torch_answer(layer, inputs, options)
    coarse = torch_answer(layer, inputs, options, torch.float32)
    assert [x.shape for x in expected] == [x.shape for x in actual]
    for want, near, result in zip(expected, coarse, actual, strict=True):
        roundoff = float(np.finfo(np.float64).eps) * np.abs(want).max()
        allowed = EVAL_ORDERS * (np.abs(near - want).max() * FROM_FLOAT32 + roundoff)
        assert np.abs(want - result).max() <= allowed


def own_answer(call: Call, **changes: Any) -> list[Array]:
    """The NumPy layer's output and weights."""
    own = numpy_layer(torch_layer(call), call)
    options = {"need_weights": call.need_weights, "average_attn_weights": call.average}
    query, key, value = sequences(call)
    answer = own(query, key, value, **(masks(call) | options | changes))
    return [x for x in answer if x is not None]


@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask:UserWarning")
@given(call=CALLS)
def test_layer_agrees_with_torch_over_all_options(call: Call) -> None:
    """Every combination of options gives torch's shapes and, up to rounding, torch's numbers."""
    assert_as_torch(call, own_answer(call))


BROKEN = [
    pytest.param(lambda own: object.__setattr__(own, "num_heads", 1), id="one head"),
    pytest.param(lambda own: own.in_proj_bias.__imul__(1 + 1e-9), id="bias off by 1e-9"),
    pytest.param(lambda own: own.out_proj.weight.__imul__(-1), id="sign of the output"),
    pytest.param(lambda own: own.bias_k.__imul__(0), id="no bias_k"),
]


@pytest.mark.parametrize("spoil", BROKEN)
def test_a_spoilt_layer_is_detected(spoil: Any) -> None:
    """The comparison with torch fails for a layer that is wrong in one place."""
    call = Call(add_bias_kv=True)
    own = numpy_layer(torch_layer(call), call)
    spoil(own)
    output, weights = own(*sequences(call))
    assert weights is not None
    with pytest.raises(AssertionError):
        assert_as_torch(call, [output, weights])


@pytest.mark.parametrize("need_weights", [True, False])
def test_rows_that_see_nothing_are_as_in_torch(need_weights: bool) -> None:
    """A fully masked row is NaN with weights and the output bias without, as in torch."""
    call = Call(need_weights=need_weights)
    layer, inputs = torch_layer(call), sequences(call)
    mask = np.zeros((call.queries, call.keys), np.bool_)
    mask[2] = True
    expected = torch_answer(layer, inputs, {"attn_mask": mask, "need_weights": need_weights})
    output, _ = numpy_layer(layer, call)(*inputs, attn_mask=mask, need_weights=need_weights)
    assert np.array_equal(np.isnan(expected[0]), np.isnan(output))
    assert np.isnan(output[2]).all() == need_weights
    if not need_weights:
        bias = layer.out_proj.bias.detach().numpy()
        assert np.array_equal(np.broadcast_to(bias, output[2].shape), output[2])


@pytest.mark.parametrize("engine", ["plain", "flash"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_nan_and_infinity_pass_through_as_in_torch(bad: float, which: int, engine: str) -> None:
    """NaN and infinity in an input reach the same places of the output as in torch."""
    call = Call(mask="bool 2-D", padding="bool", engine=engine)
    layer, inputs = torch_layer(call), tuple(x.copy() for x in sequences(call))
    inputs[which][3, 1, 2] = bad
    query, key, value = inputs
    expected = torch_answer(layer, (query, key, value), masks(call))
    actual = numpy_layer(layer, call)(query, key, value, **masks(call))
    assert np.isnan(expected[0]).any()
    for want, result in zip(expected, actual, strict=True):
        assert result is not None
        assert np.array_equal(np.isnan(want), np.isnan(result))


@pytest.mark.parametrize("empty", ["batch", "queries", "keys"])
@pytest.mark.parametrize("need_weights", [True, False])
def test_empty_axes_are_as_in_torch(empty: str, need_weights: bool) -> None:
    """No batch, no queries and no keys give torch's shapes, and for no keys the output bias."""
    sizes: dict[str, Any] = {empty: 0}
    call = replace(Call(need_weights=need_weights), **sizes)
    expected = torch_answer(torch_layer(call), sequences(call), {"need_weights": need_weights})
    actual = own_answer(call)
    for want, result in zip(expected, actual, strict=True):
        assert want.shape == result.shape
        assert np.array_equal(want, result)


def test_wrong_hint_leaves_the_mask_in_force() -> None:
    """With is_causal beside a mask that is not the causal one, the mask counts on every path."""
    for need_weights in (True, False):
        call = Call(mask="float 2-D", need_weights=need_weights)
        for without, hinted in zip(own_answer(call), own_answer(call, is_causal=True), strict=True):
            assert np.array_equal(without, hinted)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_true_hint_changes_nothing(kind: str) -> None:
    """The causal rule that stands in for a causal mask gives the mask's own answer."""
    call = Call(queries=7, need_weights=False, add_zero_attn=True)
    own, inputs = numpy_layer(torch_layer(call), call), sequences(call)
    hidden = np.triu(np.ones((7, 7), np.bool_), 1)
    mask = hidden if kind == "bool" else np.where(hidden, -np.inf, 0.0)
    plain, _ = own(*inputs, attn_mask=mask, need_weights=False)
    hinted, _ = own(*inputs, attn_mask=mask, need_weights=False, is_causal=True)
    assert np.allclose(plain, hinted, rtol=0, atol=EVAL_ORDERS * np.finfo(np.float64).eps * 100)


@pytest.mark.parametrize("static", ["static_k", "static_v", "both"])
def test_functional_form_takes_static_keys_and_values(static: str) -> None:
    """multi_head_attention_forward agrees with torch's where static_k and static_v stand in."""
    call = Call()
    layer, inputs = torch_layer(call), sequences(call)
    rng = np.random.default_rng(3)
    shape = (call.batch * call.num_heads, call.keys, call.head_dim)
    names = ("static_k", "static_v") if static == "both" else (static,)
    statics = {name: rng.standard_normal(shape) for name in names}
    state = {name: x.numpy() for name, x in layer.state_dict().items()}
    arrays = (state["in_proj_weight"], state["in_proj_bias"], None, None, False, 0.0)
    rest = (state["out_proj.weight"], state["out_proj.bias"])
    sizes = (call.head_dim * call.num_heads, call.num_heads)
    given = [*inputs, *sizes, *arrays, *rest]
    assert_functional_form(given, statics)


@pytest.mark.parametrize("width", [1, 5, 6, 11])
@pytest.mark.parametrize("most", [dispatch.MOST_PLAIN, 35], ids=["whole", "shares"])
def test_an_output_may_be_of_another_width(
    width: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """out_proj_weight is (E_out, E): also where samples are computed in shares of the batch."""
    monkeypatch.setattr(dispatch, "MOST_PLAIN", 2 * most)
    call = Call(batch=6)
    layer, inputs = torch_layer(call), sequences(call)
    rng = np.random.default_rng(5)
    embed_dim = call.head_dim * call.num_heads
    out_proj = rng.standard_normal((width, embed_dim)), rng.standard_normal(width)
    state = {name: x.numpy() for name, x in layer.state_dict().items()}
    arrays = (state["in_proj_weight"], state["in_proj_bias"], None, None, False, 0.0)
    assert_functional_form([*inputs, embed_dim, call.num_heads, *arrays, *out_proj], {})


def test_static_keys_of_no_sample() -> None:
    """An empty batch comes back empty, as torch's does."""
    x, keys = np.zeros((3, 0, 4)), np.zeros((0, 5, 2))
    sizes = (4, 2, np.zeros((12, 4)), None, None, None, False, 0.0, np.zeros((4, 4)), None)
    output, weights = mha_numpy.multi_head_attention_forward(
        x, x, x, *sizes, static_k=keys, static_v=keys
    )
    assert weights is not None
    assert ((3, 0, 4), (0, 3, 5)) == (output.shape, weights.shape)


def assert_functional_form(given: list[Any], statics: dict[str, Array]) -> None:
    """Hold that the functional form gives torch's output and weights in float64."""
    expected = torch.nn.functional.multi_head_attention_forward(
        *(as_torch(x, torch.float64) for x in given),
        **{name: as_torch(x, torch.float64) for name, x in statics.items()},
    )
    own: Any = mha_numpy.multi_head_attention_forward
    actual = own(*given, **statics)
    for want, result in zip(expected, actual, strict=True):
        assert want is not None
        assert result is not None
        assert want.shape == result.shape
        tolerance = EVAL_ORDERS * np.finfo(np.float64).eps * want.abs().max().item()
        assert np.abs(want.numpy() - result).max() <= tolerance


@pytest.mark.parametrize(("name", "value"), [("dropout", 7.0), ("dropout", "x"), ("engine", "gpu")])
def test_options_are_checked_as_they_are_assigned(name: str, value: object) -> None:
    """The error names the attribute that was assigned, and the layer is as it was."""
    layer = mha_numpy.MultiheadAttention(4, 2)
    before = dict(vars(layer))
    with pytest.raises((TypeError, ValueError), match=f"`{name}` is {value!r}, but should be"):
        setattr(layer, name, value)
    assert before == vars(layer)
