"""Look for the log-sum-exp of each row in what a function returns beside its output.

Kernels keep it for their backward pass, and join the answers to parts of the keys by it. It is
judged where it is one on a small problem, or where its name or the documentation says that it is
one. One to base 2 has to be documented as such: by "base 2", "log2" or its name.
"""

from __future__ import annotations

import inspect
import math
import re
from itertools import chain, product
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.arrays import log_sum_exp, split_heads
from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import equal_up_to_rounding
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.conventions.canonical_layout import without_names
from mha_parity.targets.conventions.log_sum_exp import (
    NAME,
    LogSumExp,
    axes_shape,
    log_sum_exp_switches,
    row_sizes,
)
from mha_parity.targets.conventions.returned_names import names_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.conventions.base import Convention

DOCUMENTED = re.compile(r"\blog[-_ ]?sum[-_ ]?exp|\blse\b", re.IGNORECASE)
BASE_TWO = re.compile(r"\bbase[- ]?(2|two)\b|\blog_?2\b|\blse_?2\b", re.IGNORECASE)
ORDERS = ("NHL", "NLH", "HNL", "LNH")
JUDGED = "one number a row comes with the output: its log-sum-exp, which is judged"
SAID = "the log-sum-exp that is returned with the output is judged{}"


def find_log_sum_exp(convention: Convention) -> None:
    """Look for it in what a call of attention on Q, K and V returns, and keep where it stands."""
    if convention.offer["form"] != ("qkv",) or "none" not in convention.offer["projection"]:
        return
    case = convention.trial_case()
    samples = 1 if case.layout == "unbatched" else 2
    # With an odd seed a switch that returns it is on.
    problem = make_problem(case.replace(batch=samples, queries=5, seed=case.seed | 1))
    try:
        result = without_names(convention.prepare(problem).make())
    except CandidateError:
        return
    if not isinstance(result, tuple | list) or len(result) < 2:
        return
    found = [each for place in range(len(result)) for each in _at(problem, result, place)]
    equal = (each for each in found if _is_it(problem, each.read(problem, result)))
    named = (each for each in found if NAME.search(_names(convention, each.place)))
    documented = found if len({each.place for each in found}) == 1 else []
    said = documented if DOCUMENTED.search(_doc(convention)) else []
    chosen = next(chain(equal, named, said), None)
    if chosen is None:
        return
    base = 2.0 if BASE_TWO.search(_said(convention, chosen.place)) else math.e
    convention.log_sum_exp = chosen._replace(base=base)
    convention.remarks += (SAID.format(", to base 2 as documented." if base == 2 else "."),)
    for value in ("per_head", "averaged"):
        if ("weights", value) in convention.reasons:
            convention.reasons["weights", value] = JUDGED


def _at(problem: Problem, result: Any, place: int) -> Iterator[LogSumExp]:
    """Yield how one of the results may hold one number for each row, by its shape."""
    try:
        shape = to_numpy(result[place], "the log-sum-exp").shape
    except CandidateError:
        return
    sizes = row_sizes(problem)
    left_out = "N" * (problem.case.layout == "unbatched") + "H" * (problem.num_heads == 1)
    for order, last in product(ORDERS, ("", "1")):
        for gone in {"", left_out, left_out[:1], left_out[1:]}:
            axes = "".join(axis for axis in order if axis not in gone) + last
            if shape == axes_shape(axes, sizes):
                yield LogSumExp(place, axes, math.e)


def _is_it(problem: Problem, found: Array | None) -> bool:
    """Return whether one number a row is the log-sum-exp."""
    return found is not None and equal_up_to_rounding(_expected(problem).astype(found.dtype), found)


def _expected(problem: Problem) -> Array:
    """Return the natural log-sum-exp of the scores, (N, H, L)."""
    q, k = (
        split_heads(rows.astype(np.float64), heads)
        for rows, heads in (
            (problem.query, problem.num_heads), (problem.key, problem.num_kv_heads)
        )
    )  # fmt: skip
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    scores = problem.scale * q @ k.swapaxes(-1, -2)
    return log_sum_exp(np.where(problem.hidden(), -np.inf, scores))


def _said(convention: Convention, place: int) -> str:
    """Return what documentation and names say of it."""
    return f"{_doc(convention)} {_names(convention, place)}"


def _doc(convention: Convention) -> str:
    return inspect.getdoc(convention.subject) or ""


def _names(convention: Convention, place: int) -> str:
    """Return the name of a result, else that of the switch that returns it; "" where none is."""
    found = {*names_at(convention.entry(), place)}
    switches = log_sum_exp_switches(convention.call_parameters, seed=1)
    return found.pop() if len(found) == 1 and "" not in found else " ".join(switches)
