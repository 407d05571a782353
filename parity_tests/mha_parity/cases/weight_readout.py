"""Problems whose output shows the attention weights.

With values that are one-hot, the output *is* the weights: v_j = e_j gives
output_i = sum_j P_ij e_j.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mha_parity.core.problem import Problem


def with_one_hot_values(problem: Problem, times: int = 1) -> Problem:
    """Return the problem with value heads v_j = e_j, and nothing added to the output.

    With ``times`` = 2 a head's columns hold e_j twice side by side, and show each weight twice.
    """
    n, s, _ = problem.value.shape
    heads, width = problem.num_kv_heads, problem.v_head_dim
    hot = np.tile(np.eye(s, width // times, dtype=problem.dtype), (n, 1, heads * times))
    changes: dict[str, object] = {}
    if problem.w_v is None:
        one = ("query", "key", "value") if problem.case.projection == "one_array" else ("value",)
        return problem.replace(**dict.fromkeys(one, hot))
    rows = problem.value
    if rows.shape[2] != hot.shape[2]:
        rows = np.zeros_like(rows)
        rows[..., : hot.shape[2]] = hot
    else:
        rows = hot
    changes["w_v"] = np.eye(hot.shape[2], rows.shape[2], dtype=problem.dtype)
    for name in ("b_v", "b_out", "bias_v"):
        bias = getattr(problem, name)
        changes[name] = None if bias is None else np.zeros_like(bias)
    if problem.w_out is not None:
        changes["w_out"] = np.eye(len(problem.w_out), dtype=problem.dtype)
    same = {name: rows for name in ("query", "key") if getattr(problem, name) is problem.value}
    return problem.replace(**changes, **same, value=rows)
