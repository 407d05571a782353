"""One call of a layer, from sequences to sequences; the module and the functional form share it.

project -> split heads -> append keys -> attend -> merge heads -> output projection
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mha_numpy._check import (
    NEEDS_HINT_MASK,
    check_attn_mask,
    check_key_padding_mask,
    check_sequences,
    check_shapes,
)
from mha_numpy._dtypes import FLOAT64, require_same, to_floating, to_mask, working_dtype
from mha_numpy._engine import Size, choose_wide
from mha_numpy._masking import NO_MASK, Masking, causal_hidden, from_module_masks
from mha_numpy._products import holding_blas
from mha_numpy._projections import append_keys, linear, merge_heads, project_to_heads
from mha_numpy._route import attend_heads
from mha_numpy._shares import SHARED_FROM, by_heads, by_samples, cut_heads, cut_samples
from mha_numpy._wide import finite_or, layer_in_pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from mha_numpy._projections import Projections

    Three = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


class Options(NamedTuple):
    """What one call is asked for, in torch's words; `dropout_p` is 0 outside training."""

    num_heads: int
    add_zero_attn: bool = False
    batch_first: bool = False
    key_padding_mask: ArrayLike | None = None
    attn_mask: ArrayLike | None = None
    is_causal: bool = False
    need_weights: bool = True
    average_attn_weights: bool = True
    dropout_p: float = 0.0
    rng: np.random.Generator | None = None
    engine: str = "auto"
    static_k: NDArray[Any] | None = None
    static_v: NDArray[Any] | None = None


class Call(NamedTuple):
    """One call, checked: inputs batched, they and the parameters in the working dtype."""

    inputs: Three
    parameters: Projections
    masking: Masking
    options: Options
    batched: bool
    """Whether the caller's arrays have a batch axis."""
    dtype: np.dtype[Any]
    """The dtype of the caller's arrays."""

    def of_samples(self, samples: slice) -> Call:
        """Return the call with some of its samples; batch first."""
        inputs = _to_each(lambda x: x[samples], self.inputs)
        return self._replace(inputs=inputs, masking=self.masking.of_samples(samples))

    def of_heads(self, heads: slice) -> Call:
        """Return the call with some of its heads: their part of the output, without its bias."""
        options = self.options
        head_dim = self.inputs[0].shape[-1] // options.num_heads
        return self._replace(
            parameters=self.parameters.of_heads(heads, head_dim),
            masking=self.masking.of_heads(heads),
            options=options._replace(num_heads=heads.stop - heads.start),
        )


def layer_forward(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    parameters: Projections,
    widths: tuple[int, int, int],
    options: Options,
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return (output, weights or None) of multi-head attention, all inputs checked.

    `widths` are those of query, key and value.
    """
    call = check_call(query, key, value, parameters, widths, options)
    drops = options.dropout_p > 0
    size = _size(call)
    wide = choose_wide(options.engine, size, call.dtype, drops=drops)
    if wide:
        with holding_blas(size.multiplications):
            output, weights = _wide_attention(call)
    else:
        output, weights = _shared_attention(call, size.multiplications)
    if output.dtype != call.dtype:
        output = output.astype(call.dtype)
        weights = None if weights is None else weights.astype(call.dtype)
    if call.batched:
        return output, weights
    return output[0], None if weights is None else weights[0]


def check_call(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    parameters: Projections,
    widths: tuple[int, int, int],
    options: Options,
) -> Call:
    """Check all inputs and return them batched and in the working dtype."""
    dtype = parameters.out_proj.weight.dtype
    inputs = _floating_inputs(query, key, value, dtype)
    batched = check_sequences(*inputs, widths, options.batch_first)
    if not batched:
        inputs = _to_each(lambda x: x[None], inputs)
        options = options._replace(batch_first=True)
    if options.static_k is not None or options.static_v is not None:
        _check_statics(inputs, parameters, options)
    masking = _masking(inputs, parameters, options, dtype, batched=batched)
    working = working_dtype(dtype)
    if working != dtype:
        inputs = _to_each(lambda x: x.astype(working), inputs)
        parameters = parameters.astype(working)
    return Call(inputs, parameters, masking, options, batched, dtype)


def heads_of(call: Call) -> Three:
    """Return q (N, H, L, D), k and v (N, H, S, D), the appended keys among them."""
    inputs, parameters, masking, options, *_ = call
    heads, batch_first = options.num_heads, options.batch_first
    q, k, v = project_to_heads(*inputs, parameters, heads, batch_first=batch_first)
    if options.static_k is not None:
        k = options.static_k.reshape(k.shape[0], heads, -1, k.shape[-1]).astype(k.dtype)
    if options.static_v is not None:
        v = options.static_v.reshape(v.shape[0], heads, -1, v.shape[-1]).astype(v.dtype)
    if masking.appended:
        k, v = append_keys(
            k, v, parameters.bias_k, parameters.bias_v, zero_key=options.add_zero_attn
        )
    return q, k, v


def _size(call: Call) -> Size:
    """Return how large the problem is, its appended keys and biases left out."""
    (query, key, value), out_weight = call.inputs, call.parameters.out_proj.weight
    n, queries, keys = _extent(call)
    out_width, width = out_weight.shape
    # The input projections take each number of the inputs to all columns of the heads.
    inputs = query.size + key.size + value.size
    projections = inputs * width + n * queries * out_weight.size
    attention = 2 * n * queries * keys * width
    weights = (query.shape[-1] + key.shape[-1] + value.shape[-1] + out_width) * width
    return Size(projections + attention, inputs + weights)


def _extent(call: Call) -> tuple[int, int, int]:
    """Return the numbers of samples, of queries and of keys."""
    first, second, _ = call.inputs[0].shape
    batch_first = call.options.batch_first
    n, queries = (first, second) if batch_first else (second, first)
    return n, queries, call.inputs[1].shape[1 if batch_first else 0]


def _wide_attention(call: Call) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Compute the layer in float64, or a float64 layer in pairs of float64; not rounded yet.

    Pairs have no infinity: where they lead to no number, the ordinary way says what is there.
    """
    if call.dtype != FLOAT64:
        inputs = _to_each(lambda x: x.astype(FLOAT64), call.inputs)
        return _attention(call._replace(inputs=inputs, parameters=call.parameters.astype(FLOAT64)))
    if not call.inputs[0].size or not call.inputs[1].size:
        return _attention(call)
    output, weights = layer_in_pairs(call)
    if np.isfinite(output).all():
        return output, weights
    ordinary, ordinary_weights = _attention(call)
    if weights is not None and ordinary_weights is not None:
        weights = finite_or(weights, ordinary_weights)
    return finite_or(output, ordinary), weights


def _shared_attention(call: Call, multiplications: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Compute the layer, its samples or heads on several threads where that is worth it."""
    options = call.options
    together = options.dropout_p > 0 or options.static_k is not None or options.static_v is not None
    if together or multiplications < SHARED_FROM:
        return _attention(call)
    n, queries, keys = _extent(call)
    longest = max(queries, keys)
    samples = cut_samples(n, longest, multiplications) if options.batch_first else []
    if len(samples) > 1:
        return by_samples(call, samples, _attention)
    heads = cut_heads(options.num_heads, n * longest, multiplications)
    return by_heads(call, heads, _attention) if len(heads) > 1 else _attention(call)


def _attention(call: Call) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Compute the layer on checked, batched inputs of the working dtype."""
    options = call.options
    q, k, v = heads_of(call)
    heads_out, weights = attend_heads(
        q,
        k,
        v,
        call.masking,
        1 / math.sqrt(q.shape[-1]),
        need_weights=options.need_weights,
        dropout_p=options.dropout_p,
        rng=options.rng,
        engine=options.engine,
        average_weights=options.average_attn_weights,
    )
    merged = merge_heads(heads_out, batch_first=options.batch_first)
    out_proj = call.parameters.out_proj
    return linear(merged, out_proj.weight, out_proj.bias), weights


def _check_statics(inputs: Three, parameters: Projections, options: Options) -> None:
    """Raise unless static_k and static_v are (N*H, S, D) and nothing is to be appended to them."""
    batch, length = inputs[1].shape[:2] if options.batch_first else inputs[1].shape[1::-1]
    given = {"static_k": options.static_k, "static_v": options.static_v}
    if options.static_k is not None and options.static_v is not None:
        length = options.static_k.shape[1]
    head_dim = inputs[0].shape[-1] // options.num_heads
    shape = (batch * options.num_heads, length, head_dim)
    check_shapes(given, dict.fromkeys(given, shape))
    require_same(parameters.out_proj.weight.dtype, "the parameters' dtype", **given)
    if parameters.bias_k is not None:
        raise ValueError(
            "`bias_k` is given with `static_k` or `static_v`, but cannot be appended to them, as "
            "in torch; pass bias_k=None and bias_v=None."
        )


def _floating_inputs(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, dtype: np.dtype[Any]
) -> Three:
    """Return the inputs as arrays of the parameters' dtype, or raise TypeError.

    What came in as one object goes on as one object: it is then projected only once.
    """
    query_array = _floating(query, "query", dtype)
    key_array = query_array if key is query else _floating(key, "key", dtype)
    return (
        query_array,
        key_array,
        key_array if value is key else _floating(value, "value", dtype),
    )


def _floating(value: ArrayLike, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    if type(value) is np.ndarray and value.dtype == dtype:
        return value
    array = to_floating(value, name)
    require_same(dtype, "the parameters' dtype", **{name: array})
    return array


def _to_each(change: Callable[[NDArray[Any]], NDArray[Any]], inputs: Three) -> Three:
    """Apply `change` to the three inputs; what was one array stays one array."""
    query, key, value = inputs
    new_query = change(query)
    new_key = new_query if key is query else change(key)
    return new_query, new_key, new_key if value is key else change(value)


def _masking(
    inputs: Three,
    parameters: Projections,
    options: Options,
    dtype: np.dtype[Any],
    *,
    batched: bool,
) -> Masking:
    """Check both masks and return them in the one form that the engines read.

    `is_causal` says that attn_mask is the causal one. Where that is true the rule stands in for
    the array, which saves the streaming engine half of the work; where it is not, the mask counts.
    """
    appended = (parameters.bias_k is not None) + options.add_zero_attn
    attn_mask, key_padding_mask = options.attn_mask, options.key_padding_mask
    if attn_mask is None:
        if options.is_causal:
            raise ValueError(NEEDS_HINT_MASK)
        if key_padding_mask is None:
            return Masking(appended=appended) if appended else NO_MASK
    query, key, _ = inputs
    batch_axis, length_axis = (0, 1) if options.batch_first else (1, 0)
    batch, queries = query.shape[batch_axis], query.shape[length_axis]
    keys = key.shape[length_axis] if options.static_k is None else options.static_k.shape[1]
    pad = attn = None
    if key_padding_mask is not None:
        pad = to_mask(key_padding_mask, "key_padding_mask", dtype)
        pad = check_key_padding_mask(pad, batch, keys, batched)
    causal = False
    if attn_mask is not None:
        attn = to_mask(attn_mask, "attn_mask", dtype)
        check_attn_mask(attn, batch, options.num_heads, queries, keys)
        causal = options.is_causal and _is_the_causal_mask(attn)
    return from_module_masks(
        None if causal else attn, pad, options.num_heads, causal=causal, appended=appended
    )


def _is_the_causal_mask(mask: NDArray[Any]) -> bool:
    """Whether a mask hides exactly what the causal rule hides, and adds nothing."""
    if mask.ndim != 2:
        return False
    hidden = causal_hidden(*mask.shape)
    if mask.dtype == np.bool_:
        return np.array_equal(mask, hidden)
    return np.array_equal(mask, np.where(hidden, -np.inf, 0))
