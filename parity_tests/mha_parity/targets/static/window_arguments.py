"""How a target is called with a window: what it is passed as, and which keys a row then sees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# What is added to the size of a window, or what its half is made of: the keys on one side of a row.
EXTENTS: dict[str, Callable[[int], int]] = {
    "w": lambda size: size,
    "w - 1": lambda size: size - 1,
    "w // 2": lambda size: size // 2,
    "(w - 1) // 2": lambda size: (size - 1) // 2,
    "0": lambda _: 0,
}
ALL = "all"  # keys of that side
BLOCKS = "blocks"
# Keys before and behind a row of a window given as one number, by how often code means it.
RULES = (
    ("w - 1", "0"), ("w", "0"), ("w // 2", "w // 2"), ("(w - 1) // 2", "(w - 1) // 2"),
    ("w // 2", "(w - 1) // 2"), ("(w - 1) // 2", "w // 2"), ("w - 1", "w - 1"), ("w", "w"),
    ("w - 1", ALL), ("w", ALL), (ALL, "w - 1"), (ALL, "w"), (BLOCKS, BLOCKS),
)  # fmt: skip
# Of one that is given as a pair (left, right), each side by its own number.
PAIR_RULES = (("w", "w"), ("w - 1", "w - 1"), ("w - 1", "w"))


@dataclass(frozen=True, slots=True)
class WindowUse:
    """How one parameter, by its key, takes a window.

    ``rule`` says how many keys a row sees before and behind its own. ``pair``: each side has a
    number of its own. ``switches`` are keys of parameters that have to be True. ``causal``: whether
    the problems that it was understood of have the causal rule. ``whole``: the size divides the
    length, as calls with others raised; ``odd``: it is odd.
    """

    key: str
    rule: tuple[str, str]
    pair: bool = False
    switches: tuple[str, ...] = ()
    causal: tuple[bool, ...] = (False,)
    whole: bool = False
    odd: bool = False

    @property
    def name(self) -> str:
        """The name of the parameter."""
        return self.key.partition(".")[2]

    @property
    def is_built(self) -> bool:
        """Whether it is the constructor that takes the window."""
        return self.key.startswith("constructor.")

    def keys_of(self, row: int, size: int | tuple[int, int], length: int) -> tuple[int, int]:
        """Return the first key that a row sees, and the one behind the last, without a causal rule.

        There are as many keys as rows.
        """
        before, behind = size if isinstance(size, tuple) else (size, size)
        if self.rule[0] == BLOCKS:
            first = row // before * before
            return first, min(first + before, length)
        first = 0 if self.rule[0] == ALL else row - EXTENTS[self.rule[0]](before)
        end = length if self.rule[1] == ALL else row + EXTENTS[self.rule[1]](behind) + 1
        return max(first, 0), min(end, length)

    def of_extent(self, before: str) -> WindowUse:
        """Return the use of a window of which a row sees as many keys before its own."""
        return replace(self, rule=(before, self.rule[1]))

    @property
    def meaning(self) -> str:
        """Say which keys a row sees."""
        if self.rule[0] == BLOCKS:
            return "of w, row i sees the keys of its own block of w, of those counted from row 0"
        before, behind = (_written(each, sign) for each, sign in zip(self.rule, "-+", strict=True))
        first = "0" if self.rule[0] == ALL else f"i{before}"
        last = "S - 1" if self.rule[1] == ALL else f"i{behind}"
        if self.pair:
            first, last = first.replace("w", "left"), last.replace("w", "right")
        size = "(left, right)" if self.pair else "w"
        return f"of {size}, row i sees the keys {first} to {last}"


def _written(extent: str, sign: str) -> str:
    """Return what is added to a row's number, "" for nothing: `- w + 1`, and no brackets."""
    if extent == "0":
        return ""
    if sign == "-" and extent == "w - 1":
        return " - w + 1"
    return f" {sign} {extent}"
