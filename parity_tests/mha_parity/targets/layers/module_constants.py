"""Numbers of its module that a class or function reads: heads, widths and lengths."""

from __future__ import annotations

import inspect
import re
import sys
from argparse import Namespace
from collections import ChainMap
from functools import lru_cache
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from mha_parity.targets.layers.removed_parts import parts_taken_out
from mha_parity.targets.static.argument_meanings import meanings, size_of_heads
from mha_parity.targets.static.names_in_code import globals_of, names_in

if TYPE_CHECKING:
    from collections.abc import Mapping

KEPT_CLASSES = 4  # whose code is read once: of each layer that is built it is asked
_OF_HEADS = frozenset({"heads", "head_dim", "width"})
# A length that a function has to have, and no part of it: `block_size` may be that of a tile.
_LENGTH = re.compile(
    r"t|s_?len|seq_?len(gth)?|sequence_len(gth)?|(n|num)_?tokens|(n_)?ctx_?len(gth)?"
)


def globals_read(kind: type) -> Mapping[str, str]:
    """Return the numbers of a module that a class, or what it calls there, reads, by meaning.

    Those of a module, a class, an object or a dictionary of the user's there too:
    `constants.n_embd`. What is decorated is not followed: what is compiled has read its numbers.
    """
    scope = getattr(getattr(kind, "__init__", None), "__globals__", {})
    seen = {name for names in _names_by_method(kind, parts_taken_out()).values() for name in names}
    numbers = {n for n in seen if type(number_of(scope, n)) in {int, float}}
    known = {n: meanings(n.rpartition(".")[2])[:1] for n in numbers}
    return {n: meant[0] for n, meant in known.items() if meant and meant[0] != "zero"}


def lengths_in_calls(kind: type) -> dict[str, str]:
    """Return the lengths of a module that a class is built by and its calls read too, by meaning.

    One that calls alone read may be the size of a tile, which stays as it is.
    """
    names = dict(_names_by_method(kind, parts_taken_out()))
    built = names.pop("__init__", set())
    called = {name for each in names.values() for name in each}
    found = {name for name, meaning in globals_read(kind).items() if meaning == "length"}
    return dict.fromkeys(sorted(found & built & called), "length")


def sizes_read(kind: type, *, of_heads: bool = False) -> dict[str, str]:
    """Return heads and widths of a module that a class is built by, by meaning.

    A width that its calls alone read is none: names of widths are many. One of its heads may be.
    ``of_heads``: the constructor takes the width of all, so that only heads are those of a module.
    None where they contradict each other: a number that is wrong would be set right.
    """
    built = [vars(each).get("__init__") for each in kind.__mro__]
    read = {name for each in built for name in names_in(getattr(each, "__code__", None))}
    scope = getattr(getattr(kind, "__init__", None), "__globals__", {})
    whole = (
        (n, m)
        for n, m in globals_read(kind).items()
        if type(found := number_of(scope, n)) is int and found > 0
    )
    found = {name: meaning for name, meaning in sorted(whole) if meaning in _OF_HEADS}
    if of_heads:
        found = {name: meaning for name, meaning in found.items() if meaning != "width"}
    elif not read & found.keys():
        return {}
    sizes = {name: each for name, each in found.items() if name in read or each != "width"}
    values = {
        each: {number_of(scope, n) for n, m in sizes.items() if m == each}
        for each in sizes.values()
    }
    if any(len(each) > 1 for each in values.values()):
        return {}
    heads, head_dim, width = (min(values.get(m, {0})) for m in ("heads", "head_dim", "width"))
    if heads and head_dim and width:
        return sizes if heads * head_dim == width else {}
    return sizes if not width or width % (heads or head_dim or 1) == 0 else {}


def numbers_read(function: Any) -> dict[str, str]:
    """Return heads, widths and lengths among the numbers that a function reads, by meaning.

    They are those of its module, or of something of the user's there, and functions of the module
    that it calls read them too. It may read the number of heads, or take it and read the width of
    all; none without that or a length, nor of what is decorated, since what is compiled has read it
    already. Other numbers stay as they are: that of one head beside their number would be a scale
    of its own. None where the three contradict each other: a wrong one would be set right.
    """
    scope, code = getattr(function, "__globals__", {}), getattr(function, "__code__", None)
    names = _names_followed(function, scope) if inspect.isfunction(function) else set()
    numbers = {name for name in names if type(number_of(scope, name)) is int}
    known = {name: meanings(name.rpartition(".")[2]) for name in sorted(numbers)}
    meant = {name: each[0] for name, each in known.items() if each}
    found = {name: each for name, each in meant.items() if each in _OF_HEADS}
    lengths = {n: m for n, m in meant.items() if _LENGTH.fullmatch(n.rpartition(".")[2].lower())}
    taken = () if code is None else code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if "heads" in map(size_of_heads, taken):
        return {name: each for name, each in found.items() if each == "width"} | lengths
    if not lengths and "heads" not in found.values():
        return {}
    sizes = {each: number_of(scope, name) for name, each in found.items()}
    whole = sizes.get("heads", 0) * sizes.get("head_dim", 0)
    return {} if whole and whole != sizes.get("width", whole) else found | lengths


def _names_followed(function: Any, scope: Mapping[str, Any]) -> set[str]:
    """Return the names that a function reads, or one of its module that it calls."""
    found: set[str] = set()
    todo, seen = [function], {function.__name__}
    while todo:
        names = set(globals_of(todo.pop().__code__))
        found |= names
        for name in names - seen:
            seen.add(name)
            value = scope.get(name)
            if inspect.isfunction(value) and value.__module__ == function.__module__:
                todo.append(value)
    return found


@lru_cache(maxsize=KEPT_CLASSES)
def _names_by_method(kind: type, _taken_out: tuple[str, ...]) -> Mapping[str, set[str]]:
    """Return the names that methods of a class, and what they call in its module, read.

    By the names of these: methods of one name in several classes have their names together.
    Other functions stand in the place of parts that are taken out.
    """
    scope = getattr(getattr(kind, "__init__", None), "__globals__", {})
    found: dict[str, set[str]] = {}
    bases = (each for each in kind.__mro__ if each.__module__ == kind.__module__)
    todo = [each for base in bases for each in vars(base).items()]
    seen: set[str] = set()
    while todo:
        method, function = todo.pop()
        code = getattr(function, "__code__", None)
        names = set[str]() if code is None else set(globals_of(code))
        found.setdefault(method, set()).update(names)
        for name in names - seen:
            seen.add(name)
            value = scope.get(name)
            # What else a module holds may answer any attribute, or raise.
            followed = isinstance(value, type) or inspect.isfunction(value)
            if followed and value.__module__ == kind.__module__:
                todo += vars(value).items() if isinstance(value, type) else [(name, value)]
    return found


def number_of(scope: Mapping[str, Any], name: str) -> Any:
    """Return what a name holds in a module, or in something of the user's there; else None.

    That is a module that it imports, a class or an object with attributes, or a dictionary.
    """
    owner, _, attribute = name.rpartition(".")
    return _held_by(scope.get(owner)).get(attribute) if owner else scope.get(name)


def _held_by(owner: Any) -> Mapping[str, Any]:
    """Return what something of the user's holds by name; nothing of what is a library's."""
    if isinstance(owner, dict):
        return owner
    kind = owner if isinstance(owner, ModuleType | type) else type(owner)
    name = kind.__name__ if isinstance(kind, ModuleType) else kind.__module__
    file = getattr(sys.modules.get(name, kind), "__file__", None) or "site-packages"
    library = "site-packages" in file or name.partition(".")[0] in sys.stdlib_module_names
    plain = kind in {SimpleNamespace, Namespace}
    if library and not plain:
        return {}
    classes = kind.__mro__ if isinstance(kind, type) else ()
    return ChainMap(*(dict(getattr(each, "__dict__", {})) for each in (owner, *classes)))


def set_number(scope: dict[str, Any], name: str, value: Any) -> None:
    """Set what ``number_of`` returns."""
    owner, _, attribute = name.rpartition(".")
    held = scope[owner] if owner else scope
    if isinstance(held, type):
        setattr(held, attribute, value)
    else:  # of a frozen dataclass, too: it is set back
        (held if isinstance(held, dict) else vars(held))[attribute] = value
