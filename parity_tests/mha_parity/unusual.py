"""Inputs that are refused, or treated as what they stand for: integers, and unlike lengths."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.alike import differ, same
from mha_parity.beside import beside
from mha_parity.candidate import CandidateError
from mha_parity.making import make

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.case import Case
    from mha_parity.conventions.base import Call, Convention
    from mha_parity.problem import Problem
    from mha_parity.values import Array

CHECKS = {
    "integers as floats": "integer inputs are refused, or answered as the same floats are",
    "unlike lengths": "keys and values of unlike length are refused",
}
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
    """Pose the same small whole numbers as floats and as integers; torch refuses them itself.

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
    try:
        second = bound.answer(floats, _of_integers(call).make()).output
    except CandidateError:
        yield "integers as floats"
        return
    name, second = "integers as floats", second.astype(first.dtype)
    if same(first, second):
        yield name
    elif same(first, bound.answer(floats, call.make()).output):  # else it is chance, or memory
        told = "where the same numbers come as integers; convert them to floats, or refuse them."
        yield f"{name}: {differ(first, second)} {told}"


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
    given_apart = case.form == "mha" and case.inputs != "self"
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
