"""Before anyone is judged, the two oracles must agree on the same problem.

They share no code, so a slip in one (a mask the wrong way round, heads merged in another order)
shows as a difference that rounding cannot explain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Required, TypedDict, Unpack

import numpy as np

from mha_torch import plain
from mha_torch._forward import multihead_attention
from mha_torch._paths import PINNED, Path
from mha_torch._sdpa import scaled_dot_product_attention
from mha_torch.bound import attention_bound, sdpa_bound, unit_roundoff

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mha_torch._problem import Layout
    from mha_torch.plain import Array


class OraclesDisagreeError(RuntimeError):
    """The two oracles differ by more than rounding explains; no candidate can be judged by them."""


class AttentionOptions(TypedDict, total=False):
    """The options of one multi-head attention."""

    num_heads: Required[int]
    add_zero_attn: bool
    key_padding_mask: Array | None
    attn_mask: Array | None
    is_causal: bool


class SdpaOptions(TypedDict, total=False):
    """The options of one scaled dot-product attention."""

    attn_mask: Array | None
    is_causal: bool
    scale: float | None
    enable_gqa: bool


def agree(
    query: Array,
    key: Array,
    value: Array,
    state: Mapping[str, Array],
    *,
    layout: Layout = "batch_first",
    path: Path = PINNED,
    extended: plain.Float = np.longdouble,
    oracle: Callable[..., tuple[Array, Array | None]] = multihead_attention,
    stages: plain.Stages | None = None,
    **options: Unpack[AttentionOptions],
) -> float:
    """Return the largest difference of the two oracles in units of the rounding bound.

    Parameters
    ----------
    query, key, value, state, layout, path, options
        As in `multihead_attention`.
    extended
        What the second oracle computes in: `np.longdouble` or `np.float64`.
    oracle
        What answers for torch, in float64.
    stages
        Those of the second oracle on this very problem, where they are known already.

    Raises
    ------
    OraclesDisagreeError
        If NaN or infinity stand at different places, or a difference passes the sum of what
        rounding in float64 and rounding in `extended` can do (see `mha_torch.bound`).
    """
    output, weights = oracle(query, key, value, state, layout=layout, path=path, **options)
    if stages is None:
        stages = plain.stages(query, key, value, state, dtype=extended, **options)
    bound = attention_bound(query, key, value, state, stages, unit=_unit(extended), tiny=_TINY)
    units = _compared("output", output, stages.output, bound.output)
    if weights is None:
        return units
    return max(units, _compared("weights", weights, stages.weights, bound.weights))


def agree_sdpa(
    query: Array,
    key: Array,
    value: Array,
    *,
    extended: plain.Float = np.longdouble,
    oracle: Callable[..., Array] = scaled_dot_product_attention,
    **options: Unpack[SdpaOptions],
) -> float:
    """Do for `scaled_dot_product_attention` what `agree` does for `multihead_attention`."""
    output = oracle(query, key, value, **options)
    stages = plain.sdpa_stages(query, key, value, dtype=extended, **options)
    bound = sdpa_bound(stages, _unit(extended), options.get("scale"), _TINY)
    return _compared("output", output, stages.heads, bound)


_TINY = float(np.finfo(np.float64).smallest_normal)


def _unit(extended: plain.Float) -> float:
    """Return the roundoff of both oracles together."""
    return unit_roundoff(np.float64) + unit_roundoff(extended)


def _compared(name: str, first: Array, second: Array, allowed: Array) -> float:
    """Return the largest difference over what is allowed, or raise at the first place beyond it."""
    if first.shape != second.shape:
        msg = f"{name}: torch gives the shape {first.shape}, plain NumPy {second.shape}."
        raise OraclesDisagreeError(msg)
    with np.errstate(invalid="ignore", divide="ignore"):
        difference = np.abs(first - second)
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        units = np.where(same, 0.0, difference / allowed).astype(np.float64)
    units = np.where(np.isnan(units), np.inf, units)
    worst = float(units.max(initial=0.0))
    if worst > 1:
        place = tuple(int(i) for i in np.unravel_index(int(units.argmax()), units.shape))
        msg = (
            f"{name}{list(place)}: torch gives {first[place]}, plain NumPy {second[place]}; "
            f"rounding explains a difference of {allowed[place]:.3g}."
        )
        raise OraclesDisagreeError(msg)
    return worst
