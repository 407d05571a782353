"""Source of a function, a class or a module: its text and its syntax tree, each read once."""

from __future__ import annotations

import ast
import inspect
import textwrap
from contextlib import suppress
from functools import lru_cache
from types import FunctionType, MethodType, ModuleType
from typing import Any

KEPT = 256  # subjects whose source is kept: those of one target and of what it calls
_WITH_SOURCE = (FunctionType, MethodType, ModuleType, type)


def source_text(subject: Any) -> str:
    """Return the source of a function, a class or a module; "" where there is none, as in C.

    Other objects, which no hash may be asked of, have none.
    """
    inner = inspect.unwrap(subject)
    return _text(inner) if isinstance(inner, _WITH_SOURCE) else ""


def syntax_of(subject: Any) -> ast.Module:
    """Return the syntax tree of a source, read-only for its users; an empty one without a source.

    Lines count from the first of the function or the class. A part of a longer statement, as a
    lambda is, has a source that is none by itself.
    """
    return _tree(source_text(subject))


@lru_cache(maxsize=KEPT)
def _text(subject: Any) -> str:
    with suppress(OSError, TypeError):
        return textwrap.dedent(inspect.getsource(subject))
    return ""


@lru_cache(maxsize=KEPT)
def _tree(source: str) -> ast.Module:
    with suppress(SyntaxError):
        return ast.parse(source)
    return ast.Module(body=[], type_ignores=[])
