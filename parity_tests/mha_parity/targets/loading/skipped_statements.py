"""Statements of a target's file that are not executed: what is said of them, and what they change.

Where such a statement may change something that the target reads, the target as it stands is
another one than its definitions say: it is refused.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import TargetError
from mha_parity.targets.static.names_in_code import names_read
from mha_parity.targets.static.source import syntax_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Methods that change lists, dictionaries and sets.
_CHANGING = frozenset({
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "reverse",
    "setdefault", "sort", "update",
})  # fmt: skip
_SETTINGS = re.compile(r"^\w+\.backends\.")
KEPT_BY = "__mha_parity_left_out__"  # under which a module keeps what was left out of it


@dataclass
class LeftOut:
    """Statements and names that were left out of a module.

    ``names``: those that would have been set, and where. ``statements``: the others, and where.
    ``why``: a sentence on why, "" for a notebook, of which that is known.
    """

    names: dict[str, str] = field(default_factory=dict)
    statements: list[tuple[str, ast.stmt]] = field(default_factory=list)
    why: str = ""

    def add(self, at: str, statement: ast.stmt, bound: Iterable[str]) -> None:
        """Take in a statement and the names that it would have set."""
        self.names |= dict.fromkeys(bound, at)
        self.statements.append((at, statement))


def of_module(module: Any) -> LeftOut:
    """Return what was left out of a module; nothing of one that was executed whole."""
    found = getattr(module, KEPT_BY, None)
    return found if isinstance(found, LeftOut) else LeftOut()


def keep(module: ModuleType, left_out: LeftOut) -> None:
    """Keep what was left out of a module with it."""
    vars(module)[KEPT_BY] = left_out


def remark_on(subject: Any) -> str:
    """Say why a part of the subject's module was left out, "" where it was not."""
    return of_module(inspect.getmodule(subject)).why


def require_unchanged(text: str, module: ModuleType, subject: Any) -> None:
    """Raise TargetError where a statement that was left out may change what the target reads."""
    statements = of_module(module).statements
    if not statements:
        return
    read = {*_read(subject, module)}
    for at, statement in statements:
        for name in _changed(statement, module, {*()}):
            if name in read and hasattr(module, name):
                raise TargetError(
                    f"got the target {text!r}, but {at} may change `{name}`, which the target "
                    "reads, and was not executed; write the value where it is defined, or judge "
                    "the target in a file of its own."
                )


def _read(subject: Any, module: ModuleType) -> Iterator[str]:
    """Yield the name of a subject and those that it reads, itself or in functions it calls."""
    todo: list[Any] = [inspect.unwrap(subject)]
    yield getattr(subject, "__name__", "")
    seen: set[int] = set()
    while todo:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, type):
            yield each.__name__
            todo += [f for kind in each.__mro__ for f in vars(kind).values() if callable(f)]
            continue
        for name in names_read(each):
            yield name
            value = getattr(module, name, None)
            if getattr(value, "__module__", None) == module.__name__ and callable(value):
                todo.append(value)


def _changed(node: ast.AST, module: ModuleType, seen: set[str]) -> Iterator[str]:
    """Yield the global names that a statement may set or change, and functions that it calls."""
    for each in ast.walk(node):
        # `torch.backends.cudnn.deterministic` is set with a seed, and decides no formula.
        if (
            isinstance(each, ast.Name | ast.Attribute | ast.Subscript)
            and isinstance(each.ctx, ast.Store | ast.Del)
            and not _SETTINGS.search(ast.unparse(each))
        ):
            yield _root(each)
        if not isinstance(each, ast.Call):
            continue
        called = each.func
        if isinstance(called, ast.Attribute) and called.attr in _CHANGING:
            root = _root(called)  # `np.append` is a function, which changes no module
            if not isinstance(getattr(module, root, None), ModuleType):
                yield root
        if isinstance(called, ast.Name) and called.id == "setattr" and each.args:
            yield _root(each.args[0])
        function = getattr(module, called.id, None) if isinstance(called, ast.Name) else None
        if isinstance(function, FunctionType) and function.__name__ not in seen:
            seen.add(function.__name__)
            yield from _changed_by(function, module, seen)


def _changed_by(function: FunctionType, module: ModuleType, seen: set[str]) -> Iterator[str]:
    """Yield the global names that a function of the module may set or change."""
    if function.__module__ != module.__name__:
        return
    own = {*function.__code__.co_varnames}
    yield from (each for each in _changed(syntax_of(function), module, seen) if each not in own)


def _root(node: ast.AST) -> str:
    """Return the name that an attribute or an entry belongs to, "" where it is no name."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
