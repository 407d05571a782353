"""Caches that are attached to a layer: no parameter of its call shows them.

An attribute that is called a cache, and that new layers leave at None in their calls, is set by
callers, or by a method of the layer that makes one.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from inspect import Parameter as Named
from typing import TYPE_CHECKING, Any

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.core.parameters import Parameter, Role
from mha_parity.targets.caches.cache_objects import makers, new_cache
from mha_parity.targets.calls.target_call import owner_of
from mha_parity.targets.layers.build_layer import assign

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.problem import Problem
    from mha_parity.targets.calls.target_call import Call
    from mha_parity.targets.convention_base.convention import Convention

OF = "attribute"
NOT_MADE = "None in every call: callers attach a cache to it, and nothing that was tried made one"
_CACHE = re.compile(r"_?(kv_?)?(cache|past(_?(kv|key_values?|keys?_values?))?)(_?kv)?")


def cache_attributes(bound: Convention) -> tuple[str, ...]:
    """Return the attributes of a new layer that are called a cache, and None behind a call."""
    if not isinstance(bound.subject, type):
        return ()
    with suppress(CandidateError):
        call = bound.prepare(make_problem(bound.trial_case()))
        held = getattr(owner_of(call.function), "__dict__", {})
        names = [name for name in held if _CACHE.fullmatch(name) and held[name] is None]
        if names:
            call.make()
        return tuple(name for name in names if held.get(name) is None)
    return ()


def ways(bound: Convention, attribute: str) -> tuple[str, ...]:
    """Return what may make the cache that an attribute is set to, the likeliest first."""
    return makers(bound.entry(), bound.subject, Named(attribute, Named.KEYWORD_ONLY))


def made(made_by: str, attribute: str, entry: Any, call: Call, problem: Problem) -> Any:
    """Return a new cache of a layer; of a method that sets the attribute, what it set.

    Raises
    ------
    CandidateError
        Nothing in the user's code makes it.

    """
    layer = owner_of(call.function)
    try:
        return new_cache(made_by, entry, call, problem)
    except CandidateError:
        if (cache := getattr(layer, attribute, None)) is None:
            raise
        return cache
    finally:
        assign(layer, attribute, None)


@contextmanager
def attached(function: Any, attribute: str, cache: tuple[Any, ...]) -> Iterator[None]:
    """Context: an attribute of the layer of a call is its cache, and None behind the call."""
    if not (attribute and cache):
        yield
        return
    layer = owner_of(function)
    assign(layer, attribute, cache[0])
    try:
        yield
    finally:
        assign(layer, attribute, None)


def say_attached(bound: Convention, names: tuple[str, ...]) -> None:
    """List attributes among the parameters of a target, as not tried unless a cache is found.

    One that a constructor has as a parameter is listed already.
    """
    known = {each.name for each in bound.parameters}
    tried = bound.cache.attached if bound.cache is not None else ""
    if bound.cache is not None and not tried:
        return  # the layer's own calls set them
    for name in (each for each in names if each not in known):
        reason = "" if name == tried else NOT_MADE
        listed = Parameter(name=name, of=OF, role=Role.CACHE, default="None", reason=reason)
        bound.configured = (*bound.configured, listed)
