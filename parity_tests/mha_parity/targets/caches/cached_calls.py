"""Calls with a key/value cache, and of the rows of a sequence one after another.

A layer that decodes is called on new rows alone, with the keys and values of the rows before. The
cache is taken as it came back: nothing is read in it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.core.parameters import Role
from mha_parity.core.problem import INPUTS
from mha_parity.targets.caches.attached_caches import attached, made
from mha_parity.targets.caches.cache_objects import begun_cache
from mha_parity.targets.caches.caches_in_results import taken_from
from mha_parity.targets.caches.reset_methods import forgetting_methods
from mha_parity.targets.caches.step_methods import (
    first_cache,
    stepped,
)
from mha_parity.targets.calls.canonical_layout import one_by_one
from mha_parity.targets.calls.target_call import (
    Arguments,
    method_of,
    owner_of,
    target_errors,
    with_arguments,
)
from mha_parity.targets.static.argument_meanings import LayerSizes
from mha_parity.targets.static.call_parameters import role

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.calls.cache_arguments import CacheUse
    from mha_parity.targets.convention_base.convention import Convention


class CachedAnswer(NamedTuple):
    """The output of a call, (N, L, H Dv), and what came back beside it."""

    output: Array
    beside: tuple[Any, ...]


class CachedCalls:
    """Calls of one object on rows of a sequence, each with the cache of those before."""

    def __init__(self, bound: Convention, use: CacheUse, function: Any = None) -> None:
        self.bound, self.use, self.function = bound, use, function

    def begin(self, problem: Problem) -> tuple[CachedAnswer, tuple[Any, ...]]:
        """Return the answer to the first rows of a sequence, and the cache."""
        cache = self.begun(problem)
        answer = self.ask(problem, 0, cache)
        return answer, cache if self.use.filled else self.cache_of(answer)

    def begun(self, problem: Problem, count: int = 0) -> tuple[Any, ...]:
        """Return the cache that the first call is passed, none for the default.

        One that is a pair of arrays may hold a number of rows.
        """
        if not self.use.begun:
            return ()
        call = self.bound.prepare(problem)
        self.function = self.function or call.function
        arguments = Arguments(problem, self.bound.library)
        call, entry = replace(call, function=self.function), self.bound.entry()
        if self.use.attached:
            return (made(self.use.begun, self.use.attached, entry, call, problem),)
        return (begun_cache(self.use.begun, entry, call, arguments, count),)

    def go_on(
        self, problem: Problem, before: int, cache: tuple[Any, ...]
    ) -> tuple[CachedAnswer, tuple[Any, ...]]:
        """Return the answer to further rows, and the cache after them."""
        answer = self.ask(problem, before, cache)
        return answer, cache if self.use.filled else self.cache_of(answer)

    def cache_of(self, answer: CachedAnswer) -> tuple[Any, ...]:
        """Return the cache in what a call returned."""
        return taken_from(answer.beside, self.use)

    def forget(self) -> None:
        """Have the object forget the sequence so far, by its methods for that."""
        with target_errors():
            for name in forgetting_methods(type(owner_of(self.function))):
                method_of(self.function, name)()

    def without_cache(self, problem: Problem) -> Array:
        """Return what the object answers to a call without a cache."""
        call = replace(self.bound.prepare(problem), function=self.function, pull=None)
        return self.bound.answer(problem, call.make()).output

    def ask(self, problem: Problem, before: int, cache: tuple[Any, ...]) -> CachedAnswer:
        """Return what a call on rows behind ``before`` others returned."""
        given: dict[str, Any] = dict.fromkeys(self.use.switches, True)
        given |= dict.fromkeys(self.use.first_row, before)
        given |= dict(zip(self.use.parameters, cache, strict=False))
        tables_of = getattr(self.bound, "tables_of_positions", None)
        if self.use.whole_tables and tables_of is not None:
            given |= tables_of(problem, before + problem.case.queries)
        if problem.is_causal:  # of a single row too, which the rule hides nothing from
            given |= dict.fromkeys(causal_by_default(self.bound), True)
        call = self.bound.prepare(problem)
        self.function = call.function if self.function is None else self.function
        if self.use.method:
            return self._row_by_row(problem, cache)
        call = with_arguments(call, self.bound.call_parameters, given)
        call = replace(call, function=self.function, pull=None, reset="")
        with attached(self.function, self.use.attached, cache):
            result = call.make()
        self.bound.record(call)
        self.bound.record_cache(self.use.keys if cache else ())
        several = one_by_one(result)
        place = _output_place(self.bound, problem, several)
        output = self.bound.answer(problem, result if place is None else several[place]).output
        return CachedAnswer(output, tuple(several[(place or 0) + 1 :]))

    def in_one_step(
        self, problem: Problem, cache: tuple[Any, ...]
    ) -> tuple[Array, tuple[Any, ...]]:
        """Return what a method of the object answers to rows in one call, and the cache.

        Raises
        ------
        CandidateError
            It raised, as where it takes one row alone.

        """
        samples = problem.case.batch
        sizes = LayerSizes(problem.query.shape[-1], problem.num_heads, samples=samples)
        call = self.bound.prepare(problem)
        self.function = self.function or call.function
        call = replace(call, function=self.function)
        cache = cache or first_cache(call, self.use.passed, sizes)
        output, cache = stepped(call, self.use, cache)
        return self.bound.answer(problem, output).output, cache

    def _row_by_row(self, problem: Problem, cache: tuple[Any, ...]) -> CachedAnswer:
        """Return what a method of the object answers to each row, one after another."""
        found = []
        for at in range(problem.case.queries):
            output, cache = self.in_one_step(rows(problem, at, at + 1), cache)
            found.append(output)
        return CachedAnswer(np.concatenate(found, axis=1), cache)


def causal_by_default(bound: Convention) -> tuple[str, ...]:
    """Return the causal switches of a call that are on where it says nothing of them."""
    return tuple(
        each.name
        for each in bound.call_parameters
        if role(each.name, "call", each.default) is Role.CAUSAL and each.default is True
    )


def _output_place(bound: Convention, problem: Problem, several: list[Any]) -> int | None:
    """Return where the output stands among what was returned; None where that is an array."""
    if len(several) == 1:
        return None
    for place, each in enumerate(several):
        with suppress(CandidateError):
            if bound.answer(problem, each).output.shape == problem.output_shape:
                return place
    return 0


def rows(problem: Problem, first: int, end: int) -> Problem:
    """Return the problem of these rows alone, which are queries, keys and values; masks cut too."""
    cut: dict[int, Array] = {}
    changes: dict[str, Any] = {}
    for name in INPUTS:
        array = getattr(problem, name)
        changes[name] = cut.setdefault(id(array), array[:, first:end].copy())
    if (padding := problem.key_padding_mask) is not None:
        changes["key_padding_mask"] = padding[:, first:end].copy()
    if (hidden := problem.attn_mask) is not None:
        changes["attn_mask"] = hidden[..., first:end, first:end].copy()
    case = problem.case.replace(queries=end - first, keys=end - first)
    return problem.replace(case=case, **changes)


def last_row(bound: Convention, problem: Problem, end: int) -> Array:
    """Return what a new object answers to the last of the first ``end`` rows: it sees them all."""
    return np.asarray(bound(rows(problem, 0, end)).output[:, -1:])
