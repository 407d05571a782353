"""Lines of Python source, broken as formatters of Python break them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH = 88
OPEN, CLOSE = "([{", ")]}"


def wrapped(line: str, end: str = "") -> str:
    """Return a line and what ends it; one that is too long and ends in brackets is broken there.

    Their content gets lines of its own: one, or one for each of its parts.
    """
    if len(line) + len(end) <= WIDTH or line[-1] not in CLOSE:
        return line + end
    start = _opening(line)
    indent = " " * (len(line) - len(line.lstrip()))
    within, deeper = line[start + 1 : -1], f"{indent}    "
    parts = [within]
    if len(deeper) + len(within) > WIDTH:
        parts = list(_parts(within, " for ")) if line[-1] == "]" else []
        parts = parts if len(parts) > 1 else [f"{part}," for part in _parts(within, ", ")]
    lines = [wrapped(deeper + part.rstrip(","), "," * part.endswith(",")) for part in parts]
    return "\n".join([line[: start + 1], *lines, f"{indent}{line[-1]}{end}"])


def _opening(line: str) -> int:
    """Return where the brackets open that the last character closes."""
    depth = 0
    for i in reversed(range(len(line))):
        depth += (line[i] in CLOSE) - (line[i] in OPEN)
        if depth == 0:
            return i
    message = f"no bracket opens the last one of {line!r}"
    raise ValueError(message)


def _parts(text: str, between: str) -> Iterator[str]:
    """Yield the parts of a text between separators that are in no brackets.

    A comma goes with its blank; the word ``for`` starts its part.
    """
    depth = start = 0
    for i, each in enumerate(text):
        depth += (each in OPEN) - (each in CLOSE)
        if depth == 0 and text.startswith(between, i):
            yield text[start:i]
            start = i + (len(between) if between == ", " else 1)
    yield text[start:].removesuffix(",")
