"""Source of a function, a class or a module: its text, syntax tree and comments, each read once."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize
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


def comments_in(subject: Any) -> tuple[str, ...]:
    """Return the comments of a source, lines that follow one another as one."""
    return _comments(source_text(subject))


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


@lru_cache(maxsize=KEPT)
def _comments(source: str) -> tuple[str, ...]:
    found: list[str] = []
    last = -1
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                said = token.string.lstrip("#").strip()
                alone = not token.line[: token.start[1]].strip()  # and not behind code
                follows = alone and token.start[0] == last + 1
                found[-1:] = [f"{found[-1]} {said}"] if follows else [*found[-1:], said]
                last = token.start[0] if alone else -1
    return tuple(found)
