"""Axes of an array by its annotation: `Bool[Tensor, "batch seq"]`, `TensorType["batch", "seq"]`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from mha_parity.targets.static.source import syntax_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# Of jaxtyping: any number of axes, those that are broadcast, expressions.
_NO_WORDS = ("...", "*", "#", "+", "-", "=")


def annotated_axes(entry: Any, name: str) -> tuple[str, ...]:
    """Return the words of the axes that the annotation of a call's parameter has; () without any.

    They are read from the source: the library of the annotation need not be installed. Two shapes
    of one parameter, and words that are none of an axis, say nothing.
    """
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for each in ast.walk(syntax_of(entry)):
        if isinstance(each, functions):
            arguments = (*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs)
            annotation = next((a.annotation for a in arguments if a.arg == name), None)
            shapes = {*_shapes(annotation)} if annotation is not None else set()
            return shapes.pop() if len(shapes) == 1 else ()
    return ()


def _shapes(annotation: ast.expr) -> Iterator[tuple[str, ...]]:
    """Yield the shapes in an annotation, each by its words."""
    for each in ast.walk(annotation):
        if isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Tuple):
            strings = [e.value for e in each.slice.elts if isinstance(e, ast.Constant)]
            words = [word for text in strings if isinstance(text, str) for word in text.split()]
            if words and not any(mark in word for word in words for mark in _NO_WORDS):
                yield tuple(words)
