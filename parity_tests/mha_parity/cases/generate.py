"""From a case to its problem: draws the arrays and shapes them to the regime."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.fixed_sizes import at_fixed_sizes
from mha_parity.cases.masks import draw_masks
from mha_parity.cases.rng import SPREAD, Stream, largest_number, numpy_dtype, round_once
from mha_parity.core import head_projections
from mha_parity.core.features import EXTREME_VALUES
from mha_parity.core.problem import Problem

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case

# What a regime multiplies the logits by. exp leaves its range at 11 (float16), 88 (float32) and
# 709 (float64); a logit of the standard problem has standard deviation 1 and stays below 12.
LOGIT_FACTOR = {"peaky": 10.0}
HUGE = {"float16": 30.0, "bfloat16": 60.0, "float32": 60.0, "float64": 400.0}
DEPTH = {"float16": 20.0, "bfloat16": 150.0, "float32": 150.0, "float64": 1000.0}
LOUD = {"float16": 1e3}  # V x 1e4 would pass float16's largest number
OFFSET = 8.0
TINY = 0.05
# Magnitudes by dtype that are powers of two below its smallest normal number.
SUBNORMAL = {
    "float16": 2.0**-16,
    "bfloat16": 2.0**-128,
    "float32": 2.0**-128,
    "float64": 2.0**-1024,
}
RISE, STEPS = 12.0, 4.0  # logits between first and last key; how far the key's first channel goes
SLOPES = {"rising": 1.0, "falling": -1.0}
# Regimes that shape query, key and value unlike.
BY_ROLE = {"constant", "wide_range", *SLOPES, *EXTREME_VALUES}
# What a given scale is of the default: 0 is no default, and a negative one turns the order of keys.
# With is_causal torch's paths disagree on both: flash multiplies the -inf of hidden keys by it.
GIVEN_SCALES = (0.0, 0.5, -0.625, 0.75, 0.875, 1.0, 1.125, -0.75)
# These keep further streams separate from the problem's.
COTANGENT, SHARED, SCALES, EXTREME = 0xC07A << 32, 0x5A4E << 32, 0x5CA1 << 32, 0xE874 << 32
# A weight that the largest number is multiplied by is below this: its product leaves room for sums.
MOST_WEIGHT = 0.5
SHARES = ("", "key", "key", "value", "value")  # what the query is too, where three may differ


def make_problem(case: Case) -> Problem:
    """Return the problem that ``case`` describes: the same bits on every machine."""
    case = at_fixed_sizes(case)
    stream = Stream(case.seed)
    arrays = _weighted(case, stream) if case.form == "mha" else _projected(case, stream)
    masks = draw_masks(case, stream)
    if case.regime in EXTREME_VALUES:
        _put_extremes(case, arrays)
    factor = scale_factor(case)
    scale = None if factor is None else factor / math.sqrt(case.head_dim)
    dtype = numpy_dtype(case.dtype)
    cast: dict[int, Array] = {}  # one object stays one object: self-attention passes x three times
    stored = {
        name: array if array.dtype == bool else cast.setdefault(id(array), round_once(array, dtype))
        for name, array in (arrays | masks).items()
    }
    return Problem(case=case, given_scale=scale, single_call=False, **stored)


def _put_extremes(case: Case, arrays: dict[str, Array]) -> None:
    """Put infinity, or the largest number of both signs, into one head's values of one sample.

    Into one channel at one key; the largest negative number at another key in another channel,
    where there are two of both, so that no sum has two large terms.
    """
    stream = Stream(case.seed ^ EXTREME)
    value, sample = arrays["value"], stream.below(case.batch)
    heads = 1 if case.form == "mha" else case.kv_heads_count or case.heads_count
    width = value.shape[2] // heads
    first = width * stream.below(heads)
    key, channel = stream.below(case.keys), stream.below(width)
    infinite = case.regime == "infinite_value"
    extreme = math.inf if infinite else largest_number(case.dtype)
    value[sample, key, first + channel] = extreme
    chosen = [first + channel]
    if not infinite and case.keys > 1 and width > 1:
        other = (key + 1 + stream.below(case.keys - 1)) % case.keys
        chosen.append(first + (channel + 1) % width)
        value[sample, other, chosen[1]] = -extreme
    if case.form == "mha" and not infinite:
        column = arrays["w_v"][:, chosen]
        arrays["w_v"][:, chosen] = np.clip(column, -MOST_WEIGHT, MOST_WEIGHT) / len(chosen)


def scale_factor(case: Case) -> float | None:
    """Return what the given scale is of the default; None where none is given."""
    if case.scale != "given":
        return None
    factor = GIVEN_SCALES[Stream(case.seed ^ SCALES).below(len(GIVEN_SCALES))]
    return abs(factor) or 1.0 if case.attn == "causal" else factor


def query_shared_with(case: Case) -> str:
    """Return which of key and value the query is too where the case says distinct, by the seed."""
    able = case.inputs == "distinct" and case.projection not in {"separate", "none"}
    if not able or case.queries != case.keys or case.regime in BY_ROLE:
        return ""
    return SHARES[Stream(case.seed ^ SHARED).below(len(SHARES))]


def _weighted(case: Case, stream: Stream) -> dict[str, Array]:
    """Return inputs and weights of a whole layer."""
    width = case.embed_dim
    kdim, vdim = case.kdim or width, case.vdim or width
    query, key, value = _inputs(case, stream, kdim, vdim)
    arrays = {
        "w_q": stream.normal(width, width) / math.sqrt(max(width, 1)),
        "w_k": stream.normal(width, kdim) / math.sqrt(max(kdim, 1)),
        "w_v": stream.normal(width, vdim) / math.sqrt(max(vdim, 1)),
    }
    if case.bias in {"yes", "in"}:
        arrays |= {name: stream.normal(width) / 2 for name in ("b_q", "b_k", "b_v")}
    if case.bias_kv == "yes":
        arrays |= {name: stream.normal(width) for name in ("bias_k", "bias_v")}
    if case.out_proj == "general":
        arrays["w_out"] = stream.normal(width, width) / math.sqrt(max(width, 1))
        if case.bias in {"yes", "out"}:
            arrays["b_out"] = stream.normal(width)
    if case.regime == "subnormal":
        arrays["w_k"][::3] *= SUBNORMAL[case.dtype]
    if case.projection in head_projections.PROJECTIONS:  # sums over D channels, not over E
        for name in ("w_q", "w_k", "w_v"):
            arrays[name] *= math.sqrt(case.heads_count)
    _share_between_heads(case, arrays)
    _shape_weights(case, arrays)
    _share_between_heads(case, arrays)
    return {"query": query, "key": key, "value": value} | arrays


def _share_between_heads(case: Case, arrays: dict[str, Array]) -> None:
    """Give all heads of a group the weights of its key head, or each its own channels, in place."""
    if case.projection in head_projections.PROJECTIONS:
        held = {name: arrays[name] for name in head_projections.ARRAYS & arrays.keys()}
        arrays |= head_projections.restricted(case, held)
    if case.kv_heads == "equal":
        return
    groups = case.heads_count // case.kv_heads_count
    for name in {"w_k", "w_v", "b_k", "b_v"} & arrays.keys():
        heads = arrays[name].reshape(case.heads_count, case.head_dim, -1)
        arrays[name] = heads[::groups].repeat(groups, axis=0).reshape(arrays[name].shape)


def _inputs(case: Case, stream: Stream, kdim: int, vdim: int) -> tuple[Array, Array, Array]:
    """Return query, key and value; one array three times in self-attention."""
    query = stream.normal(case.batch, case.queries, case.embed_dim)
    key = query if case.inputs == "self" else stream.normal(case.batch, case.keys, kdim)
    shared = case.inputs != "distinct"
    value = key if shared else stream.normal(case.batch, case.keys, vdim)
    if query_shared_with(case):
        key, value = (query, value) if query_shared_with(case) == "key" else (key, query)
    factor = TINY if case.regime == "tiny" else 1.0
    seen: dict[int, Array] = {}
    shaped = partial(_shape_rows, case, factor, seen)
    return shaped(query, is_query=True), shaped(key), shaped(value, is_value=True)


def _shape_rows(
    case: Case,
    factor: float,
    seen: dict[int, Array],
    array: Array,
    *,
    is_query: bool = False,
    is_value: bool = False,
) -> Array:
    """Return ``array`` as the regime wants its rows, each object once."""
    if id(array) not in seen:
        rows = array * factor
        if case.regime == "ties" and not is_value:
            rows[:, 1::2] = rows[:, : 2 * (rows.shape[1] // 2) : 2]
        if case.regime == "constant" and not is_query and not is_value:
            rows[:] = rows[:, :1]
        if case.regime == "zeros":
            rows[:, ::3], rows[:, 1::3, ::2] = 0.0, -0.0
        if case.regime == "subnormal":
            rows[:, ::2] *= SUBNORMAL[case.dtype]
        is_key = not is_value and (case.inputs == "self" or not is_query)
        if case.regime in SLOPES and case.form == "mha" and is_key:
            rows[..., 0] += _slope(case, rows.shape[1])
        if case.regime == "wide_range" and is_query:
            rows[:, ::2] *= 2 * HUGE[case.dtype]
        seen[id(array)] = rows
    return seen[id(array)]


def _logit_factor(case: Case) -> float:
    return HUGE[case.dtype] if case.regime == "huge" else LOGIT_FACTOR.get(case.regime, 1.0)


def _shape_weights(case: Case, arrays: dict[str, Array]) -> None:
    """Scale and shift the freshly drawn weights, in place, to the regime."""
    factor = _logit_factor(case)
    arrays["w_q"] *= factor
    for name in ("w_v", "b_v", "bias_v"):
        if name in arrays and case.regime == "large_head":
            arrays[name][: case.head_dim] *= LOUD.get(case.dtype, 1e4)
    if "b_q" not in arrays:
        return
    arrays["b_q"] *= factor
    if case.regime == "very_negative":
        arrays["b_q"] += _sink(case)
        arrays["b_k"] -= _sink(case)
    if case.regime == "offset":
        arrays["b_v"] += OFFSET
    if case.regime in SLOPES:
        # q gains t W_k e_0, so that its product with W_k e_0 of each key is t |W_k e_0|^2.
        width = arrays["w_k"].shape[1]
        arrays["b_q"] += arrays["w_k"][:, 0] * (RISE / STEPS * width / math.sqrt(case.head_dim))


def _slope(case: Case, length: int) -> Array:
    """Return what is added to the first channel of each key: from 0 to 4, or from 4 to 0."""
    steps = np.arange(length) * (STEPS / max(length - 1, 1))
    return steps[:: int(SLOPES[case.regime])]


def _sink(case: Case) -> float:
    """Return c with c * c * sqrt(D) = depth: added to q and taken from k, it sinks all logits."""
    return math.sqrt(DEPTH[case.dtype] / math.sqrt(max(case.head_dim, 1)))


def _projected(case: Case, stream: Stream) -> dict[str, Array]:
    """Return Q, K, V as projections X W of one or two inputs; exact products, so the same bits.

    Where one array is all three it is drawn itself.
    """
    if case.projection == "one_array":
        x = stream.normal(case.batch, case.queries, case.embed_dim)
        x = _shape_rows(case, TINY if case.regime == "tiny" else 1.0, {}, x)
        return dict.fromkeys(("query", "key", "value"), x * math.sqrt(_logit_factor(case)))
    heads, kv_heads = case.heads_count, case.kv_heads_count or case.heads_count
    width = case.embed_dim
    x = stream.integers(case.batch, case.queries, width)
    y = x if case.inputs == "self" else stream.integers(case.batch, case.keys, width)
    unit = 1 / (SPREAD * SPREAD * math.sqrt(max(width, 1)))

    def project(rows: Array, columns: int) -> Array:
        return (rows @ stream.integers(width, columns)) * unit

    query = project(x, heads * case.head_dim)
    key = project(y, kv_heads * case.head_dim)
    value = project(y, kv_heads * (case.v_head_dim or case.head_dim))
    query, key, value = (
        _shape_rows(case, TINY if case.regime == "tiny" else 1.0, {}, a, is_query=q, is_value=v)
        for a, q, v in ((query, True, False), (key, False, False), (value, False, True))
    )
    query *= _logit_factor(case)
    if case.regime == "very_negative":
        query += _sink(case)
        key -= _sink(case)
    if case.regime in SLOPES:
        query[..., :: case.head_dim] += RISE / STEPS * math.sqrt(case.head_dim)
        key[..., :: case.head_dim] += _slope(case, case.keys)[:, None]
    if case.regime == "offset":
        value += OFFSET
    if case.regime == "large_head":
        value[..., : case.v_head_dim or case.head_dim] *= LOUD.get(case.dtype, 1e4)
    return {"query": query, "key": key, "value": value}


def cotangent(problem: Problem) -> Array:
    """Return the vector of the vector-Jacobian product, (N, L, H Dv), in the problem's dtype."""
    drawn = Stream(problem.case.seed ^ COTANGENT).normal(*problem.output_shape)
    return round_once(drawn, problem.dtype)


def with_dtype(case: Case, dtype: str) -> Case:
    """Return the case in another dtype: the same draws, rounded otherwise."""
    return dataclasses.replace(case, dtype=dtype)
