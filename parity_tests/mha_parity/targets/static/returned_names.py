"""Names of what a target returns beside its output."""

from __future__ import annotations

import ast
import inspect
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.targets.static.source import syntax_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array

SCORES = re.compile(
    r"(^|_)(qk|scores?|logits?|energy|energies"
    r"|log_?(w|weights?|p|probs?|probabilities|attn|attention|alphas?))(_|$)",
    re.IGNORECASE,
)


def named_scores(entry: Any, found: Array | None) -> str:
    """Return the name of what is returned as scores, "" where it is, or may be, weights.

    Its name is one of scores or logarithms, and some element is negative, as no weight is: Whisper
    returns its logits beside the output.
    """
    if found is None or not (np.asarray(found) < 0).any():
        return ""
    names = set(names_at(entry, 1))
    name = names.pop() if len(names) == 1 else ""
    return name if SCORES.search(name) else ""


def names_at(entry: Any, place: int) -> Iterator[str]:
    """Yield the name of one of several results, for each return of several; "" where it has none.

    A return of fewer has an empty name for it.
    """
    for function in ast.iter_child_nodes(syntax_of(inspect.unwrap(entry))):
        for node in _own_nodes(function):
            for each in _returned(node):
                if isinstance(each, ast.Tuple):
                    yield _root(each.elts[place]) if len(each.elts) > place else ""


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, those of functions within left out."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield node
            yield from _own_nodes(node)


def _returned(node: ast.AST) -> Iterator[ast.expr | None]:
    """Yield what a return returns, either part of `a if condition else b`."""
    value = node.value if isinstance(node, ast.Return) else None
    yield from (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)


def _root(node: ast.expr) -> str:
    """Return the name that ``name.detach()`` or ``name[0]`` begins with."""
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
