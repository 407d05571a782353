"""Functions and classes out of a notebook, without running the rest of it."""

from __future__ import annotations

import ast
import linecache
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DEFINITIONS = (
    ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef,
)  # fmt: skip
_CONSTANTS = (
    ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.UnaryOp, ast.BinOp, ast.Name,
    ast.Attribute, ast.Lambda, ast.Load, ast.operator, ast.unaryop,
)  # fmt: skip


def module(path: Path, name: str) -> ModuleType:
    """Execute the imports, definitions and constants of a notebook and return them as a module.

    ``module.__left_out__`` maps the names that other statements would have set to where those
    stand. A cell that is no Python (a shell or cell magic) is left out whole.
    """
    import nbformat

    made = ModuleType(name)
    made.__file__ = str(path)
    left_out: dict[str, str] = {}
    vars(made)["__left_out__"] = left_out
    sys.modules[name] = made
    cells = nbformat.read(path, as_version=4).cells  # type: ignore[no-untyped-call]  # it ships no types
    codes = [cell.source for cell in cells if cell.cell_type == "code"]
    for number, source in enumerate(codes, start=1):
        _execute(source, f"{path.name}[cell {number}]", f"cell {number}", vars(made), left_out)
    return made


def _execute(
    source: str, filename: str, cell: str, scope: dict[str, Any], left_out: dict[str, str]
) -> None:
    text = "\n".join(map(_without_magic, source.splitlines()))
    # So that tracebacks and `inspect` show the lines of the cell.
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    for statement in _statements(text, filename):
        if not _is_kept(statement):
            place = f"{cell}, line {statement.lineno}"
            left_out |= dict.fromkeys(_bound_by(statement), place)
            continue
        try:
            exec(compile(ast.Module([statement], []), filename, "exec"), scope)  # noqa: S102  (what the user asked for)
        except NameError as error:
            if error.name in left_out:
                raise NameError(explained(error, left_out)) from None
            raise


def _statements(text: str, filename: str) -> list[ast.stmt]:
    try:
        return ast.parse(text, filename).body
    except SyntaxError:
        if text.lstrip().startswith("#%%"):  # a cell magic: another language
            return []
        raise


def _without_magic(line: str) -> str:
    """Return the line, commented out if it speaks to the notebook and not to Python."""
    stripped = line.lstrip()
    return f"#{line}" if stripped[:1] in {"%", "!", "?"} else line


def _is_kept(statement: ast.stmt) -> bool:
    """Return whether a statement defines something without computing."""
    if isinstance(statement, _DEFINITIONS):
        return True
    if isinstance(statement, ast.Try):
        parts = [*statement.body, *statement.orelse, *statement.finalbody]
        parts += [each for handler in statement.handlers for each in handler.body]
        return all(isinstance(each, ast.Pass) or _is_kept(each) for each in parts)
    if isinstance(statement, ast.Assign):
        return _is_constant(statement.value)
    return isinstance(statement, ast.AnnAssign) and (
        statement.value is not None and _is_constant(statement.value)
    )


def _is_constant(value: ast.expr) -> bool:
    """Return whether an expression only names and combines constants, functions and lambdas."""
    if isinstance(value, ast.Lambda):
        return True
    return all(isinstance(node, _CONSTANTS) for node in ast.walk(value))


def _bound_by(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def explained(error: NameError, left_out: dict[str, str]) -> str:
    """Return the message of a missing name, and that its statement was left out."""
    place = left_out.get(error.name or "")
    if place is None:
        return str(error)
    return (
        f"{error}: {place} sets it, and was left out, since only imports, functions, classes and "
        "constants of a notebook are executed"
    )
