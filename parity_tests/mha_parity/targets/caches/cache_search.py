"""How a target is called with a key/value cache, found by a few small calls.

Which parameters take one, where it comes back, how it is begun. What is not found is left at its
default, which the verdict says.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.cases.variants import plain_variant
from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import equal_up_to_rounding
from mha_parity.core.features import ONE_ROW, UNMASKED
from mha_parity.core.parameters import Role
from mha_parity.targets.caches.attached_caches import cache_attributes, say_attached, ways
from mha_parity.targets.caches.cache_objects import beginnings, is_guess
from mha_parity.targets.caches.cached_calls import CachedCalls, last_row, rows
from mha_parity.targets.caches.caches_in_results import placed, taken_from
from mha_parity.targets.caches.step_methods import (
    OF_MORE,
    ROW_BY_ROW,
    UNTRIED,
    step_methods,
    steps_of_more,
)
from mha_parity.targets.calls.cache_arguments import CacheUse
from mha_parity.targets.calls.error_origin import attributed
from mha_parity.targets.interpretations.empty_past import empty_pairs
from mha_parity.targets.interpretations.roles import counts_rows_before
from mha_parity.targets.static.call_parameters import role
from mha_parity.targets.static.length_arguments import is_annotated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from inspect import Parameter

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention

LENGTH, HEAD_DIM = 6, 8  # of small problems; no part of the rows is as long as a head is wide
BEFORE = 3  # rows whose cache is passed on
_CACHE = re.compile(r"cache|past|incremental")
_RETURNS = re.compile(r"cache|past|present|(^|_)kvs?(_|$)")


def use_cache_of(bound: Convention) -> None:
    """Let a convention keep how its target is called with a cache, and say what that means.

    Or that a call raised which was passed what another one had returned as its cache.
    """
    raised: list[str] = []
    named = cache_attributes(bound)
    bound.cache = find_cache(bound, raised, named)
    say_attached(bound, named)
    if bound.cache is None:
        bound.cache = _find_method(bound)
    others = steps_of_more(bound.subject)
    kind = getattr(bound.subject, "__name__", "")
    bound.remarks = (*bound.remarks, *(OF_MORE.format(name, kind) for name in others))
    if bound.cache is not None and not bound.cache.method:
        masks = {*bound.offer["padding"], *bound.offer["attn"]} - {"none", "causal"}
        limit = f", {UNMASKED}" * bool(masks) + f", {ONE_ROW}" * _takes_one_row(bound, bound.cache)
        bound.meanings |= {key: said + limit for key, said in bound.cache.meanings.items()}
    elif raised:
        bound.remarks = (*bound.remarks, f"its cache was not judged: {raised[0]}.")


def find_cache(
    bound: Convention, raised: list[str], attributes: tuple[str, ...] = ()
) -> CacheUse | None:
    """Return how the target is called with a cache; None where it has none, or small calls fail.

    ``attributes`` of the layer may be set to one. A way whose answer to one row more is that of the
    whole is taken before any other. ``raised`` gets what calls with a returned cache raised.
    """
    uses = [*_uses(bound), *_attached(bound, attributes)]
    if uses and any(p.role is Role.POSITIONS for p in bound.parameters):
        uses += [replace(use, whole_tables=True) for use in uses]
    case = _small_case(bound) if uses else None
    if case is None:
        return None
    problem = make_problem(case)
    by_rows = {before: _PlainRows(bound, problem, before) for before in (BEFORE, 1)}
    nearest = None
    for use in uses:
        with suppress(CandidateError), attributed(bound.subject):
            # What is kept unasked may be no cache at all: one row after one shows that, too.
            for before in (BEFORE, 1) if use.of_itself else (BEFORE,):
                for found, right in _tried(bound, use, by_rows[before], raised):
                    if right:
                        return found
                    nearest = nearest or (None if use.of_itself else found)
    return nearest


def _find_method(bound: Convention) -> CacheUse | None:
    """Return the method that takes one row more, if one answers the first row of a sequence.

    One whose second row is that of the whole comes before others, and one that takes and returns a
    cache is taken by the shape of what it answers. What none is, is said.
    """
    methods = list(step_methods(bound.subject))
    case = _small_case(bound) if methods else None
    if case is None:
        return None
    problem = make_problem(case)
    found: list[CacheUse] = []
    for (name, passed), flat in product(methods, (False, True)):
        places = (0,) if passed else ()
        use = CacheUse((), method=name, flat=flat, passed=passed, places=places)
        with suppress(CandidateError), attributed(bound.subject):
            output = CachedCalls(bound, use).ask(rows(problem, 0, 2), 0, ()).output
            first, second = (last_row(bound, problem, end) for end in (1, 2))
            begins = equal_up_to_rounding(first, output[:, :1])
            if begins or (passed and first.shape == output[:, :1].shape):
                found.insert(0 if equal_up_to_rounding(second, output[:, 1:]) else len(found), use)
    asked = {use.method for use in found[:1]}
    names = dict.fromkeys(name for name, _ in methods)
    said = [(ROW_BY_ROW if name in asked else UNTRIED).format(name) for name in names]
    bound.remarks = (*bound.remarks, *said)
    return next(iter(found), None)


def _takes_one_row(bound: Convention, use: CacheUse) -> bool:
    """Return whether several new rows of a call are not those of the whole, or are refused."""
    case = _small_case(bound)
    if case is None:
        return False
    problem = make_problem(case)
    try:
        with attributed(bound.subject):
            calls, whole = CachedCalls(bound, use), bound(problem).output
            _, cache = calls.begin(rows(problem, 0, BEFORE))
            output = calls.go_on(rows(problem, BEFORE, LENGTH), BEFORE, cache)[0].output
    except CandidateError:
        return True
    return not equal_up_to_rounding(whole[:, BEFORE:], output)


def _small_case(bound: Convention) -> Case | None:
    """Return a small case of self-attention without masks, None where there is none."""
    if bound.of_one_length or "self" not in bound.offer["inputs"]:
        return None
    case = bound.plain_case().replace(inputs="self", gradients="no", weights="none")
    offer = {**bound.offer, "inputs": ("self",)}
    return plain_variant(case, offer, LENGTH, LENGTH, HEAD_DIM, square=True)


def _uses(bound: Convention) -> Iterator[CacheUse]:
    """Yield the ways to pass a cache that the names of the parameters allow, the likeliest first.

    Where it stands in what is returned is left open.
    """
    named = bound.call_parameters
    roles = {p.name: role(p.name, "call", p.default) for p in named}
    of_cache = [
        p for p in named
        if roles[p.name] is Role.CACHE and (_CACHE.search(p.name.lower()) or p.default is p.empty)
    ]  # fmt: skip
    switches = [p for p in of_cache if isinstance(p.default, bool) or _says_use(p)]
    takes = tuple(p.name for p in of_cache if p not in switches)
    returns = [
        p for p in named
        if roles[p.name] is Role.RETURN and isinstance(p.default, bool) and _RETURNS.search(p.name)
    ]  # fmt: skip
    on = tuple(p.name for p in (*switches, *returns))
    first_row = tuple(p.name for p in named if counts_rows_before(p))
    if not (takes or on or first_row):
        if getattr(bound, "reset", ""):
            yield CacheUse(())
        return
    takers = [p for p in of_cache if p.name in takes]
    for begun in beginnings(bound.entry(), bound.subject, takers):
        yield CacheUse(takes, on, first_row, begun)
    if takes and (on or first_row):
        yield CacheUse((), on, first_row)


def _attached(bound: Convention, attributes: tuple[str, ...]) -> Iterator[CacheUse]:
    """Yield the ways to set the one attribute that is called a cache."""
    if len(attributes) == 1:
        first_row = tuple(p.name for p in bound.call_parameters if counts_rows_before(p))
        for made_by in ways(bound, *attributes):
            yield CacheUse((), (), first_row, made_by, attached=attributes[0])


def _says_use(parameter: Parameter) -> bool:
    return parameter.name.startswith(("use_", "return_")) or is_annotated(parameter, bool)


class _PlainRows:
    """Some first rows of a problem and the one behind them, and their answers without a cache.

    Each is asked once, however many ways to pass a cache are compared with it.
    """

    def __init__(self, bound: Convention, problem: Problem, before: int) -> None:
        self.bound, self.problem, self.before = bound, problem, before
        self.first, self.one = rows(problem, 0, before), rows(problem, before, before + 1)

    @cached_property
    def whole(self) -> Array:
        """The last row where it sees all."""
        return last_row(self.bound, self.problem, self.before + 1)

    @cached_property
    def of_first(self) -> Array:
        """The first rows."""
        return self.bound(self.first).output

    @cached_property
    def own(self) -> Array:
        """The last row where it sees itself alone."""
        return self.bound(self.one).output

    @cached_property
    def of_keys(self) -> Array | None:
        """The last row over the first ones alone; None where keys are no own input."""
        if "cross" not in self.bound.offer["inputs"]:
            return None
        case = self.one.case.replace(inputs="cross", keys=self.before)
        with suppress(CandidateError):
            keys = self.one.replace(case=case, key=self.first.key, value=self.first.key)
            return np.asarray(self.bound(keys).output)
        return None


def _tried(
    bound: Convention, use: CacheUse, plain: _PlainRows, raised: list[str]
) -> Iterator[tuple[CacheUse, bool]]:
    """Yield the ways that one row more is answered in, and whether it is that of the whole."""
    calls = CachedCalls(bound, use)
    answer, cache = calls.begin(plain.first)
    # What nothing says to be its cache changes nothing in the first rows, or is none.
    takers = [p for p in bound.call_parameters if p.name in use.parameters]
    guessed, pair = is_guess(use.begun, bound.entry(), takers), use.begun in empty_pairs()
    if guessed and not equal_up_to_rounding(plain.of_first, answer.output):
        return
    if pair and not _reads_pair(calls, plain.first, answer.output):
        return
    for found in placed(use, answer.beside, cache, plain.before):
        calls = CachedCalls(bound, found, None if found.parameters else calls.function)
        given = cache if found.filled or not found.parameters else taken_from(answer.beside, found)
        try:
            output = calls.go_on(plain.one, plain.before, given)[0].output
        except CandidateError as error:
            named = " and ".join(f"`{name}`" for name in found.parameters)
            raised += [f"with {named} as a call returned it, the next one {error}"] if named else []
            continue
        right = equal_up_to_rounding(plain.whole, output)
        # What keeps nothing without being passed anything has no cache to judge, nor what takes
        # the keys and values of earlier calls in the place of its own.
        none = plain.own if found.kept_inside or (guessed and not pair) else plain.of_keys
        if right or none is None or not equal_up_to_rounding(none, output):
            yield found, right


def _reads_pair(calls: CachedCalls, problem: Problem, output: Array) -> bool:
    """Return whether a pair of one row changes what the first rows are with an empty one."""
    with suppress(CandidateError):
        other = calls.ask(problem, 1, calls.begun(problem, 1)).output
        return not equal_up_to_rounding(other, output)
    return True
