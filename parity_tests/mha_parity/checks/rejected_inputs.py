"""Inputs that torch refuses: integers, and keys and values of unlike lengths.

Who gives integers another answer than the same floats is told so, and not failed: there is no
answer of torch's to be equal to, and casting an output to the queries' dtype is an honest way to
keep float32.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.alike import same
from mha_parity.beside import beside
from mha_parity.candidate import REMARK, CandidateError
from mha_parity.making import make

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.case import Case
    from mha_parity.conventions.base import Call, Convention
    from mha_parity.problem import Problem
    from mha_parity.values import Array

CHECKS = {
    "unlike lengths": "keys and values of unlike length are refused",
}
CUT = (
    "the answer to integers is not that to the same numbers as floats (torch refuses integers); "
    "convert them to floats, or refuse them"
)
SIZES = (5, 7, 6)  # queries, keys, head_dim
ROWS = ("query", "key", "value")


def judged(bound: Convention, case: Case) -> Iterator[str]:
    """Yield what is found on problems beside ``case``."""
    sized = beside(case, bound.offer, *SIZES)
    if sized is None:
        return
    problem = make(sized.replace(gradients="no"))
    yield from _integers(bound, make(problem.case.replace(dtype="float64", memory="c")))
    yield from _lengths(bound, problem)


def _integers(bound: Convention, problem: Problem) -> Iterator[str]:
    """Pose the same small whole numbers as floats and as integers.

    In float64 alone: beside float32 integers make NumPy compute in float64.
    """
    if bound.library.name != "numpy" or "float64" not in bound.offer["dtype"]:
        return
    whole: dict[int, Array] = {}
    rows = {name: getattr(problem, name) for name in ROWS}
    changes = {name: whole.setdefault(id(a), np.rint(a)) for name, a in rows.items()}
    floats = problem.replace(**changes)
    call = bound.prepare(floats)
    first = bound.answer(floats, call.make()).output
    with contextlib.suppress(CandidateError):  # it refuses them
        second = bound.answer(floats, _of_integers(call).make()).output.astype(first.dtype)
        # Another answer to the same floats is chance, or memory, and told elsewhere.
        if not same(first, second) and same(first, bound.answer(floats, call.make()).output):
            yield REMARK + CUT


def _of_integers(call: Call) -> Call:
    """Return the call with its rows as integers; one object stays one object."""
    given = {id(array) for name, array in call.given if name in ROWS}
    done: dict[int, Any] = {}
    args = tuple(
        done.setdefault(id(arg), arg.astype(np.int64)) if id(arg) in given else arg
        for arg in call.args
    )
    return dataclasses.replace(call, args=args)


def _lengths(bound: Convention, problem: Problem) -> Iterator[str]:
    """Pose keys one row shorter than the values, where both are given and nothing is masked.

    torch's function answers that on a CPU (pytorch#193728): who is called as it is, is not asked.
    """
    case = problem.case
    masked = case.attn != "none" or case.padding != "none"
    given_apart = case.form == "mha" and case.inputs == "distinct"
    if masked or not given_apart:
        return
    shorter = problem.replace(key=problem.key[:, :-1])
    try:
        bound(shorter)
    except CandidateError:
        yield "unlike lengths"
        return
    keys, values = shorter.key.shape[1], shorter.value.shape[1]
    yield (
        f"unlike lengths: {keys} keys and {values} values get an answer, but should be refused; "
        "raise an error that names both lengths."
    )
