"""Methods of a layer that take one row more, and keep those before it in the layer or a cache."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import CandidateError
from mha_parity.core.parameters import Role
from mha_parity.targets.calls.target_call import method_of, owner_of, target_errors
from mha_parity.targets.static import call_parameters
from mha_parity.targets.static.argument_meanings import meanings
from mha_parity.targets.static.defined_methods import own_methods

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.targets.calls.cache_arguments import CacheUse
    from mha_parity.targets.calls.target_call import Call
    from mha_parity.targets.static.argument_meanings import LayerSizes

_STEP = re.compile(
    r"((forward|decode|attend|run|infer|inference|incremental|single|one|generate|next)_)?"
    r"(step|token|incremental|one)(_forward)?|decode|incremental(_forward|_step)?"
    r"|stream(ing)?(_(step|forward|chunk))?"
)
_OF_TRAINING = re.compile(r"lr|rate|eta|opt|grad|loss")  # of a step of gradient descent
MAKES = re.compile(
    r"(empty|init(ial)?(ize)?|new|make|create|alloc(ate)?|build|fresh|start|zero|set_?up|enable)_?"
    r"(kv_?)?(cache|state|memory)s?|(kv_?)?(cache|state)_(init|zero|empty)"
)
NONE = "None"
ROW_BY_ROW = "`{}` was asked row by row: each row sees those before it."
UNTRIED = "`{}` was not tried: it is not the answer to one row more of a sequence."
OF_MORE = "`{0}` was not tried: it takes more than a row and a cache; judge `{1}.{0}`."


def step_methods(kind: Any) -> Iterator[tuple[str, str]]:
    """Yield the methods of a class that are called a step by their names, and what they are passed.

    That is "" for the row alone; where they take one cache besides, `None` or the name of a method
    of the class that makes one.
    """
    for name, required in _steps(kind):
        if len(required) == 1:
            yield name, ""
        optional = [p for p in _parameters(kind, name)[len(required) :] if _is_cache(p)]
        caches = [p for p in required[1:] if _is_cache(p)]
        if caches == required[1:] and len(caches) + len(optional) == 1:
            yield from ((name, maker) for maker in (*_makers(kind), *([NONE] if optional else [])))


def steps_of_more(kind: Any) -> Iterator[str]:
    """Yield the methods of a class that are called so and need further arguments, as positions."""
    asked = {name for name, _ in step_methods(kind)}
    yield from (name for name, required in _steps(kind) if len(required) > 1 and name not in asked)


def _steps(kind: Any) -> Iterator[tuple[str, list[str]]]:
    for name, required in own_methods(kind):
        if _STEP.fullmatch(name) and required and not _OF_TRAINING.search(required[0]):
            yield name, required


def _parameters(kind: Any, method: str) -> list[str]:
    return [p.name for p in call_parameters.of_callable(getattr(kind, method), skip_self=True)]


def _is_cache(name: str) -> bool:
    return call_parameters.role(name, "call") is Role.CACHE


def _makers(kind: Any) -> Iterator[str]:
    """Yield the methods of a class that make an empty cache, by their names."""
    yield from (name for name, _ in own_methods(kind) if MAKES.fullmatch(name))


def stepped(call: Call, use: CacheUse, cache: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return what a method of the layer of a call answers to its one row, and the cache after it.

    The row is (N, 1, E), (1, N, E) or (1, E); where the method takes none of that axis, it is put
    back into the output.

    Raises
    ------
    CandidateError
        The call is of no layer with that method, or it raised.

    """
    given = [*call.args, *call.kwargs.values()]
    if not given or not hasattr(owner_of(call.function), use.method):
        raise CandidateError("structure", f"has no `{use.method}`")
    before = [slice(None)] * _axis_of_rows(given[0])
    with target_errors():
        row = given[0][(*before, 0)] if use.flat else given[0]
        result = method_of(call.function, use.method)(row, *cache)
    several = result if isinstance(result, tuple | list) else (result,)
    if use.passed and len(several) < 2:
        raise CandidateError("structure", f"returns no cache of `{use.method}`")
    output = several[0][(*before, None)] if use.flat else several[0]
    return output, tuple(several[1:2]) if use.passed else ()


def _axis_of_rows(row: Any) -> int:
    """Return the axis of the one row of a sequence."""
    shape = tuple(row.shape)
    return 0 if len(shape) == 2 or (shape[0] == 1 != shape[1]) else 1


def first_cache(call: Call, passed: str, sizes: LayerSizes) -> tuple[Any, ...]:
    """Return the cache before the first row; none where the method is passed none."""
    if passed in {"", NONE}:
        return (None,) if passed else ()
    maker = method_of(call.function, passed)
    required = [p for p in call_parameters.of_callable(maker) if p.default is p.empty]
    meant = {p.name: next(iter(meanings(p.name)), "") for p in required}
    if not all(meant.values()):
        raise CandidateError("structure", f"`{passed}` takes what is unknown")
    with target_errors():
        return (maker(**{name: sizes.value(meaning) for name, meaning in meant.items()}),)
