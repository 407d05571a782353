"""Lines that repeat a case or a run: a command, or Python for what no command can name."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mha_parity.core.options import Options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import TypeGuard

# Fields of the options that a line repeats.
OF_CASE = (
    "forbid", "fully_masked", "strict_padding", "max_times_torch", "convention", "masks", "without",
    "state_dict", "num_heads", "answers", "device", "path",
)  # fmt: skip
OF_RUN = ("cases", "seed", "dtypes", "features", "grad", "strict_overflow", *OF_CASE)
ALWAYS = ("cases", "seed")


@dataclass(frozen=True)
class Repro:
    """The lines that repeat one case or the run of a target, with the options that matter.

    ``as_python``: the target lives in this process alone (of a notebook, or inside a function).
    """

    target: str
    options: Options
    as_python: bool = False

    def case(self, case_id: str) -> str:
        """Return the line that shows one case in full."""
        words = (f'"{case_id}"' if self.as_python else case_id, self.target)
        return self._line("replay", "replay", words, OF_CASE)

    def run(self) -> str:
        """Return the line that repeats the run, for a failure that no single case shows."""
        return self._line("judge", "check", (self.target,), OF_RUN)

    def _line(
        self, function: str, command: str, words: tuple[str, ...], fields: tuple[str, ...]
    ) -> str:
        given = dict(self._given(fields))
        if self.as_python:
            keywords = (f"{name}={_as_python(name, value)}" for name, value in given.items())
            return f"mha_parity.{function}({', '.join((*words, *keywords))})"
        flags = (word for name, value in given.items() for word in _as_words(name, value))
        return " ".join(("mha-parity", command, *map(shlex.quote, words), *flags))

    def _given(self, fields: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        """Yield the fields that are not as in a run without options."""
        default = Options()
        for name in fields:
            value = getattr(self.options, name)
            if name in ALWAYS or value != getattr(default, name):
                yield name, value


def _text(value: tuple[Any, ...]) -> str:
    """Return a list as the options take it: ``float32,float64`` or ``attn=none,bias=yes``."""
    return ",".join("=".join(each) if isinstance(each, tuple) else each for each in value)


def _as_words(name: str, value: Any) -> Iterator[str]:
    """Yield an option of the command; the meaning of each mask has one, since it has commas."""
    flag = f"--{name.replace('_', '-')}"
    if value is True:
        yield flag
    elif name == "masks":
        yield from (f"{flag} {shlex.quote('='.join(each))}" for each in value)
    else:
        yield f"{flag} {shlex.quote(_text(value) if isinstance(value, tuple) else str(value))}"


def _as_python(name: str, value: Any) -> str:
    if name == "masks":
        return repr(value)
    text = _text(value) if isinstance(value, tuple) else value
    return f'"{text}"' if isinstance(text, str) else repr(text)


def replay_lines_of(subject: object, options: Options) -> Repro:
    """Return the lines for a callable: as a command where a target finds it."""
    target = importable_target(subject)
    own = _own_name(subject)
    written = own if own.isidentifier() else "..."  # to be replaced by what was judged
    return Repro(target or written, options, as_python=target is None)


def display_name(subject: object) -> str:
    """Return what to call a callable: the target that finds it, its name, or where it stands."""
    own = _own_name(subject)
    if (found := importable_target(subject)) or own.isidentifier():
        return found or own
    code = getattr(subject, "__code__", None)
    kind = own.strip("<>")
    return f"{kind} at {Path(code.co_filename).name}:{code.co_firstlineno}" if code else kind


def _own_name(subject: object) -> str:
    return str(getattr(subject, "__name__", type(subject).__name__))


def importable_target(subject: object) -> str | None:
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
