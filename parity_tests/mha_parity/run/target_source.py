"""Where a target is defined, read from its file without running it."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mha_parity.core.candidate import PLACE
from mha_parity.core.verdict import Source
from mha_parity.diagnose.suspect_line import operation_lines, operation_of
from mha_parity.targets.load import place_and_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mha_parity.core.verdict import Diagnosis, Failure

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign


def source_of(
    target: str, failures: Iterable[Failure] = (), diagnosis: Sequence[Diagnosis] = ()
) -> Source | None:
    """Return where a target is defined; None where no file of Python or notebook defines it."""
    place, attribute = place_and_name(target)
    path = _file(place)
    if path is None or not attribute:
        return None
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            return _in_notebook(place, text, attribute)
        tree = ast.parse(text)
        found = _definition(tree.body, attribute.split("."))
    except (OSError, ValueError, SyntaxError):  # a file that the target's own process could read
        return None
    if found is None:
        return None
    lines = text.splitlines()
    definition = "\n".join(lines[found.lineno - 1 : found.end_lineno])
    operation = operation_of(diagnosis[0]) if diagnosis else ""
    numbers = operation_lines(tree, attribute.split("."), operation)
    return Source(
        str(path), found.lineno, definition, _raised_at(path, failures),
        tuple((number, lines[number - 1]) for number in numbers),
    )  # fmt: skip


def _file(place: str) -> Path | None:
    """Return the file of a target: the one it names, or its module's; nothing is imported."""
    if place.endswith((".py", ".ipynb")):
        path = Path(place).expanduser()
        return path if path.is_file() else None
    parts = place.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    for folder in (Path(), *map(Path, sys.path)):
        stem = folder.joinpath(*parts)
        for path in (stem.with_suffix(".py"), stem / "__init__.py"):
            if path.is_file():
                return path
    return None


def _definition(body: list[ast.stmt], names: list[str]) -> Definition | None:
    """Return the last statement that defines the first name, and in it the next names."""
    found = [node for node in body if isinstance(node, Definition) and names[0] in _names(node)]
    if not found:
        return None
    last, rest = found[-1], names[1:]
    if not rest:
        return last
    return _definition(last.body, rest) if isinstance(last, ast.ClassDef) else None


def _names(node: Definition) -> list[str]:
    if isinstance(node, ast.Assign):
        return [each.id for each in node.targets if isinstance(each, ast.Name)]
    return [node.name]


def _in_notebook(place: str, text: str, attribute: str) -> Source | None:
    """Return the line of the notebook's JSON in which the definition begins."""
    begins = re.compile(rf'\s*"(async def|def|class) {re.escape(attribute)}\b')
    lines = [number for number, line in enumerate(text.splitlines(), 1) if begins.match(line)]
    return Source(place, lines[-1]) if lines else None


def _raised_at(path: Path, failures: Iterable[Failure]) -> int:
    """Return the line of the file at which the first failing call raised; 0 if none did there."""
    for failure in failures:
        for match in PLACE.finditer(failure.check_result.detail):
            if Path(match["file"]).resolve() == path.resolve():
                return int(match["line"])
    return 0
