"""Names, strings and keys that the code of a function reads, from its bytecode."""

from __future__ import annotations

import dis
import inspect
import re
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT_CODE = 1024  # functions of which each layer that is built is asked what it reads
_UNPACKS = "UNPACK_SEQUENCE"
_ENDING = re.compile(r"[./][A-Za-z]\w*")
_KEY = re.compile(r"[A-Za-z]\w*\.(weight|bias|kernel|w|b)")  # both in one string


def names_read(function: Any) -> Iterator[str]:
    """Yield the global names and attributes that a function reads."""
    yield from names_in(getattr(inspect.unwrap(function), "__code__", None))


@lru_cache(maxsize=KEPT_CODE)
def names_in(code: CodeType | None) -> tuple[str, ...]:
    """Return the global names and attributes that code reads, in its comprehensions too.

    And an attribute or a key of a global name as both: `sizes.n_embd`, of `sizes["n_embd"]` too.
    """
    if code is None:
        return ()
    both = (
        f"{owner.argval}.{read.argval}"
        for owner, read in pairwise(dis.get_instructions(code))
        if owner.opname == "LOAD_GLOBAL"
        and (
            read.opname == "LOAD_ATTR" or (read.opname == "LOAD_CONST" and type(read.argval) is str)
        )
    )
    inside = (each for each in code.co_consts if isinstance(each, CodeType))
    return (*code.co_names, *both, *(name for each in inside for name in names_in(each)))


@lru_cache(maxsize=KEPT_CODE)
def globals_of(code: CodeType) -> tuple[str, ...]:
    """Return the global names that code reads, and those read of one: no attribute as `k.T`."""
    steps = dis.get_instructions(code)
    return (
        *(each.argval for each in steps if each.opname == "LOAD_GLOBAL"),
        *(name for name in names_in(code) if "." in name),
        *(n for each in code.co_consts if isinstance(each, CodeType) for n in globals_of(each)),
    )


def _strings(code: CodeType | None) -> Iterator[str]:
    """Yield the strings that code has as constants, in tuples and in its comprehensions too."""
    for each in () if code is None else code.co_consts:
        yield from (s for s in (each if isinstance(each, tuple) else (each,)) if isinstance(s, str))
        yield from _strings(each if isinstance(each, CodeType) else None)


def keys_read(function: Any) -> tuple[str, ...]:
    """Return the words among the strings of a function and of those of its folder that it calls.

    Behind them each word with each ending of theirs, as `.weight` of f"{name}.weight", or of
    "q.weight".
    """
    found: dict[str, None] = {}
    endings: dict[str, None] = {}
    todo, seen = [inspect.unwrap(function)], set()
    folder = _folder(todo[0])
    while todo:
        each = todo.pop()
        seen.add(id(each))
        code, scope = getattr(each, "__code__", None), getattr(each, "__globals__", {})
        found |= {word: None for word in _strings(code) if word.isidentifier()}
        endings |= {text: None for text in _strings(code) if _ENDING.fullmatch(text)}
        whole = [text.partition(".") for text in _strings(code) if _KEY.fullmatch(text)]
        found |= {word: None for word, _, _ in whole}
        endings |= {f".{ending}": None for _, _, ending in whole}
        called = (inspect.unwrap(scope[n]) for n in names_in(code) if callable(scope.get(n)))
        todo += [f for f in called if id(f) not in seen and _folder(f) == folder]
    return (*found, *(word + ending for word in found for ending in endings))


def _folder(function: Any) -> str | None:
    """Return the folder of the file of a function, or None of what has no code."""
    code = getattr(function, "__code__", None)
    return None if code is None else str(Path(code.co_filename).parent)


def names_unpacked(function: Any) -> tuple[tuple[str, ...], ...]:
    """Return the groups of names that a function unpacks a tuple to, one for each statement."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    steps = [] if code is None else list(dis.get_instructions(code))
    counts = [(at, each.argval) for at, each in enumerate(steps) if each.opname == _UNPACKS]
    stored = (
        [name for step in steps[at + 1 : at + 1 + count] for name in _stored(step)][:count]
        for at, count in counts
    )
    return tuple(
        tuple(each) for (_, count), each in zip(counts, stored, strict=True) if count == len(each)
    )


def _stored(step: dis.Instruction) -> tuple[str, ...]:
    """Return the names that one step stores to: newer Pythons store two at once."""
    if not step.opname.startswith("STORE_FAST"):
        return ()
    return step.argval if isinstance(step.argval, tuple) else (step.argval,)


def records_annotated(function: Any) -> tuple[type, ...]:
    """Return the classes of named tuples and dataclasses that parameters are annotated with."""
    with suppress(Exception):  # whatever stands in an annotation that is read late
        hints = get_type_hints(function).values()
        return tuple(each for each in hints if isinstance(each, type) and fields_of(each))
    return ()


def fields_of(record: type) -> tuple[str, ...]:
    """Return the fields of a class of named tuples or of a dataclass; () of any other class."""
    named = [field.name for field in fields(record)] if is_dataclass(record) else ()
    return tuple(getattr(record, "_fields", named))
