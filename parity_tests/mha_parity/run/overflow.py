"""One fixed case in float16 on which q k^T overflows, and q k^T / sqrt(D) does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.core.check_result import CheckResult, Severity
from mha_parity.core.compare import as_float64
from mha_parity.diagnose.read_weights import plain_case

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Candidate
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem

CHECK = "float16 overflow of q k^T"
HEAD_DIM = 16
LARGE = 80.0  # 16 * 80^2 = 102400 lies beyond float16's 65504; divided by sqrt(16) it is 25600
SMALL = LARGE / 64
OVERFLOWS = "float16: q k^T of 102400 overflows before it is scaled to 25600, and the output is "
REMEDY = "; scale q first, or accumulate in float32 (--strict-overflow fails it)"
SENTENCE = f"{OVERFLOWS}not finite, while torch's is{REMEDY}"


def overflow_check(candidate: Candidate, offer: Offer, *, strict: bool) -> list[CheckResult]:
    """Return the check result of the fixed case, or nothing where float16 is not offered.

    Where the product overflows the result says so, and fails only where it is ``strict``.
    """
    problem = overflow_problem(offer)
    if problem is None:
        return []
    try:
        output = candidate(problem).output
    except CandidateError:
        return []
    numeric = output.shape == problem.output_shape and output.dtype == problem.dtype
    if not numeric:
        return []
    detail = _overflow(as_float64(output), as_float64(problem.value).flat[0])
    severity = Severity.WRONG if detail and strict else Severity.MATCH
    return [CheckResult(case=problem.case, check=CHECK, severity=severity, detail=detail)]


def _overflow(output: Array, expected: float) -> str:
    """Return what the overflow made of the output, "" where key 0 has most of every weight.

    A target that replaces NaN by a number answers finite rows that are far from the value of key 0.
    """
    if not np.isfinite(output).all():
        return SENTENCE
    other = output[np.abs(output - expected) > np.abs(output - SMALL)]
    if not other.size:
        return ""
    return f"{OVERFLOWS}{other[0]:.3g} where torch's is {expected:g}{REMEDY}"


def is_remark(check_result: CheckResult) -> bool:
    """Return whether a result says that the product overflows, and does not fail."""
    return check_result.detail.startswith(OVERFLOWS) and not check_result.severity.fails


def overflow_problem(offer: Offer) -> Problem | None:
    """Return the fixed problem: every query gives the first key all of its weight.

    Row 0 of query, key and value is large and all others are small, so that each scaled score of
    key 0 is beyond the others by hundreds: rounding cannot change the weights. Projections are the
    identity, and there are no biases and no masks.
    """
    if "float16" not in offer["dtype"]:
        return None
    case = plain_case(offer, dtype="float16", head_dim=HEAD_DIM)
    plain = {
        "attn": ("none", "causal"), "padding": ("none",), "scale": ("default",),
        "bias_kv": ("no",), "out_proj": ("identity",),
        "projection": ("none", "packed", "by_head", "shared"),
    }  # fmt: skip
    if any(getattr(case, axis) not in values for axis, values in plain.items()):
        return None
    problem = make_problem(case)
    changed: dict[int, Array] = {}
    changes: dict[str, object] = {
        name: changed.setdefault(id(getattr(problem, name)), _rows(getattr(problem, name)))
        for name in ("query", "key", "value")
    }
    for name in ("w_q", "w_k", "w_v"):
        if getattr(problem, name) is not None:
            changes[name] = np.eye(case.embed_dim, dtype=problem.dtype)
    for name in ("b_q", "b_k", "b_v"):
        if getattr(problem, name) is not None:
            changes[name] = np.zeros(case.embed_dim, dtype=problem.dtype)
    return problem.replace(**changes)


def _rows(array: Array) -> Array:
    """Return rows of one number each: a large one, and small ones."""
    rows = np.full_like(array, SMALL)
    rows[:, 0] = LARGE
    return rows
