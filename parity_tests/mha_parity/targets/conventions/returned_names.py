"""Names of the array that a target returns beside its output."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array

SCORES = re.compile(r"(^|_)(qk|scores?|logits?|energy|energies)(_|$)", re.IGNORECASE)


def named_scores(entry: Any, found: Array | None) -> str:
    """Return the name of what is returned as scores, "" where it is, or may be, weights.

    Its name is one of scores, and some element is negative, as no weight is: Whisper's layer
    returns its logits beside the output.
    """
    if found is None or not (np.asarray(found) < 0).any():
        return ""
    names = set(_second_names(entry))
    name = names.pop() if len(names) == 1 else ""
    return name if SCORES.search(name) else ""


def _second_names(entry: Any) -> Iterator[str]:
    """Yield the name of the second of several arrays, for each return of a function."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(entry))))
    except (OSError, TypeError, SyntaxError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            yield _root(node.value.elts[1]) if len(node.value.elts) > 1 else ""


def _root(node: ast.expr) -> str:
    """Return the name that ``name.detach()`` or ``name[0]`` begins with."""
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
