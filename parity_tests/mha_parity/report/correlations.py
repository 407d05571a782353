"""Compare failing cases with the others: features common to all, and absent from all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mha_parity.core.features import AXES, PLAIN

if TYPE_CHECKING:
    from mha_parity.core.verdict import FeatureRow, Verdict

# Probability below which it is no accident that no failing case has a value; a run tests it on some
# twenty axes.
SIGNIFICANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of the report and its rows.

    ``concentrated``: some values occur in no failing case, too often for an accident.
    """

    name: str
    rows: tuple[FeatureRow, ...]
    concentrated: bool

    @property
    def title(self) -> str:
        """The axis in words."""
        return title(self.name)

    @property
    def offered(self) -> tuple[FeatureRow, ...]:
        """The values the target offers, those that no case has left out."""
        return tuple(row for row in self.rows if row.status not in {"not offered", "not drawn"})

    @property
    def failing(self) -> tuple[FeatureRow, ...]:
        """The values that some failing case has."""
        return tuple(row for row in self.offered if row.failed)

    @property
    def passing(self) -> tuple[FeatureRow, ...]:
        """The values that occur in cases and in no failing one."""
        return tuple(row for row in self.offered if row.cases and not row.failed)

    @property
    def varies(self) -> bool:
        """Whether the target offers more than one value."""
        return len(self.offered) > 1

    @property
    def passes_plain(self) -> bool:
        """Whether cases with the plain value never fail, or fewer values fail than do not."""
        spared = [row.value for row in self.passing]
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
        Axis(name, tuple(rows), _is_concentrated(rows, verdict))
        for name, rows in by_name.items()
        if rows
    ]


def _is_concentrated(rows: list[FeatureRow], verdict: Verdict) -> bool:
    """Return whether it is no accident that some values occur in no failing case."""
    spared = sum(row.cases for row in rows if not row.failed)
    if not (verdict.failed and verdict.run and spared):
        return False
    return (1 - min(spared / verdict.run, 1.0)) ** verdict.failed < SIGNIFICANCE


def by_concentration(verdict: Verdict) -> list[Axis]:
    """Return the axes, those first on which failures concentrate, then by how unevenly they fail.

    How unevenly: the largest difference between the shares of failing cases of two values.
    """

    def spread(axis: Axis) -> float:
        shares = [row.failed / row.cases for row in axis.offered if row.cases]
        return max(shares, default=0) - min(shares, default=0)

    return sorted(axes(verdict), key=lambda axis: (axis.concentrated, spread(axis)), reverse=True)


def axes_common_to_failures(verdict: Verdict) -> list[Axis]:
    """Return the axes of which all failing cases have one value, or one of a few."""
    return [axis for axis in axes(verdict) if axis.concentrated and axis.passes_plain]


def axes_absent_from_failures(verdict: Verdict) -> list[Axis]:
    """Return the axes that have a few values which no failing case has."""
    return [axis for axis in axes(verdict) if axis.concentrated and not axis.passes_plain]
