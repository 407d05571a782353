"""Family 13: attentions that reuse an earlier mask, or are right for some inputs alone.

Each ``make`` returns a function of problems with a state of its own.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue.plain_attention import Attention, answer_of
from mha_parity.catalogue.registry import Bug, enter, feature_values
from mha_parity.core.problem import WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem

INPUTS = ("query", "key", "value", "key_padding_mask", "attn_mask")


def right(problem: Problem) -> Answer:
    """Return the right answer."""
    return answer_of(Attention, problem)


def stale_mask() -> Callable[[Problem], Answer]:
    """Return a function that uses the first masks that it sees of each shape."""
    memory: dict[object, dict[str, object]] = {}

    def function(problem: Problem) -> Answer:
        own = {name: getattr(problem, name) for name in ("key_padding_mask", "attn_mask")}
        return right(problem.replace(**memory.setdefault(problem_signature(problem), own)))

    return function


def problem_signature(problem: Problem) -> object:
    """Return all shapes and dtypes of a problem, and its features, without its values."""
    arrays = [getattr(problem, name) for name in (*INPUTS, *WEIGHTS)]
    kinds = [None if a is None else (a.shape, a.dtype.str) for a in arrays]
    return (*kinds, problem.case.replace(seed=0).id)


def right_for_some_values() -> Callable[[Problem], Answer]:
    """Return a function that answers half of all inputs, and returns zeros for the others."""

    def function(problem: Problem) -> Answer:
        answer = right(problem)
        known = sum(np.ascontiguousarray(problem.query).tobytes()) % 2 == 0
        return answer if known else dataclasses.replace(answer, output=answer.output * 0)

    return function


def right_for_some_sizes() -> Callable[[Problem], Answer]:
    """Return a function that answers up to seven queries, and returns zeros for more."""

    def function(problem: Problem) -> Answer:
        answer = right(problem)
        known = problem.case.queries < 8
        return answer if known else dataclasses.replace(answer, output=answer.output * 0)

    return function


enter(
    Bug(
        id="stale-mask",
        family=13,
        title="the mask of an earlier call is used again",
        wrong="a mask cached by shape",
        right="the mask of this call",
        visible_when="two calls with like shapes and unlike masks",
        remedy="build the mask anew in each call, or key the cache by what it depends on",
        sources=("facebookresearch/xformers#66", "facebookresearch/xformers#655"),
        needs=feature_values("padding=bool/float/lengths attn=bool2d/float2d/bool3d/float3d"),
        make=stale_mask,
    )
)
enter(
    Bug(
        id="input-keyed-shortcut",
        family=13,
        title="the answer is right for some values and not for others of the same shapes",
        wrong="answers known for visible seeds",
        right="an answer computed from the values",
        visible_when="fresh seeds",
        remedy="compute the answer from the inputs, whatever they are",
        sources=("Infatoshi/kernelbench.com#7",),
        make=right_for_some_values,
    )
)
enter(
    Bug(
        id="size-keyed-shortcut",
        family=13,
        title="the answer is computed for some sizes and made up for the others",
        wrong="if L < 8: attend; else: zeros",
        right="an answer computed for every size",
        visible_when="sizes that were not tried when it was written",
        remedy="compute the answer whatever the sizes are, or raise an error",
        make=right_for_some_sizes,
    )
)
