"""Which parameters a call has behind its ``**kwargs``: those that its source reads or passes on."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mha_parity.targets.static.signatures import forward
from mha_parity.targets.static.source import syntax_of

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYWORDS = inspect.Parameter.VAR_KEYWORD
_DEPTH = 8  # calls that are followed, one in the other
_OF_DICT = frozenset({"get", "pop", "setdefault"})
_HARMLESS = (ast.If, ast.While, ast.IfExp, ast.UnaryOp, ast.BoolOp, ast.Delete, ast.Assert)


@dataclass(slots=True)
class Keywords:
    """Parameters that a function reads from its ``**kwargs``, by name, and a use not followed."""

    named: dict[str, inspect.Parameter] = field(default_factory=dict)
    unknown: str = ""  # as the source writes it


def keywords_of(function: Any, owner: type | None = None, depth: int = _DEPTH) -> Keywords:
    """Return the parameters read from ``**kwargs`` by a function, or a method of ``owner``.

    Nothing where it has none, does not read them, or its source is not at hand.
    """
    try:
        function = inspect.unwrap(getattr(function, "__func__", function))
    except ValueError:  # it has every attribute that is asked for, and wraps itself
        return Keywords()
    tree = _source(function)
    if tree is None or tree.args.kwarg is None:
        return Keywords()
    name, found = tree.args.kwarg.arg, Keywords()
    for parent in _nodes(tree):
        if isinstance(parent, ast.Call) and any(_is(k.value, name) for k in parent.keywords):
            _follow(parent, _Place(function, tree, owner), depth, found)
        elif not isinstance(parent, ast.keyword):
            _read(parent, name, found)
    return found


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, but those of what it raises: a message reads nothing."""
    yield tree
    for each in ast.iter_child_nodes(tree):
        if not isinstance(each, ast.Raise):
            yield from _nodes(each)


def _source(function: Any) -> ast.FunctionDef | None:
    """Return a function as its source has it; None where there is no source."""
    body = syntax_of(function).body
    return next((each for each in body if isinstance(each, ast.FunctionDef)), None)


def _is(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _read(parent: ast.AST, name: str, found: Keywords) -> None:
    """Keep what one node reads of the keywords: one of a name, or all of them."""
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
        key = parent.args[0] if parent.args else None
        if not _is(parent.func.value, name) or parent.func.attr not in _OF_DICT:
            return
        default = next((a.value for a in parent.args[1:] if isinstance(a, ast.Constant)), None)
        required = parent.func.attr == "pop" and len(parent.args) == 1
        _keep(key, inspect.Parameter.empty if required else default, found)
    elif isinstance(parent, ast.Subscript) and _is(parent.value, name):
        if isinstance(parent.ctx, ast.Load):
            _keep(parent.slice, inspect.Parameter.empty, found)
    elif isinstance(parent, ast.Compare) and _is(parent.comparators[0], name):
        _keep(parent.left, None, found)
    elif isinstance(parent, ast.Attribute) and _is(parent.value, name):
        if parent.attr not in {*_OF_DICT, "update"}:
            found.unknown = found.unknown or ast.unparse(parent)
    elif not isinstance(parent, _HARMLESS) and any(
        _is(each, name) for each in ast.iter_child_nodes(parent)
    ):
        found.unknown = found.unknown or ast.unparse(parent)


def _keep(key: ast.AST | None, default: Any, found: Keywords) -> None:
    """Keep a keyword by its name; one that is asked for anywhere else too is not required."""
    name = key.value if isinstance(key, ast.Constant) else None
    if not isinstance(name, str) or not name.isidentifier():
        found.unknown = found.unknown or "a name that is computed"
        return
    held = found.named.get(name)
    if held is None or held.default is held.empty:
        kind = inspect.Parameter.KEYWORD_ONLY
        found.named[name] = inspect.Parameter(name, kind, default=default)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a call stands: a function, its source, and the class that it is a method of."""

    function: Any
    tree: ast.FunctionDef
    owner: type | None

    def callees(self, called: ast.expr) -> Iterator[Any]:
        """Yield what an expression that is called may be, as far as names tell; None otherwise."""
        owner = self.owner
        if isinstance(called, ast.Attribute) and owner is not None:
            above = owner.__mro__
            if ast.unparse(called.value).startswith("super("):
                held = [c for c in above if self.function in vars(c).values()]
                above = above[above.index(held[0]) + 1 :] if held else ()
            elif not _is(called.value, (self.tree.args.args or [ast.arg("")])[0].arg):
                above = ()
            method = next((vars(c)[called.attr] for c in above if called.attr in vars(c)), None)
            if above:
                yield method if method is not None else _held(owner, called.attr)
                return
        local = [
            each.value
            for each in ast.walk(self.tree)
            if isinstance(each, ast.Assign | ast.AnnAssign)
            and each.value is not None
            and any(_is(t, getattr(called, "id", "")) for t in _targets(each))
        ]
        for each in local:
            yield self._named(each)
        if not local:
            yield self._named(called)

    def _named(self, dotted: ast.expr) -> Any:
        """Return what a dotted name stands for in the module or around the function."""
        first, *rest = ast.unparse(dotted).split(".")
        try:
            around = inspect.getclosurevars(self.function)
            found = {**self.function.__globals__, **around.nonlocals}.get(first)
        except (TypeError, ValueError, AttributeError):
            return None
        for each in rest:
            found = getattr(found, each, None)
        return found


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _held(owner: type, attribute: str) -> Any:
    """Return the class of a layer that a constructor keeps under a name."""
    for kind in owner.__mro__[:-1]:
        made = vars(kind).get("__init__")
        tree = None if made is None else _source(made)
        for each in ast.walk(tree) if tree is not None else ():
            if (
                isinstance(each, ast.Assign)
                and any(ast.unparse(t) == f"self.{attribute}" for t in each.targets)
                and isinstance(each.value, ast.Call)
            ):
                return _Place(made, tree, None)._named(each.value.func)  # type: ignore[arg-type]  # noqa: SLF001  (tree is what is walked)
    return None


def _follow(call: ast.Call, place: _Place, depth: int, found: Keywords) -> None:
    """Keep the parameters of what the keywords are passed on to."""
    followed = [
        _passed_on(each, place.owner, call, depth, found) for each in place.callees(call.func)
    ]
    if not any(followed):
        found.unknown = found.unknown or ast.unparse(call)


def _passed_on(
    callee: Any, owner: type | None, call: ast.Call, depth: int, found: Keywords
) -> bool:
    """Keep what one callee takes besides what the call gives it; False where that is not known."""
    is_layer = isinstance(callee, type)
    function = forward(callee) if is_layer else getattr(callee, "__func__", callee)
    try:
        listed = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    if isinstance(function, type) or not depth:
        return False
    bound = isinstance(callee, type | classmethod) or [p.name for p in listed[:1]] == ["self"]
    given = [each for each in call.args if not isinstance(each, ast.Starred)]
    starred = len(given) < len(call.args)
    taken = {each.arg for each in call.keywords}
    plain = [p for p in listed if p.kind not in {p.VAR_POSITIONAL, KEYWORDS}]
    for each in plain[bound + len(given) :]:
        if each.name not in taken:
            kind = each.kind if starred else each.KEYWORD_ONLY
            found.named.setdefault(each.name, each.replace(kind=kind))
    if any(p.kind is KEYWORDS for p in listed):
        further = keywords_of(function, callee if is_layer else owner, depth - 1)
        found.named = further.named | found.named
        found.unknown = found.unknown or further.unknown
    return True
