"""Keys and values that may be left out: by their names, or where a small call shows them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.core.parameters import Role
from mha_parity.targets import parameters
from mha_parity.targets.conventions.torch_module import TorchModule
from mha_parity.targets.fit.roles import inputs_of_call, is_key
from mha_parity.targets.fit.search import attention_in_float64, is_rounding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.targets.conventions.base import Convention

# Names that keys and values have together, which may be a pair of another layer's or call's.
PAIR = re.compile(r"^(kv|key_?values?)(_|s?$)")


def optional_inputs(
    call: Any, required: Sequence[str], rows: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Return keys and values that may be left out: the names of their parameters and roles."""
    found, first = inputs_of_call(call), tuple(required[: len(rows)])
    known = first == tuple(name for name, _ in found[: len(rows)])
    return found[len(rows) :] if known else ()


def inputs_to_try(call: Any) -> tuple[tuple[str, bool], ...]:
    """Return what defaults to None and may be the keys, and whether its name says that it is.

    A name may say nothing, or `key` where there is no `value`.
    """
    roles = {
        each.name: parameters.role(each.name, "call", None)
        for each in parameters.of_callable(call)
        if each.default is None
    }
    named = [(name, True) for name, role in roles.items() if role is Role.INPUT and is_key(name)]
    return (*named, *((name, False) for name, role in roles.items() if role is Role.OTHER))


def raised(convention: Convention, problem: Problem) -> str:
    """Return what a call raises, "" where it is answered."""
    try:
        convention(problem)
    except CandidateError as error:
        return str(error)
    return ""


def attends(convention: Convention, problem: Problem) -> bool:
    """Return whether a target computes torch's attention on a problem, up to rounding."""
    try:
        output = convention(problem).output
    except CandidateError:
        return False
    same = output.shape == problem.output_shape
    return same and is_rounding(output, attention_in_float64(problem, causal=False))


class OptionalInputs(TorchModule):
    """A layer of which calls may leave out keys and values.

    ``optional``: their parameters and roles; ``unknown``: what may be the keys besides, and whether
    its name says so.
    """

    optional: tuple[tuple[str, str], ...]
    unknown: tuple[tuple[str, bool], ...]

    def look_for_inputs(self, plain: Case) -> None:
        """Find by calls which inputs a layer reads, and as what."""
        self._look_for_pairs(plain)
        self._look_for_values(plain)
        self._look_for_keys(plain)

    def _look_for_pairs(self, plain: Case) -> None:
        """Leave out what may be keys and values of an earlier call, if rows change no answer.

        Another name, as `context`, says that rows are read: then ignoring them is the mistake.
        """
        if not any(PAIR.search(name) for name, _ in self.optional):
            return
        problem = make_problem(plain.replace(inputs="cross"))
        held, whole = self.optional, self(problem).output
        self.optional = ()
        if np.array_equal(whole, self(problem).output):
            self.offer = self.offer | {"inputs": ("self",)}
        else:
            self.optional = held

    def _look_for_values(self, plain: Case) -> None:
        """Leave out a value with which calls raise, and without which they are answered."""
        held, problem = self.optional, _cross(plain)
        if len(held) != 1 or "distinct" not in self.offer["inputs"]:
            return
        if not (said := raised(self, problem)):
            return
        self.optional = ()
        if raised(self, problem):
            self.optional = held
        else:
            self.offer = self.offer | {"inputs": ("self", "cross")}
            self.reasons["inputs", "distinct"] = said

    def _look_for_keys(self, plain: Case) -> None:
        """Take a further input for the keys: where a right answer shows it, or by its name.

        A name says it where calls are answered; else what is called `key` means something else.
        """
        if self.optional or self.hides_future:
            return
        problem = _cross(plain)
        for name, is_named in self.unknown:
            self.optional = ((name, "key"),)
            if attends(self, problem) or (is_named and not raised(self, problem)):
                self.offer = self.offer | {"inputs": ("self", "cross")}
                return
        self.optional = ()


def _cross(plain: Case) -> Problem:
    return make_problem(plain.replace(inputs="cross", keys=7))
