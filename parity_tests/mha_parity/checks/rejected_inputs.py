"""Check inputs that torch refuses: integers, and keys and values of different lengths.

An answer to integers that differs from that to the same floats is a remark and no failure: torch
has no answer to compare with, and casting the output to the dtype of the queries keeps float32.
Only a layer with torch's own parameters promises to refuse what torch's layer refuses: an answer
to lengths that differ fails such a layer, and is a remark on any other.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.cases.variants import plain_variant
from mha_parity.core.candidate import REMARK, CandidateError
from mha_parity.core.compare import equal_up_to_rounding
from mha_parity.core.problem import INPUTS, Problem
from mha_parity.targets.programs.command import Command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.targets.calls.target_call import Call
    from mha_parity.targets.convention_base.convention import Convention

CHECKS = {
    "rejects mismatched K/V lengths": "keys and values of different lengths are refused",
}
INTEGER_REMARK = (
    "integer inputs give another output than the same numbers as floats (torch refuses integers); "
    "convert them to floats, or refuse them"
)
LENGTH_REMARK = (
    "keys and values of different lengths get an answer, where torch raises an error; raise one "
    "that names both lengths"
)
SIZES = (5, 7, 6)  # queries, keys, head_dim


def check_rejected_inputs(bound: Convention, case: Case) -> Iterator[str]:
    """Yield the findings on plain problems like ``case``.

    A program is not asked: its offer says what it takes.
    """
    if isinstance(bound.subject, Command):
        return
    sized = plain_variant(case, bound.offer, *SIZES)
    if sized is None:
        return
    problem = make_problem(sized.replace(gradients="no"))
    yield from check_integers(
        bound, make_problem(problem.case.replace(dtype="float64", memory="c"))
    )
    yield from check_lengths(bound, problem)


def check_integers(bound: Convention, problem: Problem) -> Iterator[str]:
    """Ask for the same small whole numbers as floats and as integers.

    In float64 alone: NumPy promotes float32 with integers to float64.
    """
    if bound.library.name != "numpy" or "float64" not in bound.offer["dtype"]:
        return
    whole: dict[int, Array] = {}
    rows = {name: getattr(problem, name) for name in INPUTS}
    changes = {name: whole.setdefault(id(a), np.rint(a)) for name, a in rows.items()}
    floats = problem.replace(**changes)
    call = bound.prepare(floats)
    first = bound.answer(floats, call.make()).output
    with contextlib.suppress(CandidateError):  # refused, as torch does
        second = bound.answer(floats, _of_integers(call).make()).output.astype(first.dtype)
        again = bound.answer(floats, call.make()).output
        # The checks of determinism and statelessness judge an answer that varies by itself.
        if equal_up_to_rounding(first, again) and not equal_up_to_rounding(first, second):
            yield REMARK + INTEGER_REMARK


def _of_integers(call: Call) -> Call:
    """Return the call with integer inputs; one array passed twice stays one array."""
    given = {id(array) for name, array in call.given if name in INPUTS}
    converted: dict[int, Any] = {}
    args = tuple(
        converted.setdefault(id(arg), arg.astype(np.int64)) if id(arg) in given else arg
        for arg in call.args
    )
    return dataclasses.replace(call, args=args)


def check_lengths(bound: Convention, problem: Problem) -> Iterator[str]:
    """Ask for one key less than values, where both are given and nothing is masked.

    Not for functions like scaled_dot_product_attention: torch's own answers on a CPU
    (pytorch#193728).
    """
    case = problem.case
    masked = case.attn != "none" or case.padding != "none"
    separate = case.form == "mha" and case.inputs == "distinct"
    if masked or not separate:
        return
    shorter = problem.replace(key=problem.key[:, :-1])
    try:
        bound(shorter)
    except CandidateError:
        yield "rejects mismatched K/V lengths"
        return
    if bound.convention != "torch-module":
        yield REMARK + LENGTH_REMARK
        return
    keys, values = shorter.key.shape[1], shorter.value.shape[1]
    yield (
        f"rejects mismatched K/V lengths: {keys} keys and {values} values get an answer, but "
        "should be refused; raise an error that names both lengths."
    )
