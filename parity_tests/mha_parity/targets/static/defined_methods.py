"""Methods that a class defines itself, or inherits of another one of the user's."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBRARIES = frozenset({"torch", "keras", "tensorflow", "flax", "haiku", "equinox", "builtins"})
_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def own_methods(kind: Any) -> Iterator[tuple[str, list[str]]]:
    """Yield the methods of a class of the user's, each once, and the arguments that it requires."""
    classes = kind.__mro__ if isinstance(kind, type) else ()
    own = [each for each in classes if each.__module__.partition(".")[0] not in _LIBRARIES]
    for name in dict.fromkeys(name for each in own for name in vars(each)):
        method = inspect.getattr_static(kind, name)
        if inspect.isfunction(method):
            named = [*inspect.signature(method).parameters.values()][1:]
            yield name, [p.name for p in named if p.default is p.empty and p.kind not in _OPEN]
