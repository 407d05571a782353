"""Changes of an attention's source, as mistakes make them: one place of one statement each.

A number, an operator, a comparison, a condition, a switch, a keyword that is left out, q for k,
`tril` for `triu`, a statement that is dropped. Changed is the target, and what it calls of its
file; messages, annotations and defaults stay.
"""

from __future__ import annotations

import ast
import itertools
import random
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAMES = MappingProxyType({
    "tril": "triu", "triu": "tril", "zeros": "ones", "ones": "zeros", "max": "min", "min": "max",
    "zeros_like": "ones_like", "ones_like": "zeros_like", "cumsum": "cumprod", "sqrt": "square",
})  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip
FAMILIES = (
    ("q", "k", "v"), ("Q", "K", "V"), ("query", "key", "value"), ("queries", "keys", "values"),
)  # fmt: skip
BUILDS = frozenset({"__init__", "setup", "build"})
DROPPING = frozenset({"keyword", "statement"})
# What no call runs, and fields of nodes whose values decide nothing of the plain call.
UNASKED = frozenset({"extra_repr", "__repr__", "reset_parameters", "init_weights", "_init_weights"})
UNSEEN = frozenset({"annotation", "returns", "decorator_list", "defaults", "kw_defaults", "bases"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChange:
    """One change of a source: of which kind, in which line, and the source with it."""

    kind: str
    line: int
    source: str


def draw_change(source: str, name: str, seed: str) -> SourceChange | None:
    """Return a change of what ``name`` defines in a source, drawn by kind, then by place.

    None where there is nothing to change.
    """
    rng = random.Random(seed)
    places: dict[str, list[tuple[str, ast.AST]]] = {}
    for part in _parts(ast.parse(source), name.partition(".")[0]):
        for method, node in _walk(part, getattr(part, "name", "")):
            for kind in _kinds(node, method):
                places.setdefault(kind, []).append((method, node))
    while places:
        kind = rng.choice(sorted(places))
        _, node = places[kind].pop(rng.randrange(len(places[kind])))
        if not places[kind]:
            del places[kind]
        changed = _with_change(source, kind, node, rng)
        if changed != source and _parses(changed):
            return SourceChange(kind=kind, line=getattr(node, "lineno", 0), source=changed)
    return None


def _parts(tree: ast.Module, name: str) -> Iterator[ast.AST]:
    """Yield the class or function of this name, and those of the file that it names, and so on."""
    defined = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    todo, seen = [name], set[str]()
    while todo:
        each = todo.pop()
        if each in defined and each not in seen:
            seen.add(each)
            yield defined[each]
            todo += sorted({n.id for n in ast.walk(defined[each]) if isinstance(n, ast.Name)})


def _walk(node: ast.AST, method: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield the nodes whose change a call may show, with the method that they stand in."""
    for field, value in ast.iter_fields(node):
        for each in value if isinstance(value, list) else [value]:
            if field in UNSEEN or not isinstance(each, ast.AST):
                continue
            if isinstance(each, ast.Raise | ast.Assert) or _is_text(each):
                continue
            inner = each.name if isinstance(each, ast.FunctionDef) else method
            if inner not in UNASKED:
                yield inner, each
                yield from _walk(each, inner)


def _is_text(node: ast.AST) -> bool:
    """Return whether a statement is a docstring, or prints."""
    if not isinstance(node, ast.Expr):
        return False
    called = node.value.func if isinstance(node.value, ast.Call) else None
    return isinstance(node.value, ast.Constant) or getattr(called, "id", "") == "print"


def _kinds(node: ast.AST, method: str) -> Iterator[str]:
    """Yield the kinds of changes of a node; those of one that builds a layer drop nothing."""
    kinds = itertools.chain(_kinds_of_expression(node), _kinds_of_statement(node))
    yield from (each for each in kinds if method not in BUILDS or each not in DROPPING)


def _kinds_of_expression(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=bool()):
            yield "switch"
        case ast.Constant(value=int() | float()):
            yield "number"
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            yield "operator"
        case ast.Compare(ops=[op, *_]) if type(op) in COMPARISONS:
            yield "comparison"
        case ast.UnaryOp(op=ast.Not() | ast.Invert()):
            yield "negation"
        case ast.Attribute(attr=name) if name in NAMES:
            yield "function"
        case ast.Name(id=name, ctx=ast.Load()) if any(name in family for family in FAMILIES):
            yield "input"
        case ast.Call(keywords=[_, *_]):
            yield "keyword"


def _kinds_of_statement(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.If():
            yield "condition"
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield "statement"
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(value)):
                yield "statement"  # the name keeps the value that it had


def _number(node: Any, rng: random.Random) -> ast.AST:
    value = node.value
    near = [value + 1, value - 1, -value, 2 * value]
    others = near if isinstance(value, int) else [2 * value, value / 2, -value]
    return ast.Constant(rng.choice([each for each in others if each != value] or [value + 1]))


def _operator(node: Any, _: random.Random) -> ast.AST:
    return ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)


def _comparison(node: Any, _: random.Random) -> ast.AST:
    operators = [COMPARISONS[type(node.ops[0])](), *node.ops[1:]]
    return ast.Compare(node.left, operators, node.comparators)


def _input(node: Any, rng: random.Random) -> ast.AST:
    family = next(each for each in FAMILIES if node.id in each)
    return ast.Name(rng.choice([each for each in family if each != node.id]))


def _keyword(node: Any, rng: random.Random) -> ast.AST:
    left_out = rng.randrange(len(node.keywords))
    kept = [each for place, each in enumerate(node.keywords) if place != left_out]
    return ast.Call(node.func, node.args, kept)


# What stands in the place of a node, by the kind of change.
CHANGES: dict[str, Callable[[Any, random.Random], ast.AST]] = {
    "switch": lambda node, _: ast.Constant(not node.value),
    "number": _number,
    "operator": _operator,
    "comparison": _comparison,
    "negation": lambda node, _: node.operand,
    "function": lambda node, _: ast.Attribute(node.value, NAMES[node.attr]),
    "input": _input,
    "keyword": _keyword,
    "condition": lambda _, rng: ast.Constant(rng.choice([True, False])),
    "statement": lambda _node, _rng: ast.Pass(),
}


def _with_change(source: str, kind: str, node: Any, rng: random.Random) -> str:
    """Return the source with a change in the place of a node, or of its condition."""
    new = CHANGES[kind](node, rng)
    text = ast.unparse(new)
    plain = isinstance(new, ast.Name | ast.Attribute | ast.Pass)
    old = node.test if kind == "condition" else node
    whole = source.encode()
    lines = whole.splitlines(keepends=True)

    def offset(line: int, column: int) -> int:
        return sum(map(len, lines[: line - 1])) + column

    before = whole[: offset(old.lineno, old.col_offset)]
    behind = whole[offset(old.end_lineno, old.end_col_offset) :]
    return (before + (text if plain else f"({text})").encode() + behind).decode()


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True
