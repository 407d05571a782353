"""The axes of a verdict, and the features that failing cases have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mha_parity.core.features import AXES, PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mha_parity.core.verdict import FailureGroup, FeatureRow, FeatureSet, Verdict

UNASKED = frozenset({"not offered", "left out", "not drawn"})  # what a row is of that has no case


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of the report and its rows.

    ``concentrated``: the failures of a bug have some of its values in common, beyond chance.
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
        return tuple(row for row in self.rows if row.status not in UNASKED)

    @property
    def failing(self) -> tuple[FeatureRow, ...]:
        """The values that some failing case has."""
        return tuple(row for row in self.offered if row.failed)

    @property
    def varies(self) -> bool:
        """Whether the target offers more than one value."""
        return len(self.offered) > 1


def title(axis: str) -> str:
    """Return the name of an axis in words."""
    return axis.replace("_", " ")


def axes(verdict: Verdict) -> list[Axis]:
    """Return the axes on which the target offers anything, in the order of the table."""
    by_name: dict[str, list[FeatureRow]] = {name: [] for name in AXES}
    for row in verdict.features:
        by_name[row.axis].append(row)
    named = {axis for group in verdict.failure_groups for axis, _ in group.common}
    return [Axis(name, tuple(rows), name in named) for name, rows in by_name.items() if rows]


def by_concentration(verdict: Verdict) -> list[Axis]:
    """Return the axes, those first on which failures concentrate, then by how unevenly they fail.

    How unevenly: the largest difference between the shares of failing cases of two values.
    """

    def spread(axis: Axis) -> float:
        shares = [row.failed / row.cases for row in axis.offered if row.cases]
        return max(shares, default=0) - min(shares, default=0)

    return sorted(axes(verdict), key=lambda axis: (axis.concentrated, spread(axis)), reverse=True)


def common(verdict: Verdict) -> list[list[list[FeatureRow]]]:
    """Return for each group of failures the rows that it has in common, one list an axis."""
    return [_rows(verdict, group.common) for group in verdict.failure_groups if group.common]


def explained(verdict: Verdict) -> list[FeatureRow]:
    """Return the rows that failures have in common only since the explaining feature has them."""
    sets = (each for group in verdict.failure_groups for each in group.explained)
    return _all_rows(verdict, sets)


def absent(verdict: Verdict) -> list[FeatureRow]:
    """Return the few rows that no failing case has, on axes of which most values fail."""
    sets = (each for group in verdict.failure_groups for each in group.absent)
    return [row for row in _all_rows(verdict, sets) if not row.failed]


def explaining(verdict: Verdict) -> dict[str, FailureGroup]:
    """Return the features that explain failures, ``axis=value``, each with its group.

    These are the first that a group has in common, and those which narrow it down. A plain value,
    which most cases have, narrows it down by what it lacks: nothing is wrong with it by itself.
    """
    return {
        f"{axis}={value}": group
        for group in verdict.failure_groups
        for number, (axis, values) in enumerate(group.common)
        if not number or PLAIN[axis] not in values
        for value in values
    }


def _all_rows(verdict: Verdict, sets: Iterable[FeatureSet]) -> list[FeatureRow]:
    rows = [row for rows in _rows(verdict, sets) for row in rows]
    return list({(row.axis, row.value): row for row in rows}.values())


def _rows(verdict: Verdict, sets: Iterable[FeatureSet]) -> list[list[FeatureRow]]:
    return [
        [row for row in verdict.features if row.axis == axis and row.value in values]
        for axis, values in sets
    ]
