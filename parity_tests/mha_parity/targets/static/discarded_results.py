"""Calls whose new tensor is dropped: ``scores.masked_fill(mask, -inf)`` alone hides nothing."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mha_parity.targets.static.source import syntax_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# Methods of torch's tensors that return a new one and change nothing else.
# None of a name that objects of other kinds are likely to have, as `view` and `transpose`.
OUT_OF_PLACE = frozenset(
    {"index_fill", "masked_fill", "masked_scatter", "softmax", "tril", "triu", "unsqueeze"}
)


def dropped_results(subject: Any) -> str:
    """Return a sentence on the first call in the code of a class or function; "" without one."""
    for line, name in _dropped(syntax_of(subject)):
        _, first = inspect.getsourcelines(subject)
        file = Path(inspect.getsourcefile(subject) or "").name
        place = f"line {max(first, 1) + line - 1} of {file}" if file else f"line {line}"
        in_place = f", or call `{name}_`" if name.startswith("masked_") else ""
        return (
            f"`{name}` in {place} has no effect, since its result is dropped: assign it{in_place}."
        )
    return ""


def _dropped(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of each call of such a method that is a statement by itself."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))) if name in OUT_OF_PLACE:
                yield node.lineno, name
