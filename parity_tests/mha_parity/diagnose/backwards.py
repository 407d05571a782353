"""Names for gradients that are wrong behind an output that is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.evidence import as_float
from mha_parity.pullback import Pull
from mha_parity.verdict import Diagnosis
from mha_parity.wrong import catalogue
from mha_parity.wrong.gradients import backwards

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mha_parity.candidate import Answer
    from mha_parity.diagnose.evidence import Observation
    from mha_parity.problem import Problem
    from mha_parity.values import Array

FAMILY = 12
# Gradients are sums over whole problems: half of the digits are left to their rounding.
NEAR = {"float64": 2.0**-26, "float32": 2.0**-11, "float16": 2.0**-5, "bfloat16": 2.0**-4}


def named(seen: Sequence[Observation]) -> tuple[Diagnosis, ...]:
    """Return the wrong ways back that give the gradients seen, the one that explains most first."""
    asked = [each for each in seen if each.answer is not None and each.answer.gradients]
    wrong = [each for each in asked if not _agrees(each, backwards(Pull)())]
    told = []
    for bug in catalogue().values():
        if bug.family != FAMILY or not wrong:
            continue
        explained = sum(_agrees(each, bug.function()) for each in wrong)
        if explained:
            told.append((explained, bug))
    told.sort(key=lambda each: -each[0])
    return tuple(
        Diagnosis(
            bug=bug.id,
            title=bug.title,
            remedy=bug.remedy,
            explains=explained / len(wrong),
            confident=explained == len(wrong) and len(wrong) > 1,
            evidence=f"predicts {explained} of {len(wrong)} wrong gradients",
            source=", ".join(bug.sources),
        )
        for explained, bug in told[:1]
    )


def _agrees(seen: Observation, function: Callable[[Problem], Answer]) -> bool:
    """Return whether the candidate's gradients are those of a function, but for rounding."""
    found = (seen.answer and seen.answer.gradients) or {}
    due = _summed(seen.problem, function(seen.problem).gradients or {}, found)
    near = NEAR[seen.problem.case.dtype]
    return bool(due) and all(
        name in found and _near(as_float(found[name]), as_float(array), near)
        for name, array in due.items()
    )


def _near(found: Array, due: Array, near: float) -> bool:
    if found.shape != due.shape:
        return False
    with np.errstate(invalid="ignore"):
        apart = np.abs(found - due).max(initial=0)
    return bool(apart <= near * max(1.0, float(np.abs(due).max(initial=0))))


def _summed(
    problem: Problem, due: Mapping[str, Array], found: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the gradients due, with one sum where one array went in under several names."""
    summed = dict(due)
    for name in ("value", "key"):
        for first in ("query", "key"):
            same = getattr(problem, name) is getattr(problem, first)
            if same and first != name and name in summed and name not in found:
                summed[first] = summed[first] + summed.pop(name)
    return summed
