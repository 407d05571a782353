"""One fixed problem in float16 on which q k^T overflows, and q k^T / sqrt(D) does not.

An answer that is not torch's there proves no overflow: other mistakes show there as well. Two more
calls leave nothing else. With rows of 63.5 in place of 64 q k^T stays just within float16's range,
and in a wider dtype 64 does: a target that answers both rightly, and the first one wrongly, lost it
to the range of q k^T.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError, ask
from mha_parity.core.check_result import CheckResult, Severity
from mha_parity.core.compare import as_float64
from mha_parity.diagnose.read_weights import plain_case
from mha_parity.judging.output import judge_answer
from mha_parity.oracle.reference import reference_answer
from mha_parity.oracle.torch_answers import asks_torch

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer, Candidate
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem

CHECK = "float16 overflow of q k^T"
HEAD_DIM = 16
LARGE = 64.0  # 16 * 64^2 = 65536 rounds to infinity in float16; divided by sqrt(16) it is 16384
WITHIN = 63.5  # 16 * 63.5^2 = 64516 is below float16's largest number, 65504
SMALL = 1.0
WIDER = ("float32", "float64", "bfloat16")
OVERFLOWS = "float16: q k^T of 65536 overflows before it is scaled to 16384, and the output is "
REMEDY = "; scale q first, or accumulate in float32 (--strict-overflow fails it)"
SENTENCE = f"{OVERFLOWS}not finite, while torch's is{REMEDY}"
UNKNOWN = (
    "float16: whether q k^T overflows before it is scaled is not known: the answer is wrong where "
    "q k^T is within the range, too"
)


def overflow_check(candidate: Candidate, offer: Offer, *, strict: bool) -> list[CheckResult]:
    """Return the check result of the fixed case, or nothing where float16 is not offered.

    Where the product overflows the result says so, and fails only where it is ``strict``. Where a
    problem within the range is answered wrongly too nothing is said, unless it was asked for.
    """
    problem = overflow_problem(offer)
    if problem is None:
        return []
    try:
        output = candidate(problem).output
    except CandidateError:
        return []
    if output.shape != problem.output_shape or output.dtype != problem.dtype:
        return []
    detail, severity = _overflow(problem, as_float64(output)), Severity.MATCH
    # A record has no answers to these problems.
    if detail and not (asks_torch() and _right_within_range(candidate, offer)):
        if not strict:
            return []
        detail, severity = UNKNOWN, Severity.INCONCLUSIVE
    elif detail and strict:
        severity = Severity.WRONG
    return [CheckResult(case=problem.case, check=CHECK, severity=severity, detail=detail)]


def _overflow(problem: Problem, output: Array) -> str:
    """Return how the output differs from torch's, "" where key 0 has most of every weight.

    A target that replaces NaN by a number answers finite rows that are far from the value of key 0.
    """
    if not np.isfinite(output).all():
        return SENTENCE
    expected = as_float64(problem.value).flat[0]
    other = output[np.abs(output - expected) > np.abs(output - SMALL)]
    if not other.size:
        return ""
    return f"{OVERFLOWS}{other[0]:.3g} where torch's is {expected:g}{REMEDY}"


def _right_within_range(candidate: Candidate, offer: Offer) -> bool:
    """Return whether the same problem is answered rightly where q k^T is within the dtype's range.

    In float16 with rows a little smaller, and in a wider dtype with the same, where one is offered.
    """
    wider = next((dtype for dtype in WIDER if dtype in offer["dtype"]), None)
    asked = [overflow_problem(offer, large=WITHIN)]
    if wider is not None:
        asked.append(overflow_problem(offer, dtype=wider))
    problems = [problem for problem in asked if problem is not None]
    answers = ask(candidate, problems)
    return all(map(_is_right, problems, answers))


def _is_right(problem: Problem, answer: Answer | CandidateError) -> bool:
    """Return whether an output is within what rounding explains."""
    if isinstance(answer, CandidateError):
        return False
    found = judge_answer(problem, reference_answer(problem), answer)
    outputs = [each.severity for each in found if each.check == "output"]
    return {*outputs} <= {Severity.MATCH, Severity.LESS_ACCURATE}


def is_remark(check_result: CheckResult) -> bool:
    """Return whether a result says something of the product's overflow, and does not fail."""
    said = check_result.check == CHECK and bool(check_result.detail)
    return said and not check_result.severity.fails


def overflow_problem(
    offer: Offer, *, large: float = LARGE, dtype: str = "float16"
) -> Problem | None:
    """Return the fixed problem: every query gives the first key all of its weight.

    Row 0 of query, key and value is large and all others are small, so that each scaled score of
    key 0 is beyond the others by hundreds: rounding cannot change the weights. Projections are the
    identity, and there are no biases and no masks.
    """
    if "float16" not in offer["dtype"]:
        return None
    case = plain_case(offer, dtype=dtype, head_dim=HEAD_DIM)
    plain = {
        "attn": ("none", "causal"), "padding": ("none",), "scale": ("default",),
        "bias_kv": ("no",), "out_proj": ("identity",),
        "projection": ("none", "one_array", "packed", "by_head", "shared"),
    }  # fmt: skip
    if any(getattr(case, axis) not in values for axis, values in plain.items()):
        return None
    problem = make_problem(case)
    changed: dict[int, Array] = {}
    changes: dict[str, object] = {
        name: changed.setdefault(id(getattr(problem, name)), _rows(getattr(problem, name), large))
        for name in ("query", "key", "value")
    }
    for name in ("w_q", "w_k", "w_v"):
        if getattr(problem, name) is not None:
            changes[name] = np.eye(case.embed_dim, dtype=problem.dtype)
    for name in ("b_q", "b_k", "b_v"):
        if getattr(problem, name) is not None:
            changes[name] = np.zeros(case.embed_dim, dtype=problem.dtype)
    return problem.replace(**changes)


def _rows(array: Array, large: float) -> Array:
    """Return rows of one number each: a large one, and small ones."""
    rows = np.full_like(array, SMALL)
    rows[:, 0] = large
    return rows
