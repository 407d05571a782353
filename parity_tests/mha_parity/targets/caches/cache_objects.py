"""Caches that the user's code makes: objects of its classes, and what its functions return.

``kv_cache: KVCache`` names the class; without an annotation those of the module that are called a
cache are tried, and methods and functions that make one by their names. Each is called with sizes
of a problem, by the names of its parameters, as the constructor of a layer is. What it does with
keys and values is not looked at.
"""

from __future__ import annotations

import inspect
import re
import sys
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, get_args

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.caches.step_methods import MAKES
from mha_parity.targets.calls.target_call import method_of, target_errors
from mha_parity.targets.interpretations.empty_past import empty_pairs, empty_state
from mha_parity.targets.static import call_parameters
from mha_parity.targets.static.argument_meanings import LayerSizes, meanings
from mha_parity.targets.static.defined_methods import own_methods

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from inspect import Parameter

    from mha_parity.core.problem import Problem
    from mha_parity.targets.calls.target_call import Arguments, Call

_CALLED_CACHE = re.compile(r"cache|kv_?state|kv_?memory", re.IGNORECASE)
_MAKES_ITSELF = re.compile(
    rf"({MAKES.pattern})|init|create|empty|new|zeros?|make|build|allocate|initial(ize)?"
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_LIBRARIES = frozenset({
    "builtins", "collections", "typing", "types", "torch", "numpy", "jax", "jaxlib", "jaxtyping",
    "tensorflow",
})  # fmt: skip
TRANSFORMERS = "transformers"


def _of_transformers() -> Any:
    """Return an empty cache as Hugging Face's layers fill it."""
    return sys.modules[TRANSFORMERS].DynamicCache()


# What begins a cache whoever wrote the layer.
BEGUN: dict[str, Callable[[], Any]] = {
    "": lambda: None, "dict": dict, "list": list, TRANSFORMERS: _of_transformers
}  # fmt: skip
# Meanings of sizes that a cache is made for, whatever they are by default.
_SIZES = frozenset({"heads", "kv_heads", "head_dim", "width"})
_SAMPLES = frozenset({"samples", "most_samples"})
_OF_ARRAYS = frozenset({"dtype", "device"})


def makers(entry: Any, subject: Any, parameter: Parameter) -> tuple[str, ...]:
    """Return what may make the cache that a parameter of a call gets, the likeliest first.

    ``entry`` is the function that is called, ``subject`` the target. Each is the name of a class or
    a function of the module, of a method of that class or of one of the target.
    """
    scope = _scope(entry)
    annotated = _annotated(parameter.annotation, scope)
    own = own_methods(subject) if isinstance(subject, type) else ()
    of_layer = (name for name, _ in own if MAKES.fullmatch(name))
    functions = (n for n, each in scope.items() if inspect.isfunction(each) and MAKES.fullmatch(n))
    called = (name for name, each in scope.items() if _CALLED_CACHE.search(name))
    kinds = (*annotated, *([] if annotated else called))
    return tuple(dict.fromkeys(chain(_by_kinds(kinds, scope), of_layer, functions)))


def beginnings(entry: Any, subject: Any, takers: Sequence[Parameter]) -> tuple[str, ...]:
    """Return what the first call may be passed: by one parameter more than the default."""
    if len(takers) != 1:
        return ("",)
    known = [each for each in BEGUN if each != TRANSFORMERS or TRANSFORMERS in sys.modules]
    return (*known, *makers(entry, subject, takers[0]), *empty_pairs())


def begun_cache(begun: str, entry: Any, call: Call, arguments: Arguments, rows: int = 0) -> Any:
    """Return what the first call of a sequence is passed; of a pair also one of some rows of 1.

    Raises
    ------
    CandidateError
        Nothing in the user's code makes it.

    """
    if begun in BEGUN:
        return BEGUN[begun]()
    problem = arguments.problem
    if begun in empty_pairs():
        array = partial(arguments.array, "cache")
        return empty_state(begun, problem.case, problem.dtype, array, rows=rows)
    return new_cache(begun, entry, call, problem)


def stays_empty(begun: str, cache: Any) -> bool:
    """Return whether what a call was passed holds nothing behind it: a pair can be no other."""
    return begun in empty_pairs() or (begun in BEGUN and not cache)


def is_guess(begun: str, entry: Any, takers: Iterable[Parameter]) -> bool:
    """Return whether nothing says what begins a cache: a pair, or a class that is not annotated."""
    name = begun.partition(".")[0]
    said = " ".join(str(each.annotation) for each in takers)
    by_name = isinstance(_scope(entry).get(name), type) and name not in said
    return begun in empty_pairs() or by_name


def _scope(entry: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(inspect.unwrap(entry), "__globals__", {})
    return found


def _annotated(said: Any, scope: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of classes of the module in an annotation, which may be text."""
    if isinstance(said, str):
        return tuple(name for name in _NAME.findall(said) if _is_own(scope.get(name)))
    if isinstance(said, type):
        return (said.__name__,) if _is_own(scope.get(said.__name__)) else ()
    inner = (getattr(each, "__forward_arg__", each) for each in get_args(said))
    return tuple(chain.from_iterable(_annotated(each, scope) for each in inner))


def _is_own(kind: Any) -> bool:
    """Return whether something is a class of the user's; arrays and containers are a library's."""
    return isinstance(kind, type) and kind.__module__.partition(".")[0] not in _LIBRARIES


def _by_kinds(names: Iterable[str], scope: Mapping[str, Any]) -> Iterator[str]:
    """Yield the classes of these names, each behind its methods of the class that make one."""
    for name in names:
        kind = scope.get(name)
        if _is_own(kind):
            methods = (
                n for n, m in vars(kind).items() if isinstance(m, classmethod | staticmethod)
            )
            yield from (f"{name}.{each}" for each in methods if _MAKES_ITSELF.fullmatch(each))
            yield name


def new_cache(made_by: str, entry: Any, call: Call, problem: Problem) -> Any:
    """Return what a maker makes for a problem, of the dtype and device of an array of its call.

    Raises
    ------
    CandidateError
        It needs what is unknown, raised, or made nothing.

    """
    maker = _maker(made_by, entry, call)
    arrays = (each for each in (*call.args, *call.kwargs.values()) if hasattr(each, "dtype"))
    array = next(arrays, None)
    given = {
        name: getattr(array, meaning, None) if meaning in _OF_ARRAYS else _size(meaning, problem)
        for name, meaning in arguments_of_maker(made_by, entry, call).items()
    }
    with target_errors():
        cache = maker(**given)
    if cache is None:
        raise CandidateError("structure", f"`{made_by}` returned no cache")
    return cache


def _maker(made_by: str, entry: Any, call: Call) -> Any:
    """Return a class or function of the module, a method of that class, or one of the layer."""
    kind, _, method = made_by.partition(".")
    maker = _scope(entry).get(kind)
    if maker is None:
        return method_of(call.function, made_by)
    return getattr(maker, method) if method else maker


def arguments_of_maker(made_by: str, entry: Any, call: Call) -> dict[str, str]:
    """Return what a maker is called with, by meaning; defaults that are no size stay.

    Raises
    ------
    CandidateError
        It needs what is unknown.

    """
    given = dict[str, str]()
    for each in call_parameters.of_callable(_maker(made_by, entry, call)):
        meaning = next(iter(meanings(each.name)), "")
        if meaning in _OF_ARRAYS | _SAMPLES | _SIZES or each.default is each.empty:
            if not meaning:
                raise CandidateError("structure", f"`{made_by}` takes what is unknown")
            given[each.name] = {"heads": "kv_heads"}.get(meaning, meaning)
    return given


def _size(meaning: str, problem: Problem) -> Any:
    """Return a size of a cache for a problem, with room for its samples and no more."""
    case = problem.case
    sizes = LayerSizes(
        problem.num_heads * case.head_dim,
        problem.num_heads,
        kv_heads=case.kv_heads_count or problem.num_heads,
        samples=case.batch,
    )
    return case.batch if meaning in _SAMPLES else sizes.value(meaning)


def first_maker(
    each: Parameter, entry: Any, subject: Any, call: Call, problem: Problem
) -> tuple[str, Any]:
    """Return the first maker that makes a cache for a parameter, and what it made.

    Raises
    ------
    CandidateError
        None does.

    """
    for made_by in makers(entry, subject, each):
        with suppress(CandidateError):
            return made_by, new_cache(made_by, entry, call, problem)
    raise CandidateError("structure", f"needs a cache in `{each.name}`, which nothing makes")


def new_caches(
    named: Iterable[Parameter], entry: Any, subject: Any, call: Call, problem: Problem
) -> dict[str, Any]:
    """Return an empty cache for each of these parameters, by the first maker that makes one.

    Raises
    ------
    CandidateError
        None does.

    """
    return {each.name: first_maker(each, entry, subject, call, problem)[1] for each in named}
