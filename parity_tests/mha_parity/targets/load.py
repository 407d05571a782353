"""From the text of a target to the function or class that it names."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import TargetError
from mha_parity.core.option_values import hint_of
from mha_parity.targets.loading.default_target import SUFFIXES, likeliest, public_names
from mha_parity.targets.loading.definitions import KEPT
from mha_parity.targets.loading.library_stubs import named_in, needed_by
from mha_parity.targets.loading.modules import PREFIX, from_file
from mha_parity.targets.loading.skipped_statements import of_module, require_unchanged
from mha_parity.targets.method_targets import target_in
from mha_parity.targets.onnx.model import SUFFIX, OnnxModel
from mha_parity.targets.programs.command import EXEC
from mha_parity.targets.programs.command_files import command

if TYPE_CHECKING:
    from collections.abc import Callable

FORMS = "`package.module:name`, `path/to/file.py:name` or `path/to/notebook.ipynb:name`"
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")  # as in an import
PYTHON = f"Python {sys.version_info.major}.{sys.version_info.minor}"
SOME = 6  # names listed where an attribute is missing and none is close


def load(text: str) -> Any:
    """Return the function or class that ``text`` names.

    A file is executed as a module of its package or of its own (not as ``__main__``). Of a notebook
    only imports, definitions and constants are executed, and of a file from where it raises on. The
    attribute may be nested: ``file.py:Class.method``; ``::`` is read as ``:``. ``exec:COMMAND``
    starts a program, and a file of the suffix ``.onnx`` is a model for onnxruntime.

    Raises
    ------
    TargetError
        No such module, file or attribute; it is not callable; importing it raised; what was not
        executed may change what it reads.

    """
    if text.startswith(EXEC):
        return command(text.removeprefix(EXEC))
    if text.endswith(SUFFIX):
        return OnnxModel(text)
    require_place(text)
    place, attribute = place_and_name(text)
    if place.endswith((".ipynb", ".py")) or "/" in place:
        module = _guarded(
            text, place, lambda: from_file(Path(place).expanduser().resolve(), attribute)
        )
    else:
        module = _guarded(text, place, lambda: _module(text, place))
    found = _attribute(text, module, attribute)
    require_unchanged(text, module, found)
    if library := needed_by(found):
        raise TargetError(
            f"got the target {text!r}, but {attribute} needs {library}, which is not installed; "
            f"install {library}."
        )
    if not callable(found):
        raise TargetError(
            f"{text!r} is of type {type(found).__name__}, but should be a function or a class; "
            "name one of these."
        )
    return found


def place_and_name(text: str) -> tuple[str, str]:
    """Return the file or module of a target's text, and the name in it: behind ``:`` or ``::``."""
    if "::" in text:
        place, _, name = text.strip().partition("::")
        return place, name.replace("::", ".")
    place, _, name = text.strip().rpartition(":")
    return place, name


def require_place(text: str) -> None:
    """Raise TargetError for a target whose text names no file or module: nothing is loaded."""
    place, attribute = place_and_name(text)
    if text.startswith(EXEC) or text.endswith(SUFFIX):
        return
    if not place or not attribute:
        raise TargetError(f"got the target {text!r}, {_incomplete(text.strip())}")
    if place.endswith((".ipynb", ".py")) or "/" in place:
        _require_file(text, place)


def _incomplete(text: str) -> str:
    """Say what a target without an attribute lacks."""
    path = Path(text).expanduser()
    if path.is_dir():
        kind = "a folder" if text else "empty"
        return f"which is {kind}, but should be {FORMS}."
    if path.is_file():
        return _without_name(text, path)
    if path.suffix in SUFFIXES:
        return f"but there is no file {text}; {_alike(path)}"
    beside = [f"{text}{suffix}" for suffix in sorted(SUFFIXES, reverse=True)]
    if files := [each for each in beside if Path(each).expanduser().is_file()]:
        return f"but should be {FORMS}; did you mean {files[0]}?"
    return _dotted(text) if DOTTED.fullmatch(text) else f"but should be {FORMS}."


def _dotted(text: str) -> str:
    """Say what a module without a name lacks, or that a name was joined to it by a dot."""
    module = Path(text.replace(".", "/") + ".py")
    if module.is_file():
        return _without_name(text, module).replace("is a file", "is a module")
    return f"but should be {FORMS}; did you mean {':'.join(text.rsplit('.', 1))}?"


def _without_name(text: str, path: Path) -> str:
    """Say what a file without the name of a function lacks: that name, or more."""
    if path.suffix not in SUFFIXES:
        return f"which is no Python file or notebook; name {FORMS}."
    try:
        names = public_names(path)
    except SyntaxError as error:
        return f"which is no valid {PYTHON}: {error.msg} [{path.name}:{error.lineno or 1}]."
    except TargetError:
        raise
    except (OSError, ValueError) as error:
        return f"which cannot be read: {error}."
    if not names and path.suffix == ".ipynb":
        return "whose cells define no public function and no class; write one, or name a file."
    if not names:
        return "which defines no public function and no class; write one, or name another file."
    named = f"one of {_few(names)}" if len(names) > 1 else names[0]
    return (
        f"which is a file, but should be a function or a class in it; name {named}, "
        f"as in: mha-parity check {shlex.quote(f'{text}:{likeliest(names)}')}."
    )


def _module(text: str, name: str) -> ModuleType:
    if Path(name).expanduser().is_file():
        raise TargetError(f"got the target {text!r}, but {name} is no Python file or notebook.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name != missing and not name.startswith(f"{missing}."):
            raise
        raise TargetError(
            f"got the target {text!r}, but there is no module {missing!r}; install it, "
            "or name a file as path/to/file.py:name."
        ) from None


def _require_file(text: str, place: str) -> None:
    path = Path(place).expanduser()
    if path.is_dir():
        raise TargetError(f"got the target {text!r}, but {place} is a folder; name a file in it.")
    if not path.is_file():
        raise TargetError(f"got the target {text!r}, but there is no file {place}; {_alike(path)}")


def _alike(path: Path) -> str:
    """Ask for the file whose name comes closest to one that does not exist."""
    folder = path.parent
    held = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    return hint_of(path.name, held, "check the path.", write=lambda name: str(folder / name))


def _guarded(text: str, place: str, run: Callable[[], ModuleType]) -> ModuleType:
    """Run the target's code; what it raises becomes the target's error."""
    try:
        return run()
    except TargetError:
        raise
    except SyntaxError as error:
        file = error.filename or place
        what = "is" if file == place else f"imports {Path(file).name}, which is"
        raise TargetError(
            f"got the target {text!r}, but {place} {what} no valid {PYTHON}: {error.msg} "
            f"[{file}:{error.lineno or 1}]."
        ) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  (whatever the target's module raises)
        raise TargetError(
            f"got the target {text!r}, but importing {place} raised {last_line(error)}; "
            f"{_remedy(place, error)}."
        ) from None


def _remedy(place: str, error: BaseException) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else named_in(str(error))
    if missing == "tensorflow" and place.partition(".")[0] == "keras":
        return "set KERAS_BACKEND to a library that is installed: torch or jax"
    return f"install {missing}" if missing else "it should import without error"


def last_line(error: BaseException) -> str:
    """Return an exception's last line and where it was raised."""
    line = traceback.format_exception_only(error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    return f"{line} [{frames[-1].filename}:{frames[-1].lineno}]" if frames else line


def _attribute(text: str, module: ModuleType, dotted: str) -> Any:
    found: Any = module
    for word in dotted.split("."):
        if not hasattr(found, word):
            raise TargetError(_missing(text, found, word))
        found = target_in(found, word)
    return found


def _missing(text: str, holder: Any, word: str) -> str:
    """Say which attribute is missing, why, and which are closest."""
    left_out = of_module(holder).names
    if word in left_out:
        return f"got the target {text!r}, but {word!r} was left out ({left_out[word]}): {KEPT}."
    public = [n for n in dir(holder) if not n.startswith("_") and callable(getattr(holder, n))]
    hint = hint_of(word, public, f"it has {_few(public)}.", most=3)
    is_file = isinstance(holder, ModuleType) and holder.__name__.startswith(PREFIX)
    name = Path(place_and_name(text)[0]).name if is_file else getattr(holder, "__name__", "")
    if not public and isinstance(holder, ModuleType):
        none = "no public function and no class"
        return f"got the target {text!r}, but {name} defines {none}; write one."
    return f"got the target {text!r}, but {name} has no attribute {word!r}; {hint}"


def _few(names: list[str]) -> str:
    if not names:
        return "nothing that can be called"
    more = f" and {len(names) - SOME} more" if len(names) > SOME else ""
    return ", ".join(names[:SOME]) + more
