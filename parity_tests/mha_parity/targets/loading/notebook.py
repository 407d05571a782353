"""Functions and classes out of a notebook, without running the rest of it."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import warnings
from types import ModuleType
from typing import TYPE_CHECKING

from mha_parity.core.candidate import TargetError
from mha_parity.core.environment import installed
from mha_parity.targets.loading.definitions import execute
from mha_parity.targets.loading.skipped_statements import LeftOut, keep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Names that a cell defines or sets at its first level.
_NAMED = re.compile(r"^(?:(?:class|(?:async\s+)?def)\s+)?(\w+)\s*(?:[(:]|=(?!=))", re.MULTILINE)
HELP = re.compile(r"[\w.]+\?{1,2}")  # `name?` and `name??` show the documentation and the source


def load_notebook(path: Path, name: str) -> ModuleType:
    """Execute the imports, definitions and constants of a notebook and return them as a module.

    The module keeps what was left out, and where it stands. A cell that is no Python (a shell or
    cell magic, or one that a notebook does not execute either) is left out whole.
    """
    made = ModuleType(name)
    made.__file__ = str(path)
    left_out = LeftOut()
    keep(made, left_out)
    sys.modules[name] = made
    invalid: list[str] = []
    for number, (text, error) in enumerate(python_cells(path), start=1):
        if error is None:
            execute(text, f"{path.name}[cell {number}]", f"cell {number}", vars(made), left_out)
            continue
        at = f"cell {number}, line {error.lineno or 1}, is no valid Python: {error.msg}"
        left_out.names |= dict.fromkeys(_NAMED.findall(text), at)
        invalid.append(at)
    if invalid:
        left_out.why = f"{'; '.join(invalid)}; a notebook executes none of it, and it was left out."
    return made


def python_cells(path: Path) -> Iterator[tuple[str, SyntaxError | None]]:
    """Yield the Python of each code cell; one that is none as it is written, and why not."""
    for cell in code_cells(path):
        try:
            yield cell_python(cell), None
        except SyntaxError as error:
            yield cell, error


def code_cells(path: Path) -> list[str]:
    """Return the code cells of a notebook as they are written."""
    if not installed("nbformat"):
        raise TargetError(
            f"got the notebook {path.name}, but nbformat, which reads it, is not installed; "
            "pip install 'mha-parity[notebook]'."
        )
    import nbformat

    with warnings.catch_warnings():  # of the format: only the code is read
        warnings.simplefilter("ignore")
        try:
            read = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]  # it ships no types
        except (ValueError, nbformat.ValidationError, AttributeError, KeyError) as error:
            raise TargetError(
                f"got {path.name}, which is no notebook of JSON ({type(error).__name__}); save it "
                "anew in Jupyter."
            ) from None
    return [cell.source for cell in read.cells if cell.cell_type == "code"]


def cell_python(cell: str) -> str:
    """Return the Python of a cell: lines for the notebook as comments, "" for another language.

    As in IPython, the indentation of the first line is taken off all lines. A cell that is Python
    stays as it is: a line of an expression may begin with ``%`` or ``!=``.
    """
    indent = cell[: len(cell) - len(cell.lstrip(" \t"))]
    lines = [line.removeprefix(indent) for line in cell.splitlines()]
    if _is_python(plain := "\n".join(lines)):
        return plain
    text = _without_magics(lines)
    if text.lstrip().startswith("#%%") and not _is_python(text):  # a magic of another language
        return ""
    ast.parse(text)
    return text


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _without_magics(lines: list[str]) -> str:
    """Return the lines, those commented out that speak to the notebook and not to Python."""
    kept: list[str] = []
    for line in lines:
        stripped = line.strip()
        asks = stripped[:1] in {"%", "!", "?"} or HELP.fullmatch(stripped)
        begun = "".join(f"{each}\n" for each in kept)
        kept.append(f"#{line}" if asks and not _is_open(begun) else line)
    return "\n".join(kept)


def _is_open(text: str) -> bool:
    """Return whether a bracket or a string goes on behind the text."""
    try:
        list(tokenize.generate_tokens(io.StringIO(text).readline))
    except tokenize.TokenError:
        return True
    except SyntaxError:  # of its indentation
        return False
    return False
