"""Attention in more digits than it answers in, rounded once: float64 in pairs (see `_pairs`).

    q, k, v = projections    logits = scale * q k^T + masks    P = softmax    out = (P v) W^T + b

A logit of 1600 in float64 is off by up to 1e-13, and so is every weight in proportion. Here it is
not, and an output is off by a rounding or two of its largest number. (float32 takes the ordinary
way, in float64.) It takes five to eight times the ordinary time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy._pairs import Pair, inverse_root, product, quotient, two_sum
from mha_numpy._projections import append_keys, input_projections, merge_heads, split_heads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mha_numpy._layer import Call
    from mha_numpy._masking import Masking

    Results = tuple[NDArray[Any], NDArray[Any] | None]
    Three = tuple[Pair, Pair, Pair]


def layer_in_pairs(call: Call) -> Results:
    """Return output and weights of a float64 layer; NaN where a number is too large or none."""
    options = call.options
    q, k, v = _heads_of(call)
    heads_out, weights = attend_in_pairs(
        q,
        k,
        v,
        call.masking,
        inverse_root(q.high.shape[-1]),
        empty_rows_are_zero=not (options.need_weights or call.masking.is_empty),
    )
    merged = heads_out.map(lambda part: merge_heads(part, batch_first=options.batch_first))
    out_proj = call.parameters.out_proj
    output = _linear(merged, out_proj.weight, out_proj.bias).high
    if not options.need_weights:
        return output, None
    return output, weights.mean(axis=1) if options.average_attn_weights else weights


def finite_or(numbers: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers, and the others where there are none."""
    return np.where(np.isfinite(numbers), numbers, others)


def attend_in_pairs(
    q: Pair,
    k: Pair,
    v: Pair,
    masking: Masking,
    scale: tuple[float, float],
    *,
    empty_rows_are_zero: bool,
) -> tuple[Pair, NDArray[Any]]:
    """Return (heads_out, weights) as `_materialised.attend` does, the weights rounded.

    Everything up to the exponents is in pairs: there an error counts as many times as the logit
    is large. The powers are float64; what is summed of them is in pairs again.
    """
    group = q.high.shape[1] // k.high.shape[1]
    if group > 1:
        k, v = (rows.map(lambda part: np.repeat(part, group, axis=1)) for rows in (k, v))
    logits = product(q, k.map(lambda rows: rows.swapaxes(2, 3))).times(scale)
    queries, keys = logits.high.shape[-2:]
    additive = masking.additive(queries, keys, np.float64)
    if additive is not None:
        logits = logits.plus(additive)
    powers = _powers(logits, empty_rows_are_zero=empty_rows_are_zero)
    mixed = product(Pair(powers), _with_ones(v))
    sums = mixed.map(lambda part: part[..., -1:])
    sums.high[sums.high == 0] = 1
    heads_out = quotient(mixed.map(lambda part: part[..., :-1]), sums)
    return heads_out, powers / sums.high


def _heads_of(call: Call) -> Three:
    """Return q (N, H, L, D), k and v (N, H, S, D), the appended keys among them."""
    inputs, parameters, masking, options, *_ = call
    packed, bias = parameters.in_proj_weight, parameters.in_proj_bias
    if packed is not None and inputs[0] is inputs[1] is inputs[2]:
        q, k, v = _projected(inputs[0], packed, bias, call, parts=3)
    else:
        projections = zip(inputs, *input_projections(parameters), strict=True)
        q, k, v = (_projected(*each, call, parts=1)[0] for each in projections)
    if options.static_k is not None:
        k = Pair(options.static_k.reshape(*k.high.shape[:2], -1, k.high.shape[-1]))
    if options.static_v is not None:
        v = Pair(options.static_v.reshape(*v.high.shape[:2], -1, v.high.shape[-1]))
    if not masking.appended:
        return q, k, v
    biases = parameters.bias_k, parameters.bias_v
    exact = (None if each is None else np.zeros_like(each) for each in biases)
    high = append_keys(k.high, v.high, *biases, zero_key=options.add_zero_attn)
    low = append_keys(k.low, v.low, *exact, zero_key=options.add_zero_attn)
    return q, Pair(high[0], low[0]), Pair(high[1], low[1])


def _projected(
    x: NDArray[Any], weight: NDArray[Any], bias: NDArray[Any] | None, call: Call, *, parts: int
) -> list[Pair]:
    """Return so many projections of x, (N, H, L, D) each."""
    options = call.options
    rows = _linear(Pair(x), weight, bias).map(
        lambda part: split_heads(part, parts, options.num_heads, options.batch_first)
    )
    return [Pair(high, low) for high, low in zip(rows.high, rows.low, strict=True)]


def _linear(x: Pair, weight: NDArray[Any], bias: NDArray[Any] | None) -> Pair:
    """Return x @ weight.T + bias over the last axis."""
    *lead, width = x.high.shape
    rows = product(x.map(lambda part: part.reshape(-1, width)), Pair(weight.T))
    rows = rows if bias is None else rows.plus(bias)
    return rows.map(lambda part: part.reshape(*lead, -1))


def _powers(logits: Pair, *, empty_rows_are_zero: bool) -> NDArray[Any]:
    """Return exp(logit - the row's largest); rows of -inf are NaN, or 0."""
    peak = np.maximum.reduce(logits.high, axis=-1, keepdims=True)
    if empty_rows_are_zero:
        np.maximum(peak, np.finfo(np.float64).min, out=peak)
    distance, rest = two_sum(logits.high, -peak)
    rest += logits.low
    powers: NDArray[Any] = np.exp(distance, out=distance)
    rest[powers == 0] = 0  # there the distance may be -inf, and the rest no number
    rest *= powers
    powers += rest
    return powers


def _with_ones(v: Pair) -> Pair:
    """Append a column of ones, which turns into the sums of the rows that meet it."""
    shape = (*v.high.shape[:-1], 1)
    return Pair(
        np.concatenate((v.high, np.ones(shape)), axis=-1),
        np.concatenate((v.low, np.zeros(shape)), axis=-1),
    )
