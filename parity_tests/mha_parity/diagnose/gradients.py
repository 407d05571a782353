"""Name wrong gradients of a right output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue import catalogue
from mha_parity.catalogue.gradients import with_gradients
from mha_parity.core.case import plain_distance
from mha_parity.core.verdict import Diagnosis
from mha_parity.diagnose.evidence import as_float64
from mha_parity.diagnose.probes import named_sizes
from mha_parity.oracle.eval_orders_vjp import VJP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem

FAMILY = 12
MEASURED = 5  # failing cases that a formula for a factor has to fit: one alone may do so by chance
MOST = 0.9  # of the failing cases a name explains, at least: half precision rounds a lot away
# Gradients are sums over whole problems: half of the digits are left to their rounding.
RTOL = {"float64": 2.0**-26, "float32": 2.0**-11, "float16": 2.0**-5, "bfloat16": 2.0**-4}


def name_wrong_gradients(failures: Sequence[tuple[Problem, Answer]]) -> tuple[Diagnosis, ...]:
    """Return the wrong backward pass that gives all gradients seen, or the factor on each."""
    # Rows that see no key make all gradients NaN in torch, and may in a candidate.
    clean = [each for each in failures if each[1].gradients and not each[0].masked_rows().any()]
    wrong = [each for each in clean if not _agrees(*each, _right)]
    for bug in catalogue().values():
        if bug.family != FAMILY or not wrong:
            continue
        function = bug.function()
        explained = sum(_agrees(*each, function) for each in wrong)
        if explained >= MOST * len(wrong):
            sentence = f"predicts all gradients of {explained} of {len(wrong)} failing cases"
            return (
                Diagnosis(
                    bug=bug.id, title=bug.title, remedy=bug.remedy, explains=explained / len(wrong),
                    confident=len(wrong) > 1, evidence=sentence, source=", ".join(bug.sources),
                ),
            )  # fmt: skip
    return tuple(_measured(sorted(wrong, key=_oddness)[:MEASURED])) if wrong else ()


def _oddness(each: tuple[Problem, Answer]) -> tuple[bool, float, int]:
    """Return what a measurement is better without: sizes that coincide, and coarse dtypes."""
    case = each[0].case
    return case.heads_count in {1, case.head_dim}, RTOL[case.dtype], plain_distance(case)


def _right(problem: Problem) -> Answer:
    return with_gradients(VJP)()(problem)


def _measured(wrong: Sequence[tuple[Problem, Answer]]) -> Iterator[Diagnosis]:
    """Say of each wrong gradient how many times the right one it is, if it is a multiple."""
    first, *others = ({name: sentence for name, *sentence in _factors(*each)} for each in wrong)
    for name, (sentence, formulas) in first.items():
        shared = [
            each
            for each in formulas
            if all(each in other.get(name, ("", []))[1] for other in others)
        ]
        formula = f"; {shared[0]}" if shared and others else ""
        yield Diagnosis(
            bug=None,
            title=f"gradient of {name} {sentence}{formula}",
            evidence=f"measured on {wrong[0][0].case.id}",
        )


def _factors(problem: Problem, answer: Answer) -> Iterator[tuple[str, str, list[str]]]:
    """Yield name, words and formulas of the factor of each wrong gradient."""
    found = answer.gradients or {}
    expected = _summed(problem, _right(problem).gradients or {}, found)
    rtol = RTOL[problem.case.dtype]
    for name, array in expected.items():
        if name in found and not _close(as_float64(found[name]), as_float64(array), rtol):
            yield name, *_multiple(as_float64(found[name]), as_float64(array), problem)


def _multiple(found: Array, expected: Array, problem: Problem) -> tuple[str, list[str]]:
    """Return the factor in words, and the formulas in the sizes that give it."""
    if found.shape != expected.shape:
        return f"has shape {found.shape}, but should have {expected.shape}", []
    factor = float((found * expected).sum() / max(float((expected * expected).sum()), 1e-300))
    rtol = RTOL[problem.case.dtype]
    if not _close(found, factor * expected, rtol):
        return "is no multiple of the expected one", []
    formulas = [] if abs(abs(factor) - 1) < rtol else named_sizes(problem, abs(factor))
    return f"is {factor:.4g} times the expected one", [
        each.partition(" = ")[2] for each in formulas
    ]


def _agrees(problem: Problem, answer: Answer, function: Callable[[Problem], Answer]) -> bool:
    """Return whether the candidate's gradients are those of a function, but for rounding."""
    found = answer.gradients or {}
    expected = _summed(problem, function(problem).gradients or {}, found)
    rtol = RTOL[problem.case.dtype]
    return bool(expected) and all(
        name in found and _close(as_float64(found[name]), as_float64(array), rtol)
        for name, array in expected.items()
    )


def _close(found: Array, expected: Array, rtol: float) -> bool:
    if found.shape != expected.shape:
        return False
    with np.errstate(invalid="ignore"):
        difference = np.abs(found - expected).max(initial=0)
    return bool(difference <= rtol * max(1.0, float(np.abs(expected).max(initial=0))))


def _summed(
    problem: Problem, expected: Mapping[str, Array], found: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the gradients due, with one sum where one array went in under several names."""
    summed = dict(expected)
    for name in ("value", "key"):
        for first in ("query", "key"):
            same = getattr(problem, name) is getattr(problem, first)
            if same and first != name and name in summed and name not in found:
                summed[first] = summed[first] + summed.pop(name)
    return summed
