"""The kill matrix: the suite is run on every wrong attention of the catalogue; each must fail."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from mha_parity.options import Options, dtypes
from mha_parity.report.progress import progress
from mha_parity.run import check
from mha_parity.wrong import catalogue

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from mha_parity.wrong import Bug

CASES = 500  # as many as a run has by default


@dataclass(frozen=True, slots=True)
class Kill:
    """What became of one bug in one dtype: which checks saw it, in how many cases."""

    bug: str
    dtype: str
    by: Mapping[str, int]
    expected: bool

    @property
    def killed(self) -> bool:
        """Whether any check saw it."""
        return bool(self.by)


def kill(bug: Bug, dtype: str, *, seed: int = 0, cases: int = CASES) -> Kill:
    """Run the suite on one bug in one dtype."""
    options = Options(cases=cases, seed=seed, dtypes=(dtype,), diagnose=False, shrink=False)
    verdict = check(bug.candidate(), options)
    by = {row.name: row.failed for row in verdict.checks if row.failed}
    return Kill(bug.id, dtype, by, expected=bug.equivalent is None and not bug.policy)


def matrix(
    asked: Sequence[str],
    *,
    seed: int = 0,
    cases: int = CASES,
    tick: Callable[[int, int], None] | None = None,
) -> list[Kill]:
    """Run the suite on every bug, in those of the dtypes asked for in which it can be."""
    runs = [(b, d) for b in catalogue().values() for d in b.dtypes if d in asked]
    kills = []
    for done, (bug, dtype) in enumerate(runs, start=1):
        kills.append(kill(bug, dtype, seed=seed, cases=cases))
        if tick:
            tick(done, len(runs))
    return kills


def main(asked: argparse.Namespace) -> int:
    """Show the matrix; return 1 where a bug that should be seen survives."""
    console = Console()
    with progress(console, "the catalogue") as tick:
        kills = matrix(dtypes(asked.dtype), seed=asked.seed, cases=asked.cases, tick=tick)
    table = Table("bug", "dtype", "seen by (cases)", box=None)
    for each in kills:
        table.add_row(each.bug, each.dtype, _seen(each))
    console.print(table)
    left = [each for each in kills if each.expected and not each.killed]
    names = ", ".join(f"{each.bug} in {each.dtype}" for each in left)
    console.print(f"{sum(k.killed for k in kills)} of {len(kills)} runs fail, as they should.")
    console.print(f"survivors: {names}" if left else "No observable bug survives.")
    if asked.markdown:
        Path(asked.markdown).write_text(markdown(kills), encoding="utf-8")
    return int(bool(left))


def _seen(each: Kill) -> str:
    if not each.killed:
        return "survives" if each.expected else "equivalent, or a policy on masked rows"
    return ", ".join(f"{name} {count}" for name, count in each.by.items())


def markdown(kills: Sequence[Kill]) -> str:
    """Return the matrix as a table in Markdown."""
    lines = ["| bug | dtype | seen by (cases) |", "|---|---|---|"]
    lines += [f"| `{each.bug}` | {each.dtype} | {_seen(each)} |" for each in kills]
    return "\n".join(lines) + "\n"
