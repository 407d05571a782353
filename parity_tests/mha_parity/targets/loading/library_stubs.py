"""Stand-ins for libraries that are not installed, so that what does not need them can be loaded.

Many files import a plotting or logging library for other parts than the attention. A stand-in lets
the import pass; whoever calls it after loading gets the ``ModuleNotFoundError`` it replaced, unless
the library only draws, or the method only logs. What has the interface of an installed library is
computed by that one.
"""

from __future__ import annotations

import builtins
import dis
import importlib
import re
import sys
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.targets.static.source import source_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


# Libraries that draw or log: what they are called with goes nowhere else.
DRAWING = frozenset({
    "altair", "bokeh", "matplotlib", "plotly", "pylab", "seaborn", "tensorboard", "tensorboardX",
    "wandb",
})  # fmt: skip
# Methods that log, of whatever library: they return nothing. A trace may be that of a matrix.
LOGS = frozenset({"debug", "info", "warning", "critical", "success"})
# Libraries with the interface of another, which is used in their place: CuPy documents NumPy's.
INTERFACE_OF = {"cupy": "numpy"}
# What such a library has besides: its arrays are those of the other one here.
OWN_FUNCTIONS: dict[str, Any] = {
    "asnumpy": lambda array, *_args, **_kwargs: np.asarray(array),
    "get_array_module": lambda *_arrays: np,
}


class MissingBase:
    """Base of a class that inherits from a library that is not installed."""


class StandIn:
    """An attribute of a missing library: names, subscripts and subclasses of it are harmless."""

    loading = False  # while a target is loaded, calls (decorators, say) pass as well

    def __init__(self, name: str) -> None:
        self.stands_for = name

    def __repr__(self) -> str:
        """Return what an exception should say of it."""
        return f"<{self.stands_for}, which is not installed>"

    def __getattr__(self, name: str) -> StandIn:
        """Return the stand-in for an attribute."""
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(f"{self.stands_for}.{name}")

    def __getitem__(self, _key: object) -> StandIn:
        """Return itself: types of missing libraries are subscripted in annotations."""
        return self

    def __or__(self, _other: object) -> StandIn:
        """Return itself: a union in an annotation."""
        return self

    __ror__ = __or__

    def __iter__(self) -> Iterator[Any]:
        """Raise: nothing can be taken out of a library that is not there."""
        raise missing(self.stands_for)

    def __call__(self, *_args: object, **_kwargs: object) -> StandIn | None:
        """Return a stand-in while loading or for a drawing, None as a log does; else raise."""
        if StandIn.loading or self.stands_for.partition(".")[0] in DRAWING:
            return StandIn(self.stands_for)
        if self.stands_for.rpartition(".")[2] in LOGS:
            return None
        raise missing(self.stands_for)

    def __mro_entries__(self, _bases: tuple[object, ...]) -> tuple[type, ...]:
        """Return the base that a subclass of a missing class gets."""
        return (type(self.stands_for, (MissingBase,), {}),)


def missing(name: str) -> ModuleNotFoundError:
    """Return the error of a call of something in a library that is not installed.

    Or in a package beside the target that lacks the module; a file of its name in another case is
    named, as file systems without case have let it be imported.
    """
    root, _, rest = name.partition(".")
    why = f"{root} is not installed"
    if folder := _FINDER.folders.get(root):
        lacking, other = _lacking(folder, rest.split("."))
        why = f"the folder {folder.name} has no {lacking}{f', but {other}' if other else ''}"
    return ModuleNotFoundError(f"{name} was called, but {why}", name=root)


def _lacking(folder: Path, parts: Sequence[str]) -> tuple[str, str]:
    """Return the first module that a package lacks, and a file or folder of it in another case."""
    for depth, part in enumerate(parts):
        held = {each.stem if each.suffix == ".py" else each.name: each for each in folder.iterdir()}
        if part not in held or not held[part].is_dir():
            other = next((e.name for n, e in held.items() if n.lower() == part.lower()), "")
            return ".".join(parts[: depth + 1]), "" if part in held else other
        folder = held[part]
    return ".".join(parts), ""


class _Module(ModuleType):
    __version__ = "9999"  # torch.utils.tensorboard wants TensorBoard 1.15 or above

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":  # of `from library import *`
            return wanted_by(sys._getframe(1))  # noqa: SLF001  (nothing else says which module it is)
        if name.startswith("__"):
            raise AttributeError(name)
        root, dot, rest = self.__name__.partition(".")
        if root in INTERFACE_OF:
            if name in OWN_FUNCTIONS:
                return OWN_FUNCTIONS[name]
            with suppress(ImportError, AttributeError):
                return getattr(importlib.import_module(f"{INTERFACE_OF[root]}{dot}{rest}"), name)
        return StandIn(f"{self.__name__}.{name}")


def wanted_by(frame: FrameType) -> list[str]:
    """Return the names that a module reads and has not: its star import may have given them."""
    given = {*frame.f_globals, *vars(builtins)}
    return sorted({*_names_read(frame.f_code)} - given)


def _names_read(code: CodeType) -> Iterator[str]:
    """Yield the names outside of functions that code and the functions in it read."""
    for step in dis.get_instructions(code):
        if step.opname in {"LOAD_NAME", "LOAD_GLOBAL"}:
            yield str(step.argval)
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names_read(each)


class _Finder:
    """Finds the named libraries, and the modules in them, as empty modules."""

    def __init__(self) -> None:
        self.roots: set[str] = set()
        self.folders: dict[str, Path] = {}  # of packages beside a target that lack a module

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in self.roots:
            return None
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]  # it is a loader as well

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        del module


_FINDER = _Finder()


def stand_in_for(root: str, folder: Path | None = None) -> None:
    """Let the library ``root`` be imported, and the modules in it.

    ``folder``: that of a package of this name beside the target, which lacks one of them.
    """
    _FINDER.roots.add(root)
    if folder is not None:
        _FINDER.folders[root] = folder


@contextmanager
def imports_allowed() -> Iterator[None]:
    """Let imports of the libraries named by ``stand_in_for`` pass."""
    sys.meta_path.append(_FINDER)
    StandIn.loading = True
    try:
        yield
    finally:
        StandIn.loading = False
        sys.meta_path.remove(_FINDER)


def named_in(text: str) -> str:
    """Return the missing library of which a text names a stand-in, "" where it names none."""
    found = re.search(r"<(\w+)[\w.]*, which is not installed>", text)
    return found[1] if found else ""


def imported_in_name(subject: object) -> tuple[str, ...]:
    """Return the missing libraries that the module of ``subject`` imports, but for drawing ones."""
    of = subject if hasattr(subject, "__qualname__") else type(subject)
    module = sys.modules.get(getattr(of, "__module__", ""), ModuleType(""))
    found = {
        (each.__name__ if isinstance(each, _Module) else str(each.stands_for)).partition(".")[0]
        for each in vars(module).values()
        if type(each) in {_Module, StandIn}
    }
    return tuple(sorted((found - DRAWING) | _replaced_in(module)))


def _replaced_in(module: ModuleType) -> set[str]:
    """Return the missing libraries that a module imports, or names of, and has another's of."""
    replaced = [root for root in INTERFACE_OF if type(sys.modules.get(root)) is _Module]
    source = source_text(module) if replaced else ""
    found = (rf"(?m)^\s*(import|from) {root}\b" for root in replaced)
    return {root for root, each in zip(replaced, found, strict=True) if re.search(each, source)}


def needed_by(subject: object) -> str | None:
    """Return the missing library that ``subject`` is made of, or None."""
    name = getattr(subject, "stands_for", None) if type(subject) is StandIn else None
    if name is None and isinstance(subject, type) and issubclass(subject, MissingBase):
        bases = [base for base in subject.__mro__ if MissingBase in base.__bases__]
        name = bases[0].__name__
    return None if name is None else str(name).partition(".")[0]
