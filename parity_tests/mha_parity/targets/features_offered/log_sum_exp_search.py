"""Look for the log-sum-exp of each row in what a function returns beside its output.

Kernels keep it for their backward pass, and join the answers to parts of the keys by it. It is
judged where it is one on a small problem, or where its name or the documentation says that it is
one. One to base 2 has to be documented as such: by "base 2", "log2" or its name. What is natural on
the small problem is so, whatever the documentation says of base 2.
"""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import fields, is_dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.arrays import log_sum_exp, split_heads
from mha_parity.core.candidate import CandidateError
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.calls.canonical_layout import without_names
from mha_parity.targets.calls.log_sum_exp import (
    BASE,
    NAME,
    LogSumExp,
    axes_shape,
    log_sum_exp_switches,
    row_sizes,
)
from mha_parity.targets.static.returned_names import names_at
from mha_parity.targets.static.source import source_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention

# A sentence that says of what is returned that it is one.
DOCUMENTED = re.compile(
    r"\breturn[^.;]*?\b(log[-_ ]?sum[-_ ]?exp\b(?! trick)|lse\b)"
    r"|\b(log[-_ ]?sum[-_ ]?exp|lse)\b(?! trick)[^.;]*\b(is|are) returned",
    re.IGNORECASE | re.DOTALL,
)
IN_CODE = re.compile(r"lse|log_?sum_?exp", re.IGNORECASE)
BASE_TWO = re.compile(r"\bbase[- ]?(2|two)\b|\blog_?2\b|\blse_?2\b", re.IGNORECASE)
ORDERS = ("NHL", "NLH", "HNL", "LNH")
NEAR = 1e-2  # of its size and 1: what is nearer is meant as one, and judged by its bound
JUDGED = "one number a row comes with the output: its log-sum-exp, which is judged"
SAID = "the log-sum-exp that is returned with the output is judged{}"


def find_log_sum_exp(convention: Convention) -> None:
    """Look for it in what a call of attention on Q, K and V returns, and keep where it stands."""
    if convention.offer["form"] != ("qkv",) or "none" not in convention.offer["projection"]:
        return
    problem = _trial(convention)
    try:
        returned = convention.prepare(problem).make()
    except CandidateError:
        return
    result = without_names(returned)
    if not isinstance(result, tuple | list) or len(result) < 2:
        return
    found = [each for place in range(len(result)) for each in _at(problem, result, place)]
    chosen = _chosen(convention, problem, returned, found)
    if chosen is None:
        return
    convention.log_sum_exp = chosen
    to_base_two = chosen.base == BASE
    convention.remarks += (SAID.format(", to base 2 as documented." if to_base_two else "."),)
    for value in ("per_head", "averaged"):
        if ("weights", value) in convention.reasons:
            convention.reasons["weights", value] = JUDGED


def _trial(convention: Convention) -> Problem:
    """Return a small problem with sizes of their own, for which a switch that returns it is on."""
    case = convention.trial_case()
    samples = case.batch if case.layout == "unbatched" or convention.of_one_batch else 3
    return make_problem(case.replace(batch=samples, queries=5, seed=case.seed | 1))


def _chosen(
    convention: Convention, problem: Problem, returned: Any, found: list[LogSumExp]
) -> LogSumExp | None:
    """Return what is one by its numbers, else what is called one; None where nothing is.

    One to base 2 is right where that is documented.
    """
    result, expected = without_names(returned), _expected(problem)
    held = [(each, each.read(problem, result)) for each in found]
    if natural := next((each for each, a in held if _near(a, expected)), None):
        return natural
    names = {each.place: _name(convention, returned, each.place) for each in found}
    documented = bool(BASE_TWO.search(f"{_doc(convention)} {' '.join(names.values())}"))
    base = BASE if documented else math.e
    if binary := next((each for each, a in held if _near(a, expected / math.log(BASE))), None):
        called = documented or IN_CODE.search(_code(convention) + names[binary.place])
        return binary._replace(base=base) if called else None
    named = [each for each in found if NAME.search(names[each.place])]
    by_text = [each for each in found if not names[each.place]] if _says(convention) else []
    alone = by_text if len({each.place for each in found}) == 1 else []
    return next((each._replace(base=base) for each in (*named, *alone)), None)


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


def _near(found: Array | None, expected: Array) -> bool:
    """Return whether numbers of rows are these, but for what their bound decides."""
    if found is None:
        return False
    with np.errstate(invalid="ignore"):
        near = np.abs(found.astype(np.float64) - expected) <= NEAR * (1 + np.abs(expected))
    return bool(near.all())


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


def _doc(convention: Convention) -> str:
    return inspect.getdoc(convention.subject) or ""


def _says(convention: Convention) -> bool:
    """Return whether the documentation says that a log-sum-exp is returned."""
    return bool(DOCUMENTED.search(_doc(convention)))


def _code(convention: Convention) -> str:
    return source_text(inspect.unwrap(convention.entry()))


def _name(convention: Convention, returned: Any, place: int) -> str:
    """Return the name of a result: its key or field, its variable, the switch that returns it."""
    if isinstance(returned, dict):
        return str(list(returned)[place])
    if is_dataclass(returned) and not isinstance(returned, type):
        return fields(returned)[place].name
    if named := getattr(returned, "_fields", ()):
        return str(named[place])
    found = {*names_at(convention.entry(), place)}
    if len(found) == 1 and "" not in found:
        return found.pop()
    return " ".join(log_sum_exp_switches(convention.call_parameters, seed=1))
