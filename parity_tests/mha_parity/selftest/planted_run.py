"""How many cases it takes to see each planted bug, under several seeds.

A planted bug is right wherever its condition does not hold, so only the other cases are judged.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import whole_offer
from mha_parity.catalogue.arguments import planted_arguments
from mha_parity.catalogue.extreme_values import planted_extreme_values
from mha_parity.catalogue.interactions import planted_interactions
from mha_parity.catalogue.sizes import planted_sizes
from mha_parity.catalogue.values import planted_values
from mha_parity.core.candidate import CandidateError
from mha_parity.core.options import Options
from mha_parity.judging.output import JudgeSettings, judge_answer
from mha_parity.oracle.reference import reference_answer
from mha_parity.selftest.mutation_matrix import markdown_table, rich_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console
    from rich.table import Table

    from mha_parity.catalogue.conditional_bugs import Planted
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem
    from mha_parity.oracle.reference import Reference

SEEDS = 10
RUNS = (50, 100, 500, 2000, 20_000)  # cases of the runs for which a probability is said
HEADER = ("planted bugs", "seen", "first failing case: median", "latest", "the latest")
MEASURES = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0001)


@dataclass(frozen=True, eq=False, kw_only=True)
class Detection:
    """The cases in which a planted bug failed: ``first`` has the number of the first, by seed."""

    bug: Planted
    first: tuple[int | None, ...]
    share: float  # of the cases whose condition holds, over all seeds

    @property
    def seen(self) -> int:
        """Under how many seeds a case failed."""
        return sum(number is not None for number in self.first)


def planted() -> tuple[Planted, ...]:
    """Return all planted bugs."""
    return (
        *planted_sizes(), *planted_arguments(), *planted_interactions(), *planted_values(),
        *planted_extreme_values(),
    )  # fmt: skip


def detections(
    bugs: Sequence[Planted],
    seeds: Sequence[int] = range(SEEDS),
    count: int = Options().cases,
    tick: Callable[[int, int], None] | None = None,
    offer: Offer | None = None,
) -> list[Detection]:
    """Return how each bug fares in runs of ``count`` cases, one run a seed.

    Cases are drawn for a target that offers everything, or for ``offer``.
    """
    offer, first = offer or whole_offer(), defaultdict(list)
    held: dict[Planted, int] = defaultdict(int)
    for done, seed in enumerate(seeds):
        cases = draw_cases(offer, count, seed)
        for bug in bugs:
            where = [number for number, case in enumerate(cases, 1) if bug.holds(case)]
            held[bug] += len(where)
            first[bug].append(next((n for n in where if fails(bug, cases[n - 1])), None))
        if tick:
            tick(done + 1, len(seeds))
    total = count * len(seeds)
    return [Detection(bug=b, first=tuple(first[b]), share=held[b] / total) for b in bugs]


def fails(bug: Planted, case: Case) -> bool:
    """Return whether a check of output or weights fails the bug on one case."""
    problem, reference = _prepared(case)
    try:
        answer = bug.attend(problem)
    except CandidateError:
        return True
    with np.errstate(all="ignore"):
        found = judge_answer(problem, reference, answer, JudgeSettings())
    return any(check_result.severity.fails for check_result in found)


@lru_cache(maxsize=600)
def _prepared(case: Case) -> tuple[Problem, Reference]:
    problem = make_problem(case)
    return problem, reference_answer(problem)


def detection_probability(share: float, count: int) -> float:
    """Return the probability that ``count`` independent cases hold one of a share of all cases."""
    return 1 - (1 - share) ** count


def detection_rows(found: Sequence[Detection]) -> Iterator[tuple[str, ...]]:
    """Yield a row per family: how many of its bugs are seen, and when; `HEADER` has the columns."""
    for family in dict.fromkeys(sighting.bug.family for sighting in found):
        own = [sighting for sighting in found if sighting.bug.family == family]
        numbers = [(n, each.bug.condition) for each in own for n in each.first if n is not None]
        runs = sum(len(each.first) for each in own)
        latest = max(numbers, default=(0, "none"))
        yield (
            f"{family} ({len(own)})", f"{len(numbers)} of {runs}",
            f"{median(n for n, _ in numbers):g}" if numbers else "-", str(latest[0]), latest[1],
        )  # fmt: skip


def detection_table(found: Sequence[Detection]) -> Table:
    """Return the rows as a table for a terminal."""
    return rich_table(HEADER, detection_rows(found))


def detection_markdown(found: Sequence[Detection]) -> str:
    """Return the rows and what was missed as Markdown."""
    said = (f"- {line}" for line in sentences(found))
    lines = ["", "## Planted bugs", "", *markdown_table(HEADER, detection_rows(found)), "", *said]
    return "\n".join(lines) + "\n"


def detection_probabilities() -> Table:
    """Return the probability with which runs of some lengths see bugs of some measures."""
    header = ("share of cases that show the bug", *(f"{n} cases" for n in RUNS))
    return rich_table(
        header,
        ((f"{p:g}", *(f"{detection_probability(p, n):.3f}" for n in RUNS)) for p in MEASURES),
    )


def sentences(found: Sequence[Detection]) -> Iterator[str]:
    """Yield what was missed, and what was seen in the fewest cases."""
    missed = [each for each in found if each.seen < len(each.first)]
    for each in missed:
        yield (
            f"Missed: wrong only if {each.bug.condition}: seen under {each.seen} of "
            f"{len(each.first)} seeds; {each.share:.2%} of the cases have the condition."
        )
    total = sum(each.seen for each in found)
    yield f"{total} of {sum(len(each.first) for each in found)} planted bugs are seen."


def print_detections(found: Sequence[Detection], console: Console) -> None:
    """Print both tables and what was missed."""
    console.print(detection_table(found))
    for line in sentences(found):
        console.print(line, highlight=False)
    console.print(detection_probabilities())
