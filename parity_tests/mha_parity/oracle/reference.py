"""The reference answer to a problem: torch's pinned path in float64, from exactly upcast inputs.

A float64 problem asks for more digits than that: its reference is the second oracle in long double
(where the platform has a wider one), which torch's float64 answer has to meet. In both cases the
two oracles must agree on the problem before anybody is judged by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

import mha_torch
from mha_parity.core.arrays import merge_heads, split_heads
from mha_parity.oracle.recorded import torch_result
from mha_torch import plain

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_torch.agreement import AttentionOptions, SdpaOptions
    from mha_torch.plain import Float

EXTENDED: Float = (
    np.longdouble if np.finfo(np.longdouble).eps < np.finfo(np.float64).eps else np.float64
)
REFERENCE = "reference"  # the kind of result of a record
# Oracles closer than this many float64 roundings agree; others are held against the whole bound.
AGREEING_ROUNDINGS = 64


@dataclass(frozen=True, eq=False, kw_only=True)
class Reference:
    """The right answer and the stages on the way to it, in more digits than the problem's dtype.

    q (N, H, L, D), k (N, H, S', D), v (N, H, S', Dv): one key head for every query head, even where
    heads are grouped; logits and weights (N, H, L, S'); heads (N, H, L, Dv); output (N, L, H Dv).
    Rows that see no key are NaN.
    """

    q: Array
    k: Array
    v: Array
    logits: Array
    weights: Array
    heads: Array
    output: Array

    @cached_property
    def averaged(self) -> Array:
        """The weights averaged over heads, (N, L, S')."""
        return np.asarray(self.weights.mean(axis=1))


def reference_answer(problem: Problem) -> Reference:
    """Return the reference answer.

    Raises
    ------
    mha_torch.OraclesDisagreeError
        The two oracles differ by more than rounding explains; the
        problem can judge nobody.

    """
    dtype: Float = EXTENDED if problem.dtype == np.float64 else np.float64
    with np.errstate(all="ignore"):
        return _layer(problem, dtype) if problem.case.form == "mha" else _core(problem, dtype)


def _layer(problem: Problem, dtype: Float) -> Reference:
    """Return the reference of a whole layer."""
    arrays = (problem.query, problem.key, problem.value, problem.state())
    options: AttentionOptions = {
        "num_heads": problem.num_heads,
        "add_zero_attn": problem.add_zero_attn,
        "key_padding_mask": problem.key_padding_mask,
        "attn_mask": problem.attn_mask,
        "is_causal": problem.is_causal,
    }
    stages = plain.stages(*arrays, dtype=dtype, **options)

    def met_by_torch() -> dict[str, Array]:
        output, weights = answer = mha_torch.multihead_attention(*arrays, **options)
        if weights is None or not (
            _agrees_in_float64(output, stages.output)
            and _agrees_in_float64(weights, stages.weights)
        ):
            mha_torch.agree(
                *arrays, extended=dtype, oracle=lambda *_, **__: answer, stages=stages, **options
            )
        if dtype is np.float64 and weights is not None:
            return _asked(problem, output, weights)
        return _asked(problem, stages.output, stages.weights)

    found = torch_result(REFERENCE, problem, met_by_torch)
    return Reference(
        q=stages.q,
        k=stages.k,
        v=stages.v,
        logits=stages.logits,
        weights=found.get("weights", stages.weights),
        heads=stages.heads,
        output=found["output"],
    )


def _core(problem: Problem, dtype: Float) -> Reference:
    """Return the reference of attention on projected Q, K, V."""
    q, k, v = (
        split_heads(rows, heads)
        for rows, heads in (
            (problem.query, problem.num_heads),
            (problem.key, problem.num_kv_heads),
            (problem.value, problem.num_kv_heads),
        )
    )
    options: SdpaOptions = {
        "attn_mask": _sdpa_mask(problem, dtype),
        "scale": problem.given_scale,
        "enable_gqa": problem.num_kv_heads != problem.num_heads,
    }
    stages = plain.sdpa_stages(q, k, v, fully_masked="nan", dtype=dtype, **options)

    def met_by_torch() -> dict[str, Array]:
        heads = mha_torch.scaled_dot_product_attention(q, k, v, **_rounded(options))
        heads[problem.masked_rows()] = np.nan  # torch's math backend answers 0 there
        if not _agrees_in_float64(heads, stages.heads):
            mha_torch.agree_sdpa(q, k, v, extended=dtype, **_rounded(options))
        heads = stages.heads if dtype is not np.float64 else heads
        return _asked(problem, merge_heads(heads), stages.weights)

    found = torch_result(REFERENCE, problem, met_by_torch)
    return Reference(
        q=stages.q,
        k=stages.k,
        v=stages.v,
        logits=stages.logits,
        weights=stages.weights,
        heads=split_heads(found["output"], problem.num_heads),
        output=found["output"],
    )


def _asked(problem: Problem, output: Array, weights: Array) -> dict[str, Array]:
    """Return output and weights as a record has them: weights where the case asks for them."""
    return {"output": output} | ({} if problem.case.weights == "none" else {"weights": weights})


def _sdpa_mask(problem: Problem, dtype: Float) -> Array | None:
    """Return all masks as one to be added, (N, H, L, S), or None where there is none."""
    if problem.attn_mask is None and problem.key_padding_mask is None and not problem.is_causal:
        return None
    # Masks are summed in the oracle's dtype: in float64 their sum would be rounded.
    parts = (problem.replace(attn_mask=None), problem.replace(key_padding_mask=None))
    added = sum(part.additive().astype(dtype) for part in parts)
    return np.where(problem.hidden(), dtype(-np.inf), added)


def _rounded(options: SdpaOptions) -> SdpaOptions:
    """Return the options with the mask in float64, as torch takes it."""
    mask = options.get("attn_mask")
    return options if mask is None else {**options, "attn_mask": mask.astype(np.float64)}


def _agrees_in_float64(first: Array, second: Array) -> bool:
    """Return whether two answers are so close that no bound need be computed."""
    reach = np.abs(np.where(np.isfinite(second), second, 0)).max(axis=-2, keepdims=True, initial=0)
    close = np.abs(first - second) <= AGREEING_ROUNDINGS * np.finfo(np.float64).eps * reach
    return bool((close | (first == second) | (np.isnan(first) & np.isnan(second))).all())
