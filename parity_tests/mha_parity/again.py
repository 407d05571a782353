"""How to see a failure again: as a command, or as Python for what no command can name."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Protocol, TypeGuard

    from mha_parity.options import Options

    class Again(Protocol):
        """What a report prints behind `replay`."""

        def case(self, name: str) -> str:
            """Return the line that shows one case in full."""

        def run(self) -> str:
            """Return the line that repeats the run, for a failure that no single case shows."""


@dataclass(frozen=True)
class Command:
    """A target that the command finds by its text."""

    target: str
    options: Options

    def case(self, name: str) -> str:
        """Return the command that shows one case in full."""
        return f"mha-parity replay {name} {self.target}{self._convention}"

    def run(self) -> str:
        """Return the command that repeats the run."""
        options = self.options
        dtypes = f" --dtype {','.join(options.dtypes)}" if options.dtypes else ""
        pairs = _pairs(options)
        features = f" --feature {pairs}" if pairs else ""
        drawn = f" --cases {options.cases} --seed {options.seed}{dtypes}{features}"
        return f"mha-parity check {self.target}{drawn}{self._convention}"

    @property
    def _convention(self) -> str:
        return f" --convention {self.options.convention}" if self.options.convention else ""


@dataclass(frozen=True)
class Python:
    """A callable that lives in this process alone: of a notebook, say, or inside a function."""

    name: str
    options: Options

    def case(self, name: str) -> str:
        """Return the expression that shows one case in full."""
        return f'mha_parity.replay("{name}", {self.name}{self._convention})'

    def run(self) -> str:
        """Return the expression that repeats the run."""
        options = self.options
        dtypes = f", dtypes={options.dtypes!r}" if options.dtypes else ""
        pairs = _pairs(options)
        features = f', features="{pairs}"' if pairs else ""
        drawn = f", cases={options.cases}, seed={options.seed}{dtypes}{features}"
        return f"mha_parity.judge({self.name}{drawn}{self._convention})"

    @property
    def _convention(self) -> str:
        return f', convention="{self.options.convention}"' if self.options.convention else ""


def again(subject: object, options: Options) -> Again:
    """Return how to see the failures of a callable again."""
    target = spelled(subject)
    return Python(named(subject), options) if target is None else Command(target, options)


def named(subject: object) -> str:
    """Return what to call a callable: the target that finds it, else its name."""
    name = getattr(subject, "__name__", type(subject).__name__)
    return spelled(subject) or (name if name.isidentifier() else "...")


def spelled(subject: object) -> str | None:
    """Return the target that finds a function or class; None where none would.

    Cells of a notebook have no file, and what is defined inside a function has no name there.
    """
    name = getattr(subject, "__qualname__", "")
    module = sys.modules.get(getattr(subject, "__module__", None) or "")
    if not name.isidentifier() or getattr(module, name, None) is not subject:
        return None
    if _is_in_a_package(module):
        return f"{module.__name__}:{name}"
    path = Path(getattr(module, "__file__", None) or "")
    if path.suffix != ".py" or not path.is_file():
        return None
    here = Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{name}"


def _is_in_a_package(module: ModuleType | None) -> TypeGuard[ModuleType]:
    """Whether a module is found by its name: alone, its imports from its package would fail."""
    package = getattr(module, "__package__", None)
    top = sys.modules.get(package.partition(".")[0]) if package else None
    return getattr(top, "__file__", None) is not None


def _pairs(options: Options) -> str:
    return ",".join(f"{axis}={value}" for axis, value in options.features)
