"""Check, for ``--forbid``, that a call runs no function of a forbidden module.

Python reports every call of a Python function and of most C functions to a profiler, which records
those of a forbidden module. It does not see child processes, C code called by C code, and operators
on arrays that the candidate kept from an earlier call.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from mha_parity.core.profiler import profiling

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType
    from typing import Self


class ForbiddenModules:
    """Context that records calls into ``modules``, in this thread and in those that it starts."""

    def __init__(self, modules: Iterable[str]) -> None:
        self._modules = frozenset(modules)
        self._calls: dict[str, str] = {}

    def __enter__(self) -> Self:
        if self._modules:
            self._of_threads = threading.getprofile()
            threading.setprofile(self.record)
            self._profiling = profiling(self.record)
            self._profiling.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._modules:
            self._profiling.__exit__(None, None, None)
            threading.setprofile(self._of_threads)

    def findings(self) -> Iterator[str]:
        """Yield one finding for each forbidden module that was called."""
        for module, function in self._calls.items():
            yield f"forbidden modules: the call ran {function} of {module}."

    def record(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note a call of a forbidden module; the arguments are those of a profile function."""
        if event == "call":
            module = frame.f_globals.get("__name__", "")
            name = frame.f_code.co_name
        elif event == "c_call":
            owner = getattr(argument, "__self__", None)
            module = getattr(argument, "__module__", None) or _module_of(owner)
            name = getattr(argument, "__name__", "?")
        else:
            return
        # Submodules of a forbidden module are forbidden.
        for forbidden in self._modules:
            if module == forbidden or str(module).startswith(f"{forbidden}."):
                self._calls.setdefault(forbidden, f"{module}.{name}")


def _module_of(owner: object) -> str:
    kind = owner if isinstance(owner, type) else type(owner)
    return str(getattr(kind, "__module__", ""))
