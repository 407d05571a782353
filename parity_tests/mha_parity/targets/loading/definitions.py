"""The definitions of a source text without the rest: imports, functions, classes, constants."""

from __future__ import annotations

import ast
import linecache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mha_parity.targets.loading.skipped_statements import LeftOut

_DEFINITIONS = (
    ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef,
)  # fmt: skip
_CONSTANTS = (
    ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.UnaryOp, ast.BinOp, ast.Name,
    ast.Attribute, ast.Lambda, ast.Load, ast.operator, ast.unaryop, ast.IfExp, ast.BoolOp,
    ast.boolop, ast.Compare, ast.cmpop, ast.keyword,
)  # fmt: skip
# Calls that say where arrays lie, and change nothing.
_OF_DEVICES = frozenset({
    "torch.device", "torch.cuda.is_available", "torch.backends.mps.is_available",
    "torch.backends.cuda.is_built", "torch.backends.mps.is_built", "torch.xpu.is_available",
})  # fmt: skip
_PARTIAL = frozenset({"partial", "functools.partial"})  # a function, which is not called yet
_OF_TRAINING = frozenset({"backward", "step", "train"})
KEPT = "only imports, functions, classes and constants are executed"


def execute(
    source: str, filename: str, place: str, scope: dict[str, Any], left_out: LeftOut, after: int = 0
) -> None:
    """Execute the definitions of ``source`` in ``scope``, and add the rest to ``left_out``.

    A definition that itself needs a name that is left out, or raises, is left out too. Lines before
    ``after`` have been executed already.
    """
    # So that tracebacks and `inspect` show the lines.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    for statement in ast.parse(source, filename).body:
        at = f"{place}, line {statement.lineno}" if place else f"line {statement.lineno}"
        if (statement.end_lineno or statement.lineno) < after:
            continue
        if not _is_kept(statement):
            left_out.add(at, statement, _bound_by(statement))
            continue
        try:
            exec(compile(ast.Module([statement], []), filename, "exec"), scope)  # noqa: S102  (what the user asked for)
        except ModuleNotFoundError:
            raise
        except Exception as error:  # noqa: BLE001  (whatever the target's definition raises)
            said = (
                explain_name_error(error, left_out.names)
                if isinstance(error, NameError)
                else str(error)
            )
            reason = f"{at}: {type(error).__name__}: {said}"
            left_out.names |= dict.fromkeys(_bound_by(statement), reason)


def has_training_loop(path: Path) -> bool:
    """Return whether a file has a loop of training, outside of its definitions."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError):
        return False
    return any(
        isinstance(node, ast.Attribute) and node.attr in _OF_TRAINING
        for statement in body
        if isinstance(statement, ast.For | ast.While)
        for node in ast.walk(statement)
    )


def _is_kept(statement: ast.stmt) -> bool:
    """Return whether a statement defines something without computing."""
    if isinstance(statement, _DEFINITIONS):
        return True
    if isinstance(statement, ast.Try):
        parts = [*statement.body, *statement.orelse, *statement.finalbody]
        parts += [each for handler in statement.handlers for each in handler.body]
        return all(isinstance(each, ast.Pass) or _is_kept(each) for each in parts)
    if isinstance(statement, ast.If):
        parts = [*statement.body, *statement.orelse]
        return _is_constant(statement.test) and all(map(_is_kept_in_branch, parts))
    if isinstance(statement, ast.Assign):
        return _is_constant(statement.value)
    return isinstance(statement, ast.AnnAssign) and (
        statement.value is not None and _is_constant(statement.value)
    )


def _is_kept_in_branch(statement: ast.stmt) -> bool:
    """Return the same of a statement behind a condition, where what is known may be printed."""
    called = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(called, ast.Call) and ast.unparse(called.func) == "print":
        inside = (node for each in called.args for node in ast.walk(each))
        return not any(isinstance(node, ast.Call) for node in inside)
    return isinstance(statement, ast.Pass) or _is_kept(statement)


def _is_constant(value: ast.expr) -> bool:
    """Return whether an expression only names and combines constants, functions and lambdas.

    ``functools.partial`` is a function, whatever it is given, and a device a constant.
    """
    if isinstance(value, ast.Lambda):
        return True
    if isinstance(value, ast.Call) and ast.unparse(value.func) in _PARTIAL:
        return True
    return all(isinstance(node, _CONSTANTS) or _is_of_devices(node) for node in ast.walk(value))


def _is_of_devices(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in _OF_DEVICES


def _bound_by(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def explain_name_error(error: NameError, left_out: dict[str, str]) -> str:
    """Return the message of a missing name, and that its statement was left out."""
    place = left_out.get(error.name or "")
    if place is None:
        return str(error)
    return f"{error}: {place} sets it, and was left out, since {KEPT}"
