"""How accurate a candidate is beside torch: its error over torch's own in the same dtype.

Both errors count as at least one rounding of the gold: no answer in the dtype can promise less.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

import mha_torch
from mha_parity.gold import merge, split
from mha_parity.quantity import quantity
from mha_parity.verdict import Accuracy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mha_parity.candidate import Answer
    from mha_parity.gold import Gold
    from mha_parity.problem import Problem
    from mha_parity.values import Array


def torch_output(problem: Problem) -> Array:
    """Return the output of torch's pinned path in the problem's own dtype."""
    dtype = problem.case.dtype
    if problem.case.form == "mha":
        return mha_torch.multihead_attention(
            problem.query,
            problem.key,
            problem.value,
            problem.state(),
            num_heads=problem.num_heads,
            add_zero_attn=problem.add_zero_attn,
            key_padding_mask=problem.key_padding_mask,
            attn_mask=problem.attn_mask,
            is_causal=problem.is_causal,
            dtype=dtype,
        )[0]
    mask = np.where(problem.hidden(), -np.inf, problem.additive()).astype(problem.dtype)
    heads = mha_torch.scaled_dot_product_attention(
        split(problem.query, problem.num_heads),
        split(problem.key, problem.num_kv_heads),
        split(problem.value, problem.num_kv_heads),
        attn_mask=mask,
        scale=problem.given_scale,
        enable_gqa=problem.num_kv_heads != problem.num_heads,
        dtype=dtype,
    )
    return merge(heads)


def times_torch(problem: Problem, gold: Gold, answer: Answer) -> float:
    """Return the candidate's error over torch's, each relative to its head and at its worst head.

    1 where neither has an error above one rounding of the gold; infinite where the candidate has
    no number though torch has one; NaN where torch has none.
    """
    judged = quantity("output", problem, gold)
    # A row that sees no key is a policy, and NaN times the identity may carry it to other heads.
    masked: Array = np.asarray(problem.masked_rows().any(axis=1))
    judged = replace(judged, gold=np.where(masked[..., None], np.nan, judged.gold))
    floor = np.maximum(judged.rounding, np.finfo(np.float64).tiny)
    scale = np.maximum(judged.scale, np.finfo(np.float64).tiny)
    own = float((np.maximum(judged.error(torch_output(problem)), floor) / scale).max(initial=0))
    its = float((np.maximum(judged.error(answer.output), floor) / scale).max(initial=0))
    if not own or math.isnan(own) or math.isinf(own):
        return 1.0 if own == its == 0 else math.nan
    return its / own if math.isfinite(its) else math.inf


def summary(dtype: str, ratios: Iterable[float]) -> Accuracy | None:
    """Return the row of the accuracy table for one dtype; None where nothing was measured.

    ``bits``: how many bits fewer (or, negative, more) than torch the candidate loses in the median.
    """
    found = [ratio for ratio in ratios if not math.isnan(ratio)]
    if not found:
        return None
    median = statistics.median(found)
    return Accuracy(
        dtype=dtype,
        cases=len(found),
        median_times_torch=median,
        worst_times_torch=max(found),
        bits=math.log2(median) if 0 < median < math.inf else math.inf,
    )
