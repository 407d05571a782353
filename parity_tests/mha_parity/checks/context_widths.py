"""Check a context that is narrower than the queries, where a constructor has a width for it.

Cases have one width for both. A layer of a narrower context should give what the layer of one width
gives in whose weights of keys and values the missing columns are zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.checks.built_widths import OtherWidth, width_findings
from mha_parity.checks.plain_problems import plain_cross_attention
from mha_parity.targets.convention_base.interpreted_layers import InterpretedLayers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention

NAME = "narrower context"
CHECKS = {NAME: "a context of a width of its own changes the weights of keys and values alone"}
REMEDY = "take the width of the context for the input of k and v alone: heads have that of queries"
QUERIES, KEYS, HEAD_DIM = 5, 7, 4
SELDOM = 4  # where each width is compiled, one of 4 is asked


def check_context_widths(bound: Convention, problem: Problem, number: int) -> Iterator[str]:
    """Yield the finding on a small problem, of the kind of ``problem``, with a narrower context.

    ``number`` is that of the case among those for which this is asked.
    """
    if not isinstance(bound, InterpretedLayers) or not bound.context_width_names:
        return
    if bound.facts.compiles and number % SELDOM != 1:
        return
    whole = plain_cross_attention(bound, problem, QUERIES, KEYS, HEAD_DIM)
    if whole is None or whole.w_k is None:
        return
    width = whole.num_heads * (1 + number % (HEAD_DIM - 1))
    equal = with_columns(whole, width)
    expected = bound(equal).output
    other = OtherWidth("context_widths", bound.context_width_names, width, "contexts")
    of = f"queries of width {whole.query.shape[-1]}"
    asked = with_narrow_context(whole, width)
    yield from width_findings(bound, other, asked, (equal, expected), NAME, of)


def with_columns(problem: Problem, width: int) -> Problem:
    """Return a problem in which keys and values are made of the first columns of the context."""
    changed = {name: getattr(problem, name).copy() for name in ("w_k", "w_v")}
    for array in changed.values():
        array[:, width:] = 0
    return problem.replace(**changed)


def with_narrow_context(problem: Problem, width: int) -> Problem:
    """Return the problem whose context has these columns alone."""
    context = problem.key[..., :width].copy()
    weights = {name: getattr(problem, name)[:, :width].copy() for name in ("w_k", "w_v")}
    return problem.replace(key=context, value=context, **weights)
