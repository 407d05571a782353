"""How near a graph comes to attention on a plain problem, and which graphs are refused."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mha_parity.core.candidate import CandidateError, TargetError
from mha_parity.targets.convention_base.always_causal import CAUSAL, HIDES, hides_the_future
from mha_parity.targets.interpretations.try_interpretations import (
    MIN_CORRELATION,
    attention_in_float64,
    is_rounding,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention


class GraphFit(NamedTuple):
    """How an answer compares with attention; the greatest is the nearest.

    ``residual``: its input is added to it.
    """

    exact: bool
    correlation: float
    causal: bool = False
    residual: bool = False


def graph_fit(convention: Convention, problem: Problem) -> GraphFit:
    """Return how the answer to a plain problem compares with attention, causal or not.

    Raises
    ------
    CandidateError
        The graph raised.

    """
    output = convention(problem).output
    if output.shape != problem.output_shape:
        return GraphFit(exact=False, correlation=-1.0)
    found = []
    with np.errstate(invalid="ignore"):
        for causal in (False, True):
            expected = attention_in_float64(problem, causal=causal)
            residual = problem.query.shape == output.shape and is_rounding(
                output - problem.query, expected
            )
            correlation = float(np.nan_to_num(np.corrcoef(output.ravel(), expected.ravel())[0, 1]))
            found.append(GraphFit(is_rounding(output, expected), correlation, causal, residual))
    return max(found, key=lambda each: (each.exact, each.residual, each.correlation))


def settle_causal(convention: Convention, problem: Problem, fit: GraphFit) -> None:
    """Judge a graph that hides the future by itself as causal attention."""
    convention.hides_future = fit.exact and fit.causal
    if not fit.exact:
        with suppress(CandidateError):
            convention.hides_future = hides_the_future(convention, problem)
    if convention.hides_future:
        convention.offer = convention.offer | {"attn": ("causal",)}
        convention.reasons["attn", "none"] = HIDES
        convention.remarks = (*convention.remarks, CAUSAL)


def refuse_unlike(
    convention: Convention, fit: GraphFit, *, named: bool = False, left_over: Sequence[str] = ()
) -> None:
    """Refuse a graph that may be something else than one attention.

    ``named``: its weights are named, so that nothing but a bug keeps it away from attention.

    Raises
    ------
    TargetError
        It adds its input, has weights of more, or no reading of it comes near attention.

    """
    if fit.exact:
        return
    why = ""
    if fit.residual:
        why = "adds its input to the output"
    elif left_over:
        listed = ", ".join(left_over[:3]) + ", ..." * (len(left_over) > 3)
        why = f"does not compute attention and has {listed} besides its projections"
    elif fit.correlation < MIN_CORRELATION and not named:
        why = f"correlates with attention by {fit.correlation:.2f} in its nearest reading"
    if why:
        raise TargetError(
            f"got {convention.name}, which {why}, but should be one attention alone; export that, "
            "or judge an adapter that calls the model."
        )
