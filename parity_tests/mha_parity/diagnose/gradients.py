"""Name wrong gradients of a right output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue import catalogue
from mha_parity.catalogue.gradients import with_gradients
from mha_parity.core.compare import as_float64
from mha_parity.core.verdict import Diagnosis
from mha_parity.diagnose.experiment_diagnosis import in_words
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.gradients.gradient_departures import RTOL, summed
from mha_parity.diagnose.experiments.gradients.gradients import designed_trials, gradient_effects
from mha_parity.oracle.eval_orders_vjp import VJP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer, Candidate
    from mha_parity.core.problem import Problem

FAMILY = 12
# Of the failing cases, what a name explains at least: half precision rounds a lot away.
MIN_EXPLAINED_SHARE = 0.9


def name_wrong_gradients(
    candidate: Candidate, failures: Sequence[tuple[Problem, Answer]]
) -> tuple[Diagnosis, ...]:
    """Return the wrong backward pass that gives all gradients seen, or what was measured."""
    # Rows that see no key make all gradients NaN in torch, and may in a candidate.
    clean = [each for each in failures if each[1].gradients and not each[0].masked_rows().any()]
    wrong = [each for each in clean if not _agrees(*each, with_gradients(VJP)())]
    designed: list[tuple[Problem, Answer]] | None = None
    for bug in catalogue().values():
        if bug.family != FAMILY or not wrong:
            continue
        function = bug.function()
        explained = sum(_agrees(*each, function) for each in wrong)
        if explained >= MIN_EXPLAINED_SHARE * len(wrong):
            if designed is None:
                trials = designed_trials(Caller(candidate, lambda: True))
                designed = [(t.problem, t.answer) for t in trials if t.answer is not None]
            if not all(_agrees(*each, function) for each in designed):
                continue  # a name that the experiments contradict is not said
            sentence = f"predicts all gradients of {explained} of {len(wrong)} failing cases"
            return (
                Diagnosis(
                    bug=bug.id, title=bug.title, remedy=bug.remedy, explains=explained / len(wrong),
                    confident=len(wrong) > 1, evidence=sentence, seen_in=", ".join(bug.sources),
                ),
            )  # fmt: skip
    return tuple(_measured(candidate, wrong)) if wrong else ()


def _measured(candidate: Candidate, wrong: Sequence[tuple[Problem, Answer]]) -> Iterator[Diagnosis]:
    """Say how the gradients are off in designed calls, or which are in the failing cases."""
    found = gradient_effects(Caller(candidate, lambda: True))
    for each in found:
        yield Diagnosis(
            bug=None, title=in_words(each.text), remedy=each.remedy, explains=1.0,
            evidence="experiments on the target",
        )  # fmt: skip
    if not found:
        problem, answer = wrong[0]
        expected = summed(problem, with_gradients(VJP)()(problem), answer)
        names = [n for n, a in expected.items() if not _alike(problem, answer, n, a)]
        grouped = "with grouped-query heads: " * all(p.case.kv_heads_count > 0 for p, _ in wrong)
        yield Diagnosis(
            bug=None,
            title=f"{grouped}the gradients of {', '.join(names)} are wrong, and right in plain "
            "problems and with one mask alone",
            evidence=f"{len(wrong)} failing cases, such as {problem.case.id}",
        )


def _agrees(problem: Problem, answer: Answer, function: Callable[[Problem], Answer]) -> bool:
    """Return whether the candidate's gradients are those of a function, but for rounding."""
    expected = summed(problem, function(problem), answer)
    return bool(expected) and all(
        _alike(problem, answer, name, array) for name, array in expected.items()
    )


def _alike(problem: Problem, answer: Answer, name: str, expected: Array) -> bool:
    found = (answer.gradients or {}).get(name)
    if found is None or np.shape(found) != expected.shape:
        return False
    with np.errstate(invalid="ignore"):
        difference = np.abs(as_float64(found) - as_float64(expected)).max(initial=0)
    largest = float(np.abs(as_float64(expected)).max(initial=0))
    return bool(difference <= RTOL[problem.case.dtype] * max(1.0, largest))
