"""Statements of the code of a class: what it unpacks, compares and calls."""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
from functools import lru_cache
from typing import Any

from mha_parity.targets.static.projection_names import ROWS, parts
from mha_parity.targets.static.source import syntax_of

KEPT_CLASSES = 4  # whose code is read once: of each layer that is built it is asked
_COMPARES = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)


def orders_unpacked(kind: type) -> dict[str, tuple[str, ...]]:
    """Return the order of q, k and v in what a class unpacks from a module's output, by its name.

    Of `k, q, v = self.c_attn(x).split(n, dim=2)` it is k, q, v; none where two disagree. The output
    may be held by a variable first, and be a product with an array: `x @ self.w`.
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
    """Return the attributes of `self` that an expression calls, or multiplies by."""
    nodes = list(ast.walk(node))
    used: list[ast.AST] = [each.func for each in nodes if isinstance(each, ast.Call)]
    products = (e for e in nodes if isinstance(e, ast.BinOp) and isinstance(e.op, ast.MatMult))
    used += [each.right for each in products]
    own = (f for f in used if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name))
    return {f.attr for f in own if _last_name(f.value) == "self"}


def reads_elements(function: Any) -> bool:
    """Return whether code of a function reads single elements of a parameter, as `q[i][x]`."""
    for each in ast.walk(syntax_of(function)):
        if isinstance(each, ast.Subscript) and isinstance(each.value, ast.Subscript):
            held = each.value.value
            if isinstance(held, ast.Name) and held.id in inspect.signature(function).parameters:
                return True
    return False


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


def _compared(node: ast.AST) -> tuple[ast.AST, ...]:
    """Return what a comparison, or a ``match``, compares with each other; () of other nodes."""
    if isinstance(node, ast.Match):
        return (node.subject, *(case.pattern for case in node.cases))
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], _COMPARES):
        return (node.left, *node.comparators)
    return ()


def names_called(kind: type) -> frozenset[str]:
    """Return the variables, and the attributes of `self`, that the code of a class calls."""
    called = (each.func for each in _nodes(kind) if isinstance(each, ast.Call))
    own = (f for f in called if not isinstance(f, ast.Attribute) or _last_name(f.value) == "self")
    return frozenset(map(_last_name, own)) - {""}


def names_tested(kind: type) -> frozenset[str]:
    """Return the variables, and the attributes of `self`, that a class asks whether they are true.

    In a condition by themselves, or beside others by `and`, `or` and `not`. So may the classes of
    its module do that it makes parts of.
    """
    scope = vars(sys.modules.get(kind.__module__, object))
    made = (scope.get(name) for name in names_called(kind))
    parts = (e for e in made if isinstance(e, type) and e.__module__ == kind.__module__)
    tested = [
        side
        for each in itertools.chain(_nodes(kind), *map(_nodes, parts))
        if isinstance(each, ast.If | ast.IfExp | ast.While)
        for side in _sides(each.test)
    ]
    own = (t for t in tested if not isinstance(t, ast.Attribute) or _last_name(t.value) == "self")
    return frozenset(map(_last_name, own)) - {""}


def _sides(test: ast.expr) -> list[ast.expr]:
    """Return what a condition asks whether it is true, without `and`, `or` and `not`."""
    if isinstance(test, ast.BoolOp):
        return [side for value in test.values for side in _sides(value)]
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _sides(test.operand)
    return [test]


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
            found += ast.walk(syntax_of(each))
    return tuple(found)


def _last_name(node: ast.AST) -> str:
    """Return the name of a variable or of an attribute; "" of another expression."""
    return str(getattr(node, "attr", getattr(node, "id", "")))
