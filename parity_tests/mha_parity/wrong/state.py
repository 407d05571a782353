"""Family 13: attentions that remember, roll dice, write into their inputs or do not compute.

Each ``make`` returns a function of problems with a memory of its own.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.wrong.bug import Bug, add, features
from mha_parity.wrong.plain import Attention, attend

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.candidate import Answer
    from mha_parity.problem import Problem
    from mha_parity.values import Array

INPUTS = ("query", "key", "value", "key_padding_mask", "attn_mask")
WEIGHTS = ("w_q", "w_k", "w_v", "b_q", "b_k", "b_v", "bias_k", "bias_v", "w_out", "b_out")


def right(problem: Problem) -> Answer:
    """Return the right answer."""
    return attend(Attention, problem)


def fresh(problem: Problem) -> Problem:
    """Return the problem with copies of all inputs; what was one object stays one object."""
    copies: dict[int, Array] = {}
    changes: dict[str, object] = {}
    for name in INPUTS:
        array = getattr(problem, name)
        if array is not None:
            changes[name] = copies.setdefault(id(array), array.copy())
    return problem.replace(**changes)


def mutating() -> Callable[[Problem], Answer]:
    """Scale the query in place; watched, as an adapter watches its arguments."""

    def function(problem: Problem) -> Answer:
        given = fresh(problem)
        answer = right(given)
        query: Array = given.query
        query *= query.dtype.type(0.5)
        if np.array_equal(query, problem.query, equal_nan=True):
            return answer
        note = "inputs unchanged: the target wrote into `query`; it should work on a copy"
        return dataclasses.replace(answer, notes=(note,))

    return function


def remembering(
    names: tuple[str, ...], key: Callable[[Problem], object]
) -> Callable[[], Callable[[Problem], Answer]]:
    """Return what makes a function that uses the first ``names`` seen under each key."""

    def make() -> Callable[[Problem], Answer]:
        memory: dict[object, dict[str, object]] = {}

        def function(problem: Problem) -> Answer:
            own = {name: getattr(problem, name) for name in names}
            return right(problem.replace(**memory.setdefault(key(problem), own)))

        return function

    return make


def shapes(problem: Problem) -> object:
    """Return the shapes and kinds of everything in the problem, without its values."""
    arrays = [getattr(problem, name) for name in (*INPUTS, *WEIGHTS)]
    kinds = [None if a is None else (a.shape, a.dtype.str) for a in arrays]
    return (*kinds, problem.case.replace(seed=0).id)


def widths(problem: Problem) -> object:
    """Return the shapes and dtype of the weights: all that a stale copy must fit."""
    arrays = [getattr(problem, name) for name in WEIGHTS]
    return problem.case.dtype, *(None if a is None else a.shape for a in arrays)


def caching() -> Callable[[Problem], Answer]:
    """Answer every problem like the first one of its shapes."""
    memory: dict[object, Answer] = {}

    def function(problem: Problem) -> Answer:
        return memory.setdefault(shapes(problem), right(problem))

    return function


def dropping() -> Callable[[Problem], Answer]:
    """Drop a tenth of the weights in every call."""
    chance = np.random.default_rng(0)

    class Dropping(Attention):
        """Dropout at work."""

        def softmax(self, scores: Array) -> Array:
            """Drop and rescale."""
            weights = super().softmax(scores)
            kept = chance.random(weights.shape) >= 0.1
            return np.where(kept, weights / self.work.type(0.9), self.work.type(0))

    return lambda problem: attend(Dropping, problem)


def asking_torch() -> Callable[[Problem], Answer]:
    """Let torch compute the answer, and note it as the watch over forbidden modules does."""

    def function(problem: Problem) -> Answer:
        note = "forbidden modules: the answer was computed by torch, which was not to be used."
        return dataclasses.replace(right(problem), notes=(note,))

    return function


def keyed() -> Callable[[Problem], Answer]:
    """Know the answers to half of all inputs, and return zeros for the others."""

    def function(problem: Problem) -> Answer:
        answer = right(problem)
        known = sum(np.ascontiguousarray(problem.query).tobytes()) % 2 == 0
        return answer if known else dataclasses.replace(answer, output=answer.output * 0)

    return function


def sized() -> Callable[[Problem], Answer]:
    """Answer up to seven queries, and return zeros for more."""

    def function(problem: Problem) -> Answer:
        answer = right(problem)
        known = problem.case.queries < 8
        return answer if known else dataclasses.replace(answer, output=answer.output * 0)

    return function


add(
    Bug(
        id="mutates-inputs",
        family=13,
        title="the caller's arrays are changed in place",
        wrong="q *= scale on a view of the caller's array",
        right="q = q * scale",
        visible_when="a second call with the same arrays, or inputs compared afterwards",
        remedy="work on copies: no in-place operator on an argument or a view of one",
        sources=("ScalingIntelligence/KernelBench#82",),
        make=mutating,
    )
)
add(
    Bug(
        id="stale-mask",
        family=13,
        title="the mask of an earlier call is used again",
        wrong="a mask cached by shape",
        right="the mask of this call",
        visible_when="two calls with like shapes and unlike masks",
        remedy="build the mask anew in each call, or key the cache by what it depends on",
        sources=("facebookresearch/xformers#66", "facebookresearch/xformers#655"),
        needs=features("padding=bool/float/lengths attn=bool2d/float2d/bool3d/float3d"),
        make=remembering(("key_padding_mask", "attn_mask"), shapes),
    )
)
add(
    Bug(
        id="stale-weights",
        family=13,
        title="weights copied once are used for ever",
        wrong="W transposed or packed at construction",
        right="the weights as they are now",
        visible_when="weights changed after construction",
        remedy="read the weights in each call, or copy them again when they are set",
        needs=features("form=mha"),
        make=remembering(WEIGHTS, widths),
    )
)
add(
    Bug(
        id="cached-answer",
        family=13,
        title="an earlier answer is given again",
        wrong="results cached by shape or address",
        right="an answer computed from this call's values",
        visible_when="a second call of the same shapes",
        remedy="drop the cache, or key it by the values",
        make=caching,
    )
)
add(
    Bug(
        id="dropout-in-eval",
        family=13,
        title="dropout is at work though it should be off",
        wrong="dropout(P) in evaluation",
        right="P",
        visible_when="always: two identical calls differ",
        remedy="apply dropout in training alone; in torch dropout_p=0.0 if not self.training",
        sources=(
            "karpathy/nanoGPT#240", "pytorch/pytorch#124464",
            "huggingface/pytorch-image-models#1978", "wenet-e2e/wenet#2699",
        ),
        make=dropping,
    )
)  # fmt: skip
add(
    Bug(
        id="input-keyed-shortcut",
        family=13,
        title="the answer is right for some values and not for others of the same shapes",
        wrong="answers known for visible seeds",
        right="an answer computed from the values",
        visible_when="fresh seeds",
        remedy="compute the answer from the inputs, whatever they are",
        sources=("Infatoshi/kernelbench.com#7",),
        make=keyed,
    )
)
add(
    Bug(
        id="size-keyed-shortcut",
        family=13,
        title="the answer is computed for some sizes and made up for the others",
        wrong="if L < 8: attend; else: zeros",
        right="an answer computed for every size",
        visible_when="sizes that were not tried when it was written",
        remedy="compute the answer whatever the sizes are, or raise an error",
        make=sized,
    )
)
add(
    Bug(
        id="torch-behind",
        family=13,
        title="the answer is torch's own",
        wrong="torch.nn.functional.scaled_dot_product_attention(...) behind the scenes",
        right="an answer that the candidate computes itself",
        visible_when="--forbid torch",
        remedy="compute the answer without the module that is the judge",
        make=asking_torch,
    )
)
