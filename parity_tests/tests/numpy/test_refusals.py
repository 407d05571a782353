"""The table of bad input: each row reads like the call, and its message is matched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import mha_numpy
from mha_numpy import multi_head_attention_forward, scaled_dot_product_attention

if TYPE_CHECKING:
    from collections.abc import Callable

    from _pytest.mark.structures import ParameterSet


def row(call: str, message: str, error: type[Exception] = ValueError) -> ParameterSet:
    """One row: a call as one would type it, and what it must say."""
    return pytest.param(call, message, error, id=call)


def ones(*shape: int, dtype: Any = np.float32) -> Any:
    """An array of ones, short to read inside a call."""
    return np.ones(shape, dtype)


LAYER = mha_numpy.MultiheadAttention(6, 3)
WIDE = mha_numpy.MultiheadAttention(6, 3, kdim=5, vdim=4)
FIRST = mha_numpy.MultiheadAttention(6, 3, batch_first=True)
DROPS = mha_numpy.MultiheadAttention(6, 3, dropout=0.5, engine="flash")
X, Y = ones(5, 2, 6), ones(7, 2, 6)
Q, K, V = ones(2, 3, 5, 4), ones(2, 3, 7, 4), ones(2, 3, 7, 6)
W, B, WO, BO = ones(18, 6), ones(18), ones(6, 6), ones(6)
STATE = LAYER.state_dict()
NAMES: dict[str, Any] = {
    "MultiheadAttention": mha_numpy.MultiheadAttention,
    "sdpa": scaled_dot_product_attention,
    "forward": multi_head_attention_forward,
    "layer": LAYER,
    "wide": WIDE,
    "batch_first_layer": FIRST,
    "dropping_flash_layer": DROPS,
    "x": X,
    "y": Y,
    "q": Q,
    "k": K,
    "v": V,
    "w": W,
    "b": B,
    "wo": WO,
    "bo": BO,
    "ones": ones,
    "np": np,
    "torch": torch,
    "state": STATE,
}

ASSIGNED = [
    row("setattr(layer, 'in_proj_weight', None)", "`in_proj_weight` is None, but should be an arr"),
    row("setattr(layer, 'bias_k', ones(1, 1, 6))", "`bias_k` is an array, but should be None in"),
    row("setattr(layer, 'out_proj', (wo, None))", "`out_proj` is of type tuple, but", TypeError),
    row(
        "setattr(layer, 'out_proj', layer.out_proj._replace(bias=None))",
        "`out_proj.bias` is None, but should be an array in this layer; make another layer",
    ),
    row("setattr(layer, 'num_heads', 2)", "`num_heads` is 3 as the layer was", AttributeError),
    row("setattr(layer, 'head_dim', 3)", "`head_dim` is 2 as the layer was", AttributeError),
    row("setattr(layer, 'embed_dim', 9)", "`embed_dim` is 6 as the layer was", AttributeError),
    row("setattr(layer, 'kdim', 9)", "`kdim` is 6 as the layer was", AttributeError),
    row("setattr(layer, 'vdim', 9)", "`vdim` is 6 as the layer was", AttributeError),
    row("setattr(layer, 'dtype', np.float64)", "`dtype` is float32 as the", AttributeError),
    row("setattr(layer, 'engine', 'gpu')", "`engine` is 'gpu', but should be one of"),
]

CONSTRUCTOR = [
    row("MultiheadAttention(7, 3)", "`embed_dim` 7 is not divisible by `num_heads` 3"),
    row("MultiheadAttention(0, 3)", "`embed_dim` is 0, but should be at least 1"),
    row("MultiheadAttention(6, 0)", "`num_heads` is 0, but should be at least 1"),
    row("MultiheadAttention(6, -3)", "`num_heads` is -3, but should be at least 1"),
    row("MultiheadAttention(6.0, 3)", "`embed_dim` is 6.0, but should be an integer", TypeError),
    row("MultiheadAttention(6, True)", "`num_heads` is True, but should be an", TypeError),
    row("MultiheadAttention(6, 3, kdim=0)", "`kdim` is 0, but should be at least 1"),
    row("MultiheadAttention(6, 3, vdim='4')", "`vdim` is '4', but should be an", TypeError),
    row("MultiheadAttention(6, 3, dropout=1.5)", "`dropout` is 1.5, but should be between 0 and 1"),
    row("MultiheadAttention(6, 3, dropout=-0.5)", "`dropout` is -0.5, but should be between"),
    row("MultiheadAttention(6, 3, dropout=np.nan)", "`dropout` is nan, but should be between"),
    row("MultiheadAttention(6, 3, dropout='a')", "`dropout` is 'a', but should be a", TypeError),
    row(
        "MultiheadAttention(6, 3, dtype=int)", "`dtype` is int64, but should be float64", TypeError
    ),
    row("MultiheadAttention(6, 3, dtype='c8')", "`dtype` is complex64, but", TypeError),
    row("MultiheadAttention(6, 3, dtype='foo')", "`dtype` is 'foo', but should be", TypeError),
    row("MultiheadAttention(6, 3, rng=0)", "`rng` is 0, but should be a numpy.random", TypeError),
    row("MultiheadAttention(6, 3, engine='gpu')", "`engine` is 'gpu', but should be one of"),
]

INPUTS = [
    row("layer(ones(6), y, y)", r"`query` has shape \(6,\), but should be 3-D, or 2-D"),
    row("layer(ones(1, 5, 2, 6), y, y)", r"`query` has shape \(1, 5, 2, 6\), but should be 3-D"),
    row("layer(x, y[0], y)", r"`key` has shape \(2, 6\), but should be 3-D as `query` is"),
    row("layer(x[0], y[0], y)", r"`value` has shape \(7, 2, 6\), but should be 2-D as `query`"),
    row("layer(ones(5, 2, 4), y, y)", r"`query` has shape \(5, 2, 4\), .* should be 6 wide"),
    row("layer(x, ones(7, 2, 5), y)", r"`key` has shape \(7, 2, 5\), .* should be 6 wide"),
    row("layer(x, y, ones(7, 2, 4))", r"`value` has shape \(7, 2, 4\), .* should be 6 wide"),
    row("wide(x, y, ones(7, 2, 4))", r"`key` has shape \(7, 2, 6\), .* should be 5 wide"),
    row("wide(x, ones(7, 2, 5), y)", r"`value` has shape \(7, 2, 6\), .* should be 4 wide"),
    row("layer(x, y, y[:6])", r"`value` has shape \(6, 2, 6\) and `key` has \(7, 2, 6\)"),
    row("layer(x, y[:, :1], y[:, :1])", r"`key` has shape \(7, 1, 6\) and `query` has \(5, 2, 6\)"),
    row("batch_first_layer(x, y, y)", r"axis 0, the batch, .* mind batch_first=True"),
    row("layer(x.astype(int), y, y)", "`query` has dtype int64, but should be float64", TypeError),
    row("layer(x, y.astype(bool), y)", "`key` has dtype bool, but should be float64", TypeError),
    row("layer(x, y, y.astype(object))", "`value` has dtype object, but", TypeError),
    row("layer(x + 0j, y, y)", "`query` has dtype complex64, but should be", TypeError),
    row(
        "layer(x.astype('f8'), y, y)",
        "`query` has dtype float64, .* parameters' dtype float32",
        TypeError,
    ),
    row(
        "layer(x, y.astype('f2'), y)",
        "`key` has dtype float16, .* parameters' dtype float32",
        TypeError,
    ),
    row("layer(np.ma.masked_array(x), y, y)", "`query` is a masked array", TypeError),
    row("layer([[1.0], [1.0, 2.0]], y, y)", "`query` is a list that NumPy cannot", TypeError),
    row("layer('text', y, y)", "`query` has dtype <U4, but should be", TypeError),
    row("layer(None, y, y)", "`query` has dtype object, but should be", TypeError),
    row("layer(x, y, y, need_weights=True, is_causal=True)", "`is_causal` is True and `attn_mask`"),
    row(
        "layer(x, y, y, need_weights=False, is_causal=True)", "`is_causal` is True and `attn_mask`"
    ),
    row("dropping_flash_layer(x, y, y)", "`engine` is 'flash', but dropout needs all weights"),
    row("dropping_flash_layer(x, y, y, need_weights=False)", "`engine` is 'flash', but dropout"),
]

MASKS = [
    row("layer(x, y, y, attn_mask=ones(5, 6))", r"`attn_mask` has shape \(5, 6\), .* \(5, 7\) or"),
    row("layer(x, y, y, attn_mask=ones(7, 5))", r"`attn_mask` has shape \(7, 5\)"),
    row("layer(x, y, y, attn_mask=ones(7))", r"`attn_mask` has shape \(7,\)"),
    row("layer(x, y, y, attn_mask=ones(2, 5, 7))", r"= \(6, 5, 7\); reshape it"),
    row("layer(x, y, y, attn_mask=ones(2, 3, 5, 7))", r"`attn_mask` has shape \(2, 3, 5, 7\)"),
    row("layer(x[:, 0], y[:, 0], y[:, 0], attn_mask=ones(6, 5, 7))", r"= \(3, 5, 7\)"),
    row("layer(x, y, y, ones(7))", r"`key_padding_mask` has shape \(7,\), .* \(N, S\) = \(2, 7\)"),
    row("layer(x, y, y, ones(7, 2))", r"`key_padding_mask` has shape \(7, 2\)"),
    row("layer(x, y, y, ones(2, 5))", r"`key_padding_mask` has shape \(2, 5\)"),
    row("layer(x[:, 0], y[:, 0], y[:, 0], ones(1, 7))", r"should be \(S,\) = \(7,\)"),
    row(
        "layer(x, y, y, attn_mask=ones(5, 7, dtype=int))", "`attn_mask` has dtype int64", TypeError
    ),
    row("layer(x, y, y, ones(2, 7, dtype='u1'))", "`key_padding_mask` has dtype uint8", TypeError),
    row("layer(x, y, y, attn_mask=ones(5, 7, dtype='f8'))", "dtype float64, but", TypeError),
    row("layer(x, y, y, attn_mask=ones(5, 7, dtype='f2'))", "dtype float16, but", TypeError),
    row("layer(x, y, y, attn_mask=ones(5, 7, dtype=object))", "dtype object, but", TypeError),
    row("sdpa(q, k, v, ones(7))", r"`attn_mask` has shape \(7,\), but should be at least 2-D"),
    row("sdpa(q, k, v, ones(5, 6))", r"broadcast to \(..., L, S\) = \(2, 3, 5, 7\)"),
    row("sdpa(q, k, v, ones(1, 1, 1, 5, 7))", r"`attn_mask` has shape \(1, 1, 1, 5, 7\)"),
    row("sdpa(q[:1], k[:1], v[:1], ones(2, 3, 5, 7))", r"= \(1, 3, 5, 7\)"),
    row("sdpa(q, k, v, ones(5, 7, dtype=int))", "`attn_mask` has dtype int64", TypeError),
    row(
        "sdpa(q, k, v, ones(5, 7), is_causal=True)", "`is_causal` is True and `attn_mask` is given"
    ),
]

FUNCTIONS = [
    row("sdpa(ones(4), k, v)", r"`query` has shape \(4,\), but should be at least 2-D"),
    row("sdpa(q, k[..., :3], v)", r"`key` has shape \(2, 3, 7, 3\) .* last axes should agree"),
    row("sdpa(q, k, v[:, :, :6])", r"`value` has shape \(2, 3, 6, 6\) .* lengths \(axis -2\)"),
    row("sdpa(q, ones(2, 2, 7, 4), ones(2, 2, 7, 4))", "leading axes .* enable_gqa=True"),
    row("sdpa(q, k[:, :2], v[:, :2], enable_gqa=True)", "have 2 and 2 heads, .* the 3 heads"),
    row("sdpa(q[0, 0], k[0, 0], v[0, 0], enable_gqa=True)", "`enable_gqa` needs an axis of heads"),
    row("sdpa(q, ones(5, 3, 7, 4), v, enable_gqa=True)", "leading axes .* should broadcast"),
    row(
        "sdpa(q, k.astype('f8'), v)",
        "`key` has dtype float64, .* dtype of `query`, float32",
        TypeError,
    ),
    row("sdpa(q.astype(int), k, v)", "`query` has dtype int64, but should be", TypeError),
    row("sdpa(q, k, v, dropout_p=1.5)", "`dropout_p` is 1.5, but should be between 0 and 1"),
    row("sdpa(q, k, v, dropout_p=0.5)", "`dropout_p` is 0.5 and `rng` is None"),
    row("sdpa(q, k, v, dropout_p=0.5, rng=7)", "`rng` is 7, but should be", TypeError),
    row("sdpa(q, k, v, scale='big')", "`scale` is 'big', but should be a number", TypeError),
    row("sdpa(q, k, v, engine='fast')", "`engine` is 'fast', but should be one of"),
    row("forward(x, y, y, 6, 4, w, b, None, None, False, 0.0, wo, bo)", "not divisible by"),
    row("forward(x, y, y, 8, 4, w, b, None, None, False, 0.0, wo, bo)", "`in_proj_weight` has sha"),
    row("forward(x, y, y, 6, 3, None, b, None, None, False, 0.0, wo, bo)", "`in_proj_weight` is N"),
    row("forward(x, y, y, 6, 3, w[0], b, None, None, False, 0.0, wo, bo)", "should be 2-D"),
    row("forward(x, y, y, 6, 3, w, b[:6], None, None, False, 0.0, wo, bo)", "`in_proj_bias` has s"),
    row("forward(x, y, y, 6, 3, w, b, ones(1, 1, 6), None, False, 0.0, wo, bo)", "go together"),
    row("forward(x, y, y, 6, 3, w, b, None, None, False, 0.5, wo, bo)", "`dropout_p` is 0.5 and"),
    row("forward(x, y, y, 6, 3, w, b, None, None, False, 0.0, wo[:, :4], bo)", "out_proj_weight"),
    row("forward(x, y, y, 6, 3, w, b, None, None, False, 0.0, wo, ones(4))", "`out_proj_bias`"),
    row(
        "forward(x, y, y, 6, 3, w.astype('f8'), b, None, None, False, 0.0, wo, bo)",
        "float64",
        TypeError,
    ),
    row(
        "forward(x, y, y, 6, 3, w, b, None, None, False, 0.0, wo, bo, static_k=ones(5, 7, 2))",
        r"`static_k` has shape \(5, 7, 2\), but should be \(6, 7, 2\)",
    ),
    row(
        "forward(x, y, y, 6, 3, w, b, ones(1, 1, 6), ones(1, 1, 6), False, 0.0, wo, bo, "
        "static_v=ones(6, 7, 2))",
        "`bias_k` is given with `static_k` or `static_v`",
    ),
    row(
        "forward(x, y, y, 6, 3, w, b, None, None, False, 0.0, wo, bo, "
        "use_separate_proj_weight=True)",
        "`q_proj_weight` is None, but use_separate_proj_weight=True needs it",
    ),
]

STATES = [
    row("layer.load_state_dict({})", r"`state_dict` lacks \['in_proj_weight', 'in_proj_bias'"),
    row("layer.load_state_dict(state | {'foo': wo})", r"has \['foo'\] beyond"),
    row("layer.load_state_dict(wide.state_dict())", "lacks .*in_proj_weight.* has .*q_proj_weight"),
    row("layer.load_state_dict(state | {'out_proj.bias': ones(4)})", r"has shape \(4,\), but sh"),
    row("layer.load_state_dict(state | {'out_proj.bias': ones(6, dtype=int)})", "int64", TypeError),
    row("layer.load_state_dict(state | {'out_proj.bias': 'text'})", "has dtype <U4", TypeError),
    row(
        "layer.load_state_dict([1, 2])",
        "`state_dict` is a list, but should be a mapping",
        TypeError,
    ),
    row("setattr(layer, 'in_proj_bias', ones(6))", r"`in_proj_bias` has shape \(6,\), but should"),
    row(
        "setattr(layer, 'in_proj_bias', b.astype('f8'))",
        "`in_proj_bias` has dtype float64",
        TypeError,
    ),
]


@pytest.mark.parametrize(
    ("call", "message", "error"), [*CONSTRUCTOR, *ASSIGNED, *INPUTS, *MASKS, *FUNCTIONS, *STATES]
)
def test_bad_input_is_refused_with_a_sentence(
    call: str, message: str, error: type[Exception]
) -> None:
    """Each row of the table raises its error: what was got, what should be, the remedy."""
    with pytest.raises(error, match=message) as caught:
        eval(call, dict(NAMES))  # noqa: S307 (the rows of the table above, so that ids read like calls)
    text = str(caught.value)
    assert text.endswith("."), "a whole sentence"
    assert "\n" not in text
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("refused", ["missing", "unexpected", "misshaped", "read-only"])
def test_a_refused_state_dict_leaves_the_layer_as_it_was(refused: str) -> None:
    """A state dict is taken whole or not at all."""
    layer = mha_numpy.MultiheadAttention(6, 3, rng=np.random.default_rng(0))
    before = layer.state_dict()
    state: dict[str, Any] = {name: array + 1 for name, array in before.items()}
    if refused == "missing":
        del state["out_proj.bias"]
    elif refused == "unexpected":
        state["q_proj_weight"] = ones(6, 6)
    elif refused == "read-only":
        layer.out_proj.weight.flags.writeable = False
    else:
        state["out_proj.bias"] = ones(5)
    said = "`out_proj.weight` is read-only" if refused == "read-only" else "state_dict"
    with pytest.raises(ValueError, match=said):
        layer.load_state_dict(state)
    for name, array in layer.state_dict().items():
        assert np.array_equal(before[name], array)


def typed_calls() -> list[Callable[[], Any]]:
    """Calls near the rows of the table that are all well."""
    return [
        lambda: LAYER(X, Y, Y, attn_mask=ones(6, 5, 7)),
        lambda: LAYER(X, Y, Y, ones(2, 7, dtype=bool) ^ True),
        lambda: LAYER(X[:, 0], Y[:, 0], Y[:, 0], ones(7), attn_mask=ones(3, 5, 7)),
        lambda: WIDE(X, ones(7, 2, 5), ones(7, 2, 4)),
        lambda: LAYER(torch.ones(5, 2, 6), Y, Y),
        lambda: scaled_dot_product_attention(Q, K, V, ones(5, 1)),
        lambda: scaled_dot_product_attention(Q, K[:, :1], V[:, :1], enable_gqa=True),
        lambda: LAYER.load_state_dict(STATE, strict=False),
    ]


@pytest.mark.parametrize("index", range(len(typed_calls())))
def test_good_neighbours_of_the_table_are_taken(index: int) -> None:
    """What lies right beside the refused calls is computed: numbers, or a layer with its state."""
    found = typed_calls()[index]()
    if index == len(typed_calls()) - 1:
        assert np.array_equal(STATE["out_proj.bias"], LAYER.state_dict()["out_proj.bias"])
    else:
        output = found[0] if isinstance(found, tuple) else found
        assert np.isfinite(np.asarray(output)).all()
