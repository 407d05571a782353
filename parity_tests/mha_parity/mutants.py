"""The kill matrix: which checks of the suite see which wrong attention of the catalogue.

Every bug meets the same cases, so that the oracle answers each of them once for all. Over the first
``FULL`` cases every check is asked of every bug, whether or not another has seen it; bugs that none
has seen go on to the last case. Where only rows that see no key differ, about which torch disagrees
with itself, the suite is asked to demand torch's NaN (``--fully-masked nan``).
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from mha_parity.bound import bound
from mha_parity.candidate import Answer, CandidateError
from mha_parity.drawing import draw_cases
from mha_parity.gold import golden
from mha_parity.judge import Settings, judge
from mha_parity.making import make
from mha_parity.options import Options, dtypes
from mha_parity.related import judge_relation
from mha_parity.relations import applicable
from mha_parity.report.progress import progress
from mha_parity.systematic import Systematic
from mha_parity.trial import ANSWERED
from mha_parity.wrong import catalogue, whole_offer

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mha_parity.gold import Gold
    from mha_parity.problem import Problem
    from mha_parity.relations import Related
    from mha_parity.values import Array
    from mha_parity.wrong import Bug

CASES = Options().cases
DEFAULT = ("float64", "float32")
FULL = 48  # cases on which every check is asked of every bug
CHUNK = 12  # bugs a task
WORKERS = 2
SYSTEMATIC = "systematic error"


@dataclass(frozen=True, slots=True)
class Kill:
    """What became of one bug in one dtype: which checks saw it, in how many cases of how many."""

    bug: str
    dtype: str
    by: Mapping[str, int]
    cases: int
    expected: bool = True

    @property
    def killed(self) -> bool:
        """Whether any check saw it."""
        return bool(self.by)

    @property
    def words(self) -> str:
        """Say which checks saw it."""
        if not self.killed:
            return "survives" if self.expected else "equivalent"
        return ", ".join(f"{name} {count}" for name, count in self.by.items())


@dataclass(frozen=True, slots=True)
class Matrix:
    """The kills of a run over the catalogue."""

    kills: tuple[Kill, ...]

    @property
    def survivors(self) -> tuple[Kill, ...]:
        """Bugs that should be seen and are not."""
        return tuple(kill for kill in self.kills if kill.expected and not kill.killed)

    @property
    def false_alarms(self) -> tuple[Kill, ...]:
        """Equivalents that some check took for wrong."""
        return tuple(kill for kill in self.kills if kill.killed and not kill.expected)

    @property
    def alone(self) -> dict[str, list[str]]:
        """Which bugs each check sees that no other check sees; checks that see any bug at all."""
        only: dict[str, list[str]] = {name: [] for kill in self.kills for name in kill.by}
        for kill in self.kills:
            if len(kill.by) == 1:
                only[next(iter(kill.by))].append(kill.bug)
        return {name: sorted(set(bugs)) for name, bugs in only.items()}

    @property
    def idle(self) -> tuple[str, ...]:
        """Checks that see nothing that another does not see."""
        return tuple(name for name, bugs in self.alone.items() if not bugs)


def run_matrix(
    seed: int = 0,
    cases: int = CASES,
    asked: Sequence[str] = DEFAULT,
    tick: Callable[[int, int], None] | None = None,
) -> Matrix:
    """Run the suite on every bug, in those of the dtypes asked for in which it can be."""
    tasks = [task for dtype in asked for task in _tasks(dtype)]
    found: dict[tuple[str, str], Kill] = {}
    with ProcessPoolExecutor(WORKERS) as pool:
        running = [pool.submit(kills, ids, dtype, seed, cases) for ids, dtype in tasks]
        for done, future in enumerate(as_completed(running), start=1):
            found |= {(kill.bug, kill.dtype): kill for kill in future.result()}
            if tick:
                tick(done, len(running))
    return Matrix(tuple(found[i, d] for i in catalogue() for d in asked if (i, d) in found))


def _tasks(dtype: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the bugs of a dtype in chunks."""
    own = [bug.id for bug in catalogue().values() if dtype in bug.dtypes]
    for start in range(0, len(own), CHUNK):
        yield tuple(own[start : start + CHUNK]), dtype


def kills(ids: Sequence[str], dtype: str, seed: int, cases: int) -> list[Kill]:
    """Return what the suite sees of some bugs in one dtype."""
    subjects = [_Subject(catalogue()[bug_id]) for bug_id in ids]
    for i in range(cases):
        left = [each for each in subjects if i < FULL or not each.by]
        if not left:
            break
        prepared = _prepared(dtype, seed, cases, i)
        for each in left:
            each.meet(*prepared)
    return [each.kill(dtype) for each in subjects]


@cache
def _problems(dtype: str, seed: int, cases: int) -> list[Problem]:
    return [make(case) for case in draw_cases(whole_offer() | {"dtype": (dtype,)}, cases, seed)]


@cache
def _prepared(
    dtype: str, seed: int, cases: int, index: int
) -> tuple[Problem, Gold, list[tuple[str, Related]]]:
    """Return a problem, its gold and the relation whose turn it is, once a process."""
    problem = _problems(dtype, seed, cases)[index]
    relations = applicable(problem)
    turn = [relations[problem.case.seed % len(relations)]] if relations else []
    return problem, golden(problem), turn


class _Subject:
    """One wrong attention on its way through the cases."""

    def __init__(self, bug: Bug) -> None:
        self.bug = bug
        self.attend = bug.function()
        self.settings = Settings(fully_masked="nan" if bug.policy else None)
        self.by: Counter[str] = Counter()
        self.systematic = Systematic()
        self.cases = 0

    def meet(self, problem: Problem, gold: Gold, turn: list[tuple[str, Related]]) -> None:
        """Judge its answer to one case, by all checks."""
        self.cases += 1
        answer = self.answer(problem)
        if answer is None:
            return
        with np.errstate(all="ignore"):
            for judgement in judge(problem, gold, answer, self.settings):
                self.by[judgement.check] += judgement.severity.fails
        self.by.update({note.partition(": ")[0] for note in answer.notes})
        self.systematic.add(problem, gold, answer)
        if answer.output.shape == gold.output.shape:
            for name, related in turn:
                self.relate(name, related, answer, bound(problem, gold).output)
        self.by = +self.by  # a check that counts nothing did not see it

    def relate(self, name: str, related: Related, first: Answer, limit: Array) -> None:
        """Judge its answer to a related problem by its own first answer."""
        second = self.answer(related.problem)
        if second is not None:
            outputs = first.output, second.output
            again = judge_relation(related.problem, limit, *outputs, name, related)
            self.by[name] += again.severity.fails

    def answer(self, problem: Problem) -> Answer | None:
        """Return its answer; None, and a count, where it crashes."""
        try:
            return self.attend(problem)
        except CandidateError:
            self.by[ANSWERED] += 1
            return None

    def kill(self, dtype: str) -> Kill:
        """Return what became of it, systematic errors over the run included."""
        if any(judgement.severity.fails for judgement in self.systematic.judgements()):
            self.by[SYSTEMATIC] += 1
        return Kill(self.bug.id, dtype, dict(self.by), self.cases, self.bug.equivalent is None)


def main(asked: argparse.Namespace) -> int:
    """Show the matrix; return 1 where a bug that should be seen survives."""
    console = Console()
    wanted = dtypes(asked.dtype)
    with progress(console, "the catalogue") as tick:
        matrix = run_matrix(asked.seed, asked.cases, wanted, tick)
    console.print(table(matrix, wanted))
    for line in summary(matrix):
        console.print(line, highlight=False)
    if asked.markdown:
        Path(asked.markdown).write_text(markdown(matrix, wanted), encoding="utf-8")
    return int(bool(matrix.survivors))


def table(matrix: Matrix, wanted: Sequence[str]) -> Table:
    """Return the matrix for a terminal: a row a bug, a column a dtype."""
    shown = Table("bug", *(f"{dtype}: seen by (cases)" for dtype in wanted), box=None)
    for bug_id, row in rows(matrix, wanted):
        shown.add_row(bug_id, *row)
    return shown


def rows(matrix: Matrix, wanted: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each bug with what became of it in every dtype."""
    words = {(kill.bug, kill.dtype): kill.words for kill in matrix.kills}
    for bug_id in dict.fromkeys(kill.bug for kill in matrix.kills):
        yield bug_id, [words.get((bug_id, dtype), "–") for dtype in wanted]


def summary(matrix: Matrix) -> Iterator[str]:
    """Yield what the matrix comes to, in sentences."""
    due = [kill for kill in matrix.kills if kill.expected]
    yield f"{sum(k.killed for k in due)} of {len(due)} wrong attentions are seen."
    names = ", ".join(f"{kill.bug} in {kill.dtype}" for kill in matrix.survivors)
    yield f"Survivors: {names}." if names else "No observable bug survives."
    if matrix.false_alarms:
        yield f"Equivalents taken for wrong: {', '.join(k.bug for k in matrix.false_alarms)}."
    for name, bugs in sorted(matrix.alone.items(), key=lambda item: -len(item[1])):
        if bugs:
            yield f"Only the check of {name} sees: {', '.join(bugs)}."
    if matrix.idle:
        yield f"Checks that see nothing another does not see: {', '.join(matrix.idle)}."


def markdown(matrix: Matrix, wanted: Sequence[str]) -> str:
    """Return the matrix as a table in Markdown, and what it comes to."""
    lines = [f"| bug | {' | '.join(wanted)} |", f"|---|{'---|' * len(wanted)}"]
    lines += [f"| `{bug_id}` | {' | '.join(row)} |" for bug_id, row in rows(matrix, wanted)]
    return "\n".join([*lines, "", *(f"- {line}" for line in summary(matrix))]) + "\n"


__all__ = ["Kill", "Matrix", "kills", "main", "markdown", "run_matrix"]
