"""A plain sequence of the kind of a problem, which checks ask row by row or within windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.cases.generate import make_problem
from mha_parity.cases.variants import plain_variant

if TYPE_CHECKING:
    from mha_parity.core.problem import Problem
    from mha_parity.targets.conventions.base import Convention


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
