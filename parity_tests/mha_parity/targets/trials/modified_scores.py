"""Whether a target is attention but for a function that bends its scores, as a cap of tanh does.

A smooth bend vanishes to first order where scores are small, and sees nothing but the score: a
query times a number and a key divided by it are answered as before. Activated or turned
projections, or positions, show in one of the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.interpretations.try_interpretations import attention_in_float64, is_rounding

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem

# What scores are multiplied by: a bend then departs by the square of it, rounding in float32 by an
# eighth of a thousandth, of what the scores move the output by.
SMALL_SCORES = 2.0**-10
MOVED = 16.0  # a power of two: no product is rounded otherwise


def bends_scores(ask: Callable[[Problem], Array], problem: Problem) -> bool:
    """Return whether outputs are those of attention to small scores, and only these decide.

    ``problem`` has no masks, and its output is another than that of attention. False where query
    and key cannot be given alone, and in 16 bits.
    """
    shared = problem.w_q is None and problem.case.inputs == "self"
    if shared or problem.dtype.itemsize < 4 or problem.case.kv_heads != "equal":
        return False
    small = _scaled(problem, SMALL_SCORES, 1.0)
    try:
        shown = ask(small).astype(np.float64)
        plain, moved = ask(problem), ask(_scaled(problem, MOVED, 1 / MOVED))
    except CandidateError:
        return False
    if shown.shape != problem.output_shape or not is_rounding(moved, plain.astype(np.float64)):
        return False
    return any(
        _moves_alike(shown, small, problem, causal=causal)
        for causal in (False, True)[: 1 + (problem.case.queries == problem.case.keys)]
    )


def _moves_alike(shown: Array, small: Problem, problem: Problem, *, causal: bool) -> bool:
    """Return whether small scores move the output of equal weights as they move attention's."""
    equal = attention_in_float64(_scaled(problem, 0.0, 1.0), causal=causal)
    expected = attention_in_float64(small, causal=causal) - equal
    return bool(np.abs(shown - equal - expected).max() <= SMALL_SCORES * np.abs(expected).max())


def _scaled(problem: Problem, of_query: float, of_key: float) -> Problem:
    """Return the problem with its projected queries and keys multiplied."""
    factors = {"q": of_query, "k": of_key}
    named = {"q": "query", "k": "key"} if problem.w_q is None else {}
    arrays = (
        {named[part]: factor for part, factor in factors.items()}
        if named
        else {f"{kind}_{part}": factor for kind in "wb" for part, factor in factors.items()}
    )
    return problem.replace(
        **{
            name: (array * factor).astype(array.dtype)
            for name, factor in arrays.items()
            if (array := getattr(problem, name)) is not None
        }
    )
