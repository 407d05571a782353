"""The height and width of a map that some vision layers take next to its positions as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PAIRS = (("h", "w"), ("height", "width"))


def map_sizes(required: Sequence[str]) -> tuple[str, str]:
    """Return which required parameters behind the first are height and width; "" if none are."""
    named = {name.lower(): name for name in required[1:]}
    found = (pair for pair in PAIRS if set(pair) <= set(named))
    height, width = next(found, ("", ""))
    return named.get(height, ""), named.get(width, "")
