"""The kill matrix: which checks of the suite see which wrong attention of the catalogue.

Every bug meets the same cases, so that the oracle answers each of them once for all. Over the first
``FULL`` cases every check is asked of every bug, whether or not another has seen it; what none has
seen goes on to the last case. So do the right attention, the *control*, without whose survival the
matrix is void, and the equivalents. Where only rows that see no key differ, about which torch
disagrees with itself, the suite is asked to demand torch's NaN (``--fully-masked nan``).
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from mha_parity import kill_report
from mha_parity.bound import bound
from mha_parity.candidate import Answer, CandidateError
from mha_parity.drawing import draw_cases
from mha_parity.gold import golden
from mha_parity.gradients import judge_gradients
from mha_parity.judging import Settings, judge
from mha_parity.kill_matrix import Kill, Matrix, Role
from mha_parity.making import make
from mha_parity.options import Options
from mha_parity.pullback import Pull
from mha_parity.related import judge_relation
from mha_parity.relations import applicable
from mha_parity.report.progress import progress
from mha_parity.systematic import Systematic
from mha_parity.trial import ANSWERED
from mha_parity.wrong import Attention, Bug, catalogue, whole_offer
from mha_parity.wrong.bug import features
from mha_parity.wrong.gradients import backwards
from mha_parity.wrong.layer import Layer, watched

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from mha_parity.case import Case
    from mha_parity.gold import Gold
    from mha_parity.problem import Problem
    from mha_parity.relations import Related
    from mha_parity.values import Array

CASES = Options().cases
DEFAULT = ("float64", "float32")
FULL = 48  # cases on which every check is asked of every bug
CHUNK = 12  # bugs a task
WORKERS = 2
BACKWARD = 24  # cases with gradients, which cost more: enough for bugs that show in most of them
SYSTEMATIC = "systematic error"
GRADIENTS = "gradients"


def controls() -> dict[str, Bug]:
    """Return the right attention, judged as bugs are judged: with a policy on rows, and without."""
    return {
        bug.id: bug
        for bug in (
            _control("right attention"),
            _control("right attention held to NaN rows", policy=True),
            replace(
                _control("right attention with its gradients"),
                needs=features("gradients=yes"),
                make=backwards(Pull),
                kinds=(),
            ),
            replace(_control("right layer, watched"), make=watched(Layer), kinds=()),
            replace(
                _control("right layer with its gradients, watched"),
                needs=features("gradients=yes"),
                make=watched(Layer),
                kinds=(),
            ),
        )
    }


def _control(name: str, *, policy: bool = False) -> Bug:
    formula = "softmax(scale q k^T + masks) v"
    return Bug(
        id=name,
        family=0,
        title="nothing is wrong",
        wrong=formula,
        right=formula,
        visible_when="never",
        remedy="nothing to mend",
        equivalent="it is the attention that every bug is a change of",
        policy=policy,
        kinds=(Attention,),
    )


def run_matrix(
    seed: int = 0,
    cases: int = CASES,
    asked: Sequence[str] = DEFAULT,
    tick: Callable[[int, int], None] | None = None,
) -> Matrix:
    """Run the suite on the controls and on every bug, in those dtypes asked for in which it can be.

    A bug that can be in none of them is run in its own.
    """
    tasks = list(_tasks(asked))
    found: dict[tuple[str, str], Kill] = {}
    with ProcessPoolExecutor(WORKERS) as pool:
        running = [pool.submit(named, ids, dtype, seed, cases) for ids, dtype in tasks]
        for done, future in enumerate(as_completed(running), start=1):
            found |= {(kill.bug, kill.dtype): kill for kill in future.result()}
            if tick:
                tick(done, len(running))
    order = {name: i for i, name in enumerate((*controls(), *catalogue()))}
    return Matrix(tuple(sorted(found.values(), key=lambda kill: (order[kill.bug], kill.dtype))))


def _tasks(asked: Sequence[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the entries of each dtype in chunks; the controls, which meet all cases, alone."""
    by_dtype: dict[str, list[str]] = {dtype: [] for dtype in asked}
    for bug in catalogue().values():
        for dtype in [d for d in asked if d in bug.dtypes] or bug.dtypes:
            by_dtype.setdefault(dtype, []).append(bug.id)
    for dtype, own in by_dtype.items():
        forward = [name for name in controls() if "gradients" not in controls()[name].needs]
        yield tuple(forward), dtype
        backward = [name for name in own if "gradients" in catalogue()[name].needs]
        if backward:
            yield (*(name for name in controls() if name not in forward), *backward), dtype
        plain = [name for name in own if name not in backward]
        for start in range(0, len(plain), CHUNK):
            yield tuple(plain[start : start + CHUNK]), dtype


def named(ids: Sequence[str], dtype: str, seed: int, cases: int) -> list[Kill]:
    """Return what the suite sees of the entries of these ids."""
    entries = {**controls(), **catalogue()}
    asked = entries[ids[0]].needs.get("gradients", ("no",))
    count = min(cases, BACKWARD) if asked == ("yes",) else cases
    return kills([entries[name] for name in ids], drawn(dtype, seed, count, asked))


@cache
def drawn(
    dtype: str, seed: int, count: int, gradients: tuple[str, ...] = ("no",)
) -> tuple[Case, ...]:
    """Return the cases that the suite draws for a candidate that offers everything."""
    offer = whole_offer() | {"dtype": (dtype,), "gradients": gradients}
    return tuple(draw_cases(offer, count, seed))


def kills(bugs: Sequence[Bug], cases: Sequence[Case], full: int = FULL) -> list[Kill]:
    """Return what the suite sees of some bugs over cases of one dtype.

    A bug that was seen meets the first ``full`` cases and no more.
    """
    subjects = [_Subject(bug) for bug in bugs]
    for i, case in enumerate(cases):
        left = [each for each in subjects if i < full or not each.by]
        if not left:
            break
        prepared = _prepared(case)
        for each in left:
            each.meet(*prepared)
    return [each.kill(cases[0].dtype) for each in subjects]


@cache
def _prepared(case: Case) -> tuple[Problem, Gold, list[tuple[str, Related]]]:
    """Return a problem, its gold and the relation whose turn it is, once a process."""
    problem = make(case)
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
        self.first: int | None = None

    def meet(self, problem: Problem, gold: Gold, turn: list[tuple[str, Related]]) -> None:
        """Judge its answer to one case, by all checks."""
        self.cases += 1
        answer = self.answer(problem)
        if answer is not None:
            self.judge(problem, gold, answer, turn)
        self.by = +self.by  # a check that counts nothing did not see it
        if self.by and self.first is None:
            self.first = self.cases

    def judge(
        self, problem: Problem, gold: Gold, answer: Answer, turn: list[tuple[str, Related]]
    ) -> None:
        """Count the checks that fail."""
        with np.errstate(all="ignore"):
            for judgement in judge(problem, gold, answer, self.settings):
                self.by[judgement.check] += judgement.severity.fails
            if problem.case.gradients == "yes":
                found = judge_gradients(problem, gold, answer, self.settings)
                self.by[GRADIENTS] += any(judgement.severity.fails for judgement in found)
        self.by.update({note.partition(": ")[0] for note in answer.notes})
        self.systematic.add(problem, gold, answer)
        if answer.output.shape == gold.output.shape:
            for name, related in turn:
                self.relate(name, related, answer, bound(problem, gold).output)

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
            self.first = self.first or self.cases
        bug = self.bug
        return Kill(
            bug.id, dtype, dict(self.by), self.cases, self.first,
            role=_role(bug), family=bug.family, proof=bug.equivalent or bug.beyond or "",
        )  # fmt: skip


def _role(bug: Bug) -> Role:
    if bug.id in controls():
        return Role.CONTROL
    if bug.beyond is not None:
        return Role.BEYOND
    return Role.BUG if bug.equivalent is None else Role.EQUIVALENT


def main(asked: argparse.Namespace) -> int:
    """Show the matrix of each seed; return 1 where one is not as it should be."""
    console = Console()
    wanted: tuple[str, ...] = asked.dtype
    matrices: list[Matrix] = []
    for seed in range(asked.seed, asked.seed + asked.seeds):
        with progress(console, f"the catalogue, seed {seed}") as tick:
            matrices.append(run_matrix(seed, asked.cases, wanted, tick))
        kill_report.show(matrices[-1], wanted, seed, console, whole=len(matrices) == 1)
    if asked.markdown:
        Path(asked.markdown).write_text(kill_report.markdown(matrices, wanted), encoding="utf-8")
    return int(not all(matrix.holds for matrix in matrices))


__all__ = ["controls", "drawn", "kills", "main", "run_matrix"]
