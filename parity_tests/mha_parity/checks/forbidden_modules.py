"""``--forbid``: whether a call goes through a module that its author should not lean on.

Python reports every call of a Python function and of most C functions to a profiler; those whose
module is forbidden are noted. What this cannot see: a child process, C code that calls C code, and
operators on arrays that the candidate kept from an earlier, unwatched moment.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType
    from typing import Self


class Forbidden:
    """Within, calls into ``modules`` are noted, in this thread and in those that it starts."""

    def __init__(self, modules: Iterable[str]) -> None:
        self._modules = frozenset(modules)
        self._seen: dict[str, str] = {}

    def __enter__(self) -> Self:
        if self._modules:
            self._before = sys.getprofile()
            threading.setprofile(self._note)
            sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._modules:
            sys.setprofile(self._before)
            threading.setprofile(None)

    def findings(self) -> Iterator[str]:
        """Yield one note for each forbidden module that was called."""
        for module, where in self._seen.items():
            yield f"forbidden modules: the call went through {module} ({where})."

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            module = frame.f_globals.get("__name__", "")
            name = frame.f_code.co_name
        elif event == "c_call":
            owner = getattr(argument, "__self__", None)
            module = getattr(argument, "__module__", None) or _module_of(owner)
            name = getattr(argument, "__name__", "?")
        else:
            return
        # Modules nested in a forbidden one count, by their dotted name.
        for forbidden in self._modules:
            if module == forbidden or str(module).startswith(f"{forbidden}."):
                self._seen.setdefault(forbidden, f"{module}.{name}")


def _module_of(owner: object) -> str:
    kind = owner if isinstance(owner, type) else type(owner)
    return str(getattr(kind, "__module__", ""))
