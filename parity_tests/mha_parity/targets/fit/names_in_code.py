"""Names read by the code of a class or function: numbers of its module, strings, unpacked ones."""

from __future__ import annotations

import ast
import dis
import inspect
import re
import sys
import textwrap
from argparse import Namespace
from collections import ChainMap
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, get_type_hints

from mha_parity.targets.fit.argument_meanings import meanings, size_of_heads
from mha_parity.targets.fit.bypass import parts_taken_out
from mha_parity.targets.fit.names import ROWS, parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KEPT_CLASSES = 4  # whose code is read once: of each layer that is built it is asked
KEPT_CODE = 1024  # functions of which each layer that is built is asked what it reads
_UNPACKS = "UNPACK_SEQUENCE"
_OF_HEADS = frozenset({"heads", "head_dim", "width"})
# A length that a function has to have, and no part of it: `block_size` may be that of a tile.
_LENGTH = re.compile(
    r"t|s_?len|seq_?len(gth)?|sequence_len(gth)?|(n|num)_?tokens|(n_)?ctx_?len(gth)?"
)
_ENDING = re.compile(r"[./][A-Za-z]\w*")
_KEY = re.compile(r"[A-Za-z]\w*\.(weight|bias|kernel|w|b)")  # both in one string
_COMPARES = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)


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
        names = set[str]() if code is None else set(_globals_of(code))
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


def sizes_read(kind: type, *, of_heads: bool = False) -> dict[str, str]:
    """Return heads and widths of a module that a class is built by, by meaning.

    A width that its calls alone read is none: names of widths are many. One of its heads may be.
    ``of_heads``: the constructor takes the width of all, so that only heads are those of a module.
    None where they contradict each other: a number that is wrong would be set right.
    """
    built = [vars(each).get("__init__") for each in kind.__mro__]
    read = {name for each in built for name in _names(getattr(each, "__code__", None))}
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
        names = set(_globals_of(todo.pop().__code__))
        found |= names
        for name in names - seen:
            seen.add(name)
            value = scope.get(name)
            if inspect.isfunction(value) and value.__module__ == function.__module__:
                todo.append(value)
    return found


@lru_cache(maxsize=KEPT_CODE)
def _globals_of(code: CodeType) -> tuple[str, ...]:
    """Return the global names that code reads, and what it reads of one: no attribute as `k.T`."""
    steps = dis.get_instructions(code)
    return (
        *(each.argval for each in steps if each.opname == "LOAD_GLOBAL"),
        *(name for name in _names(code) if "." in name),
        *(n for each in code.co_consts if isinstance(each, CodeType) for n in _globals_of(each)),
    )


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
        called = (inspect.unwrap(scope[n]) for n in _names(code) if callable(scope.get(n)))
        todo += [f for f in called if id(f) not in seen and _folder(f) == folder]
    return (*found, *(word + ending for word in found for ending in endings))


def _folder(function: Any) -> str | None:
    """Return the folder of the file of a function, or None of what has no code."""
    code = getattr(function, "__code__", None)
    return None if code is None else str(Path(code.co_filename).parent)


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


def orders_unpacked(kind: type) -> dict[str, tuple[str, ...]]:
    """Return the order of q, k and v in what a class unpacks from a module's output, by its name.

    Of `k, q, v = self.c_attn(x).split(n, dim=2)` it is k, q, v; none where two disagree. The output
    may be held by a variable first.
    """
    found: dict[str, set[tuple[str, ...]]] = {}
    held: dict[str, set[str]] = {}
    for each in (node for node in _nodes(kind) if isinstance(node, ast.Assign)):
        target = each.targets[0]
        called = _modules_called(each.value)
        if isinstance(target, ast.Name):
            held.setdefault(target.id, set()).update(called)
        if not isinstance(target, ast.Tuple | ast.List):
            continue
        order = tuple(part for name in target.elts for part in parts(_last_name(name)))
        read = (n.id for n in ast.walk(each.value) if isinstance(n, ast.Name))
        owners = called.union(*(held.get(name, set()) for name in read))
        if sorted(order) == sorted(ROWS):
            for owner in owners:
                found.setdefault(owner, set()).add(order)
    return {owner: orders.pop() for owner, orders in found.items() if len(orders) == 1}


def _modules_called(node: ast.AST) -> set[str]:
    """Return the attributes of `self` that an expression calls."""
    calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
    own = (f for f in calls if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name))
    return {f.attr for f in own if _last_name(f.value) == "self"}


def strings_compared(kind: type) -> dict[str, tuple[str, ...]]:
    """Return the strings that a class and its bases compare a name or an attribute with, by name.

    A ``match`` compares its subject with the values of its cases.
    """
    found: dict[str, dict[str, None]] = {}
    for each in _nodes(kind):
        sides = _compared(each)
        said = [n.value for side in sides for n in ast.walk(side) if isinstance(n, ast.Constant)]
        for side in sides:
            if name := _last_name(side):
                texts = (text for text in said if isinstance(text, str))
                found.setdefault(name, {}).update(dict.fromkeys(texts))
    return {name: tuple(texts) for name, texts in found.items() if texts}


def names_called(kind: type) -> frozenset[str]:
    """Return the variables, and the attributes of `self`, that the code of a class calls."""
    called = (each.func for each in _nodes(kind) if isinstance(each, ast.Call))
    own = (f for f in called if not isinstance(f, ast.Attribute) or _last_name(f.value) == "self")
    return frozenset(map(_last_name, own)) - {""}


def methods_called(kind: type, owner: str) -> frozenset[str]:
    """Return what the code of a class calls without arguments of what is called ``owner``."""
    calls = (each for each in _nodes(kind) if isinstance(each, ast.Call))
    called = (each.func for each in calls if not (each.args or each.keywords))
    return frozenset(
        func.attr
        for func in called
        if isinstance(func, ast.Attribute) and _last_name(func.value) == owner
    )


@lru_cache(maxsize=KEPT_CLASSES)
def _nodes(kind: type) -> tuple[ast.AST, ...]:
    """Return the nodes of the code of a class and its bases of the same module.

    None of a class that has no source.
    """
    found: list[ast.AST] = []
    for each in inspect.getmro(kind):
        if each.__module__ == kind.__module__:
            with suppress(OSError, TypeError, SyntaxError):
                found += ast.walk(ast.parse(textwrap.dedent(inspect.getsource(each))))
    return tuple(found)


def _last_name(node: ast.AST) -> str:
    """Return the name of a variable or of an attribute; "" of another expression."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _compared(node: ast.AST) -> tuple[ast.AST, ...]:
    """Return what a comparison, or a ``match``, compares with each other; () of other nodes."""
    if isinstance(node, ast.Match):
        return (node.subject, *(case.pattern for case in node.cases))
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], _COMPARES):
        return (node.left, *node.comparators)
    return ()


def _stored(step: dis.Instruction) -> tuple[str, ...]:
    """Return the names that one step stores to: newer Pythons store two at once."""
    if not step.opname.startswith("STORE_FAST"):
        return ()
    return step.argval if isinstance(step.argval, tuple) else (step.argval,)


def names_read(function: Any) -> Iterator[str]:
    """Yield the global names and attributes that a function reads."""
    yield from _names(getattr(inspect.unwrap(function), "__code__", None))


def _strings(code: CodeType | None) -> Iterator[str]:
    """Yield the strings that code has as constants, in tuples and in its comprehensions too."""
    for each in () if code is None else code.co_consts:
        yield from (s for s in (each if isinstance(each, tuple) else (each,)) if isinstance(s, str))
        yield from _strings(each if isinstance(each, CodeType) else None)


@lru_cache(maxsize=KEPT_CODE)
def _names(code: CodeType | None) -> tuple[str, ...]:
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
    inner = (name for each in code.co_consts if isinstance(each, CodeType) for name in _names(each))
    return (*code.co_names, *both, *inner)
