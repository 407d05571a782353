"""The lengths that some calls ask for as numbers: of a sequence, a window, a map's two sides."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mha_parity.targets.static.projection_names import WINDOW

if TYPE_CHECKING:
    import inspect
    from collections.abc import Sequence

PAIRS = (("h", "w"), ("height", "width"))


def map_sizes(required: Sequence[str]) -> tuple[str, str]:
    """Return which required parameters behind the first are height and width; "" if none are."""
    named = {name.lower(): name for name in required[1:]}
    found = (pair for pair in PAIRS if set(pair) <= set(named))
    height, width = next(found, ("", ""))
    return named.get(height, ""), named.get(width, "")


def is_annotated(parameter: inspect.Parameter, kind: type) -> bool:
    """Return whether a parameter is annotated with a type; other annotations may be anything."""
    said = parameter.annotation
    return said is kind or (isinstance(said, str) and said == kind.__name__)


def is_pair(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is annotated as a tuple, as the keys on both sides of a row."""
    return "tuple" in str(parameter.annotation).lower()


def is_length(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is a whole number, or called after a length or a window."""
    name = parameter.name.lower()
    wants = is_annotated(parameter, int) or WINDOW.search(name)
    return bool(wants or re.search(r"(seq|sequence).*len(gth)?$", name))
