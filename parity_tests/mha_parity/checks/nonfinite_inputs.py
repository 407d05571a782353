"""Check that NaN and infinity in a value that a query sees come out again.

Every sum over keys has the value in it: 0 times NaN is NaN. What replaces NaN hides that training
or an input broke; torch lets both through. A target that refuses such inputs is not asked further.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.cases.variants import plain_variant
from mha_parity.core.candidate import REMARK, CandidateError
from mha_parity.core.compare import equal_up_to_rounding
from mha_parity.core.target_facts import takes_one_length

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention

NAME = "non-finite inputs"
CHECKS = {NAME: "NaN and infinity in a value make the rows that see it NaN or infinite, no others"}
SPREADS = "NaN in one sample makes others NaN (torch: that sample alone); reduce along rows alone."
SIZES = (5, 7, 6)  # queries, keys, head_dim
SAMPLE, TOKEN = 0, 0  # token 0 is visible under the causal rule too
POISONS = (np.nan, np.inf)


def check_nonfinite_inputs(bound: Convention, case: Case, number: int) -> Iterator[str]:
    """Yield the findings on a plain problem like ``case``, with NaN or infinity, by the number."""
    sized = plain_variant(case, bound.offer, *SIZES, square=takes_one_length(bound.reasons))
    if sized is None:
        return
    problem = make_problem(sized.replace(gradients="no"))
    poison = POISONS[number % len(POISONS)]
    poisoned = with_token(problem, poison)
    clean = bound(problem).output
    if not np.isfinite(clean).all():  # judged by itself
        return
    with contextlib.suppress(CandidateError):  # refused
        found = bound(poisoned).output
        if found.shape != problem.output_shape:
            return
        yield NAME
        swallowed = elements_reached(problem) & np.isfinite(found)
        if swallowed.any() and _depends(bound, problem, clean):
            yield (
                f"{NAME}: with {poison} in the value of a key, {int(swallowed.sum())} of "
                f"{int(elements_reached(problem).sum())} elements that see it are finite, but "
                "should be NaN or infinite as torch's are; do not replace NaN and infinity."
            )
        yield from _others(clean, found)


def _depends(bound: Convention, problem: Problem, clean: Array) -> bool:
    """Return whether the answer depends on the token at all: other checks see one that is kept."""
    return not np.array_equal(clean, bound(with_token(problem, 2.0)).output)


def _others(clean: Array, found: Array) -> Iterator[str]:
    """Yield what happened to the other samples."""
    others = np.arange(len(found)) != SAMPLE
    expected, actual = clean[others], found[others]
    kept = np.isfinite(actual)
    if not kept.all():
        yield REMARK + SPREADS
    if not equal_up_to_rounding(expected[kept], actual[kept]):
        yield f"{NAME}: other samples than the one with NaN or infinity got another answer."


def with_token(problem: Problem, poison: float) -> Problem:
    """Return the problem with one token of the values replaced; shared arrays stay shared."""
    value = problem.value.copy()
    value[SAMPLE, TOKEN] = poison
    shared = [name for name in ("query", "key") if getattr(problem, name) is problem.value]
    return problem.replace(value=value, **dict.fromkeys(shared, value))


def elements_reached(problem: Problem) -> Array:
    """Return which elements of the output, (N, L, H Dv), see the token in every head."""
    rows = np.zeros(problem.output_shape, dtype=bool)
    hidden = np.asarray(problem.hidden()[SAMPLE, :, :, TOKEN].any(axis=0))
    rows[SAMPLE] = ~hidden[:, None]
    return rows
