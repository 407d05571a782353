"""Plain problems of the kind of one that is drawn: sequences, and queries of other keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.cases.generate import make_problem
from mha_parity.cases.variants import plain_variant
from mha_parity.core.target_facts import takes_one_length

if TYPE_CHECKING:
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention


def plain_cross_attention(
    bound: Convention, problem: Problem, queries: int, keys: int, head_dim: int, **masks: str
) -> Problem | None:
    """Return a plain problem whose keys and values are of one array; None where there is none.

    ``masks`` are values of the axes of masks.
    """
    if "cross" not in bound.offer["inputs"] or bound.own_weights is not None:
        return None
    projection = problem.case.projection
    alike = problem.case.replace(
        inputs="cross", projection="packed" if projection == "separate" else projection,
        kdim=0, vdim=0, weights="none", gradients="no", layout=bound.plain_case().layout,
    )  # fmt: skip
    offer = {**bound.offer, "inputs": ("cross",)}
    square = takes_one_length(bound.facts.reasons)
    small = plain_variant(alike, offer, queries, keys, head_dim, square=square)
    return None if small is None else make_problem(small.replace(**masks))


def plain_sequence(
    bound: Convention, problem: Problem, length: int, head_dim: int, *, causal: bool, **masks: str
) -> Problem | None:
    """Return a plain problem of self-attention of several rows; None where there is none.

    Its layout is the one that small calls were made in: a cache is joined along the axis that the
    rows have in it, which a layer need not know of other layouts. A target that has weights of its
    own is asked with these, in its sizes. ``masks`` are values of the axes of masks.
    """
    case, own = problem.case, bound.own_weights
    if "self" not in bound.offer["inputs"]:
        return None
    # Separate projections are of inputs of unlike widths.
    projection = "packed" if case.projection == "separate" else case.projection
    alike = case.replace(
        inputs="self", projection=projection, kdim=0, vdim=0, weights="none", gradients="no",
        layout=bound.plain_case().layout,
    )  # fmt: skip
    offer = {**bound.offer, "inputs": ("self",)}
    small = plain_variant(alike, offer, length, length, head_dim, square=True)
    if small is None or (own is not None and own.length(length) < length):
        return None
    small = small.replace(**({"attn": "causal"} if causal else {}), **masks)
    return make_problem(small) if own is None else own.problem(make_problem(own.case(small)))
