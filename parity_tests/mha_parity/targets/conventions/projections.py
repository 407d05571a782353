"""``f(X, W_q, W_k, W_v)`` -> (Q, K, V): the first third of an attention, judged as part of one.

What it returns is completed here to a whole attention, in more digits than the problem has, and
that is what is judged. A key of zeros (``zero_attn``) makes the completion sensitive to what a
softmax alone would not notice: a constant added to the logits of a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.arrays import merge_heads, softmax, split_heads
from mha_parity.core.candidate import Answer, CandidateError
from mha_parity.core.features import PLAIN
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.calls.canonical_layout import canonical
from mha_parity.targets.conventions.functions import XWeights, layout_probes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import FeatureProbe


class ProjectionFunction(XWeights):
    """``f(X, W_q, W_k, W_v)`` -> (Q, K, V)."""

    name = "projections"
    call = "f(X, W_q, W_k, W_v) -> (Q, K, V); weights applied as X @ W"

    def claims(self) -> Offer:
        """Any number of heads, since they come later; weights of the completed attention."""
        return super().claims() | {
            "heads": ("one", "many"),
            "zero_attn": ("no", "yes"),
            "weights": ("none", "per_head"),
        }

    def probes(self) -> Iterator[FeatureProbe]:
        """Batches and empty axes."""
        yield from layout_probes(self.trial_case())

    def plain_case(self) -> Case:
        """As for the whole attention, with its zero key."""
        return super().plain_case().replace(zero_attn=PLAIN["zero_attn"])

    def answer(self, problem: Problem, result: Any) -> Answer:
        """Complete Q, K and V to an attention.

        Raises
        ------
        CandidateError
            There are not three arrays, or they have not the shapes and the dtype of projections.

        """
        if not isinstance(result, tuple | list) or len(result) != 3:
            count = f"{len(result)} values" if isinstance(result, tuple | list) else "one value"
            raise CandidateError("structure", f"returned {count}, but should return (Q, K, V).")
        q, k, v = (
            self._projected(problem, name, array)
            for name, array in zip(("Q", "K", "V"), result, strict=True)
        )
        output, weights = attention_on_projections(problem, q, k, v)
        wants = problem.case.weights != "none"
        return Answer(output=output, weights=weights if wants else None)

    def _projected(self, problem: Problem, name: str, value: Any) -> Array:
        array = canonical(problem, to_numpy(value, name))
        shape = (*problem.query.shape[:2], problem.query.shape[2])
        if array.shape != shape or array.dtype != problem.dtype:
            raise CandidateError(
                "structure",
                f"{name} has shape {array.shape} and dtype {array.dtype}, but should have {shape} "
                f"and {problem.dtype}.",
            )
        return array


def attention_on_projections(problem: Problem, q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """Return output (N, L, E) and weights (N, H, L, S') of attention on projections, rounded."""
    heads = [split_heads(array.astype(np.longdouble), problem.num_heads) for array in (q, k, v)]
    if problem.add_zero_attn:
        heads[1:] = [np.pad(array, ((0, 0), (0, 0), (0, 1), (0, 0))) for array in heads[1:]]
    logits = heads[0] @ heads[1].swapaxes(-1, -2) * np.longdouble(problem.scale)
    weights = softmax(logits)
    output = merge_heads(weights @ heads[2])
    return output.astype(problem.dtype), weights.astype(problem.dtype)
