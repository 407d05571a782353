"""What became of the entries of the catalogue: which checks saw which, and what that comes to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Role(StrEnum):
    """What is due to happen to an entry."""

    BUG = "bug"
    EQUIVALENT = "equivalent"
    BEYOND = "beyond"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Kill:
    """What became of one entry in one dtype: which checks saw it, in how many cases.

    ``first`` is the number of cases after which it was seen, ``cases`` how many it met; ``proof``
    says of what is equivalent, or beyond the cases drawn, why it cannot be seen.
    """

    bug: str
    dtype: str
    by: Mapping[str, int]
    cases: int
    first: int | None
    role: Role = Role.BUG
    family: int = 0
    proof: str = ""

    @property
    def killed(self) -> bool:
        """Whether any check saw it."""
        return bool(self.by)


@dataclass(frozen=True, slots=True)
class Matrix:
    """The kills of a run over the catalogue."""

    kills: tuple[Kill, ...]

    def of(self, role: Role) -> tuple[Kill, ...]:
        """Return the kills of one role."""
        return tuple(kill for kill in self.kills if kill.role is role)

    @property
    def survivors(self) -> tuple[Kill, ...]:
        """Bugs that should be seen and are not."""
        return tuple(kill for kill in self.of(Role.BUG) if not kill.killed)

    @property
    def false_alarms(self) -> tuple[Kill, ...]:
        """Equivalents, and the right attention, that some check took for wrong."""
        right = (*self.of(Role.CONTROL), *self.of(Role.EQUIVALENT))
        return tuple(kill for kill in right if kill.killed)

    @property
    def void(self) -> bool:
        """Whether the right attention itself was taken for wrong: then a kill means nothing."""
        return any(kill.killed for kill in self.of(Role.CONTROL))

    @property
    def holds(self) -> bool:
        """Whether all is as it should be."""
        return not self.survivors and not self.false_alarms

    @property
    def alone(self) -> dict[str, list[str]]:
        """Which bugs each check sees that no other check sees; checks that see any bug at all."""
        bugs = self.of(Role.BUG)
        only: dict[str, list[str]] = {name: [] for kill in bugs for name in kill.by}
        for kill in bugs:
            if len(kill.by) == 1:
                only[next(iter(kill.by))].append(kill.bug)
        return {name: sorted(set(found)) for name, found in only.items()}

    @property
    def idle(self) -> tuple[str, ...]:
        """Checks that see nothing that another does not see."""
        return tuple(name for name, bugs in self.alone.items() if not bugs)
