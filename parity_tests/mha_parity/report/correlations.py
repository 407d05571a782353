"""What sets failing cases apart: features that all of them have, and features that none has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mha_parity.features import AXES, PLAIN

if TYPE_CHECKING:
    from mha_parity.verdict import FeatureRow, Verdict

# A value that no failing case has says something where that would be luck once in so many runs;
# a run asks the question of some twenty axes.
CHANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of the report: its rows, and what the failing cases have to do with it."""

    name: str
    rows: tuple[FeatureRow, ...]
    tells: bool

    @property
    def title(self) -> str:
        """The axis in words."""
        return title(self.name)

    @property
    def offered(self) -> tuple[FeatureRow, ...]:
        """The values the target offers."""
        return tuple(row for row in self.rows if row.status != "not offered")

    @property
    def failing(self) -> tuple[FeatureRow, ...]:
        """The values that some failing case has."""
        return tuple(row for row in self.offered if row.failed)

    @property
    def spared(self) -> tuple[FeatureRow, ...]:
        """The values that cases have and no failing case has."""
        return tuple(row for row in self.offered if row.cases and not row.failed)

    @property
    def varies(self) -> bool:
        """Whether the cases differ on this axis, or should have."""
        return len(self.offered) > 1

    @property
    def spares_plain(self) -> bool:
        """Whether cases with the plain value never fail, or fewer values fail than do not."""
        spared = [row.value for row in self.spared]
        return PLAIN[self.name] in spared or len(self.failing) <= len(spared)


def title(axis: str) -> str:
    """Return the name of an axis in words."""
    return axis.replace("_", " ")


def axes(verdict: Verdict) -> list[Axis]:
    """Return the axes on which the target offers anything, in the order of the table."""
    by_name: dict[str, list[FeatureRow]] = {name: [] for name in AXES}
    for row in verdict.features:
        by_name[row.axis].append(row)
    return [
        Axis(name, tuple(rows), _tells(rows, verdict)) for name, rows in by_name.items() if rows
    ]


def _tells(rows: list[FeatureRow], verdict: Verdict) -> bool:
    """Return whether it is no accident that some values occur in no failing case."""
    spared = sum(row.cases for row in rows if not row.failed)
    if not (verdict.failed and verdict.run and spared):
        return False
    return (1 - min(spared / verdict.run, 1.0)) ** verdict.failed < CHANCE


def shared(verdict: Verdict) -> list[Axis]:
    """Return the axes of which all failing cases have one value, or one of a few."""
    return [axis for axis in axes(verdict) if axis.tells and axis.spares_plain]


def absent(verdict: Verdict) -> list[Axis]:
    """Return the axes that have a few values which no failing case has."""
    return [axis for axis in axes(verdict) if axis.tells and not axis.spares_plain]


def alike(verdict: Verdict) -> list[Axis]:
    """Return the axes on which failing cases are like all others.

    None where so few fail that not even a value of half the cases would be missed among them.
    """
    if 0.5**verdict.failed >= CHANCE:
        return []
    return [axis for axis in axes(verdict) if axis.varies and not axis.tells]
