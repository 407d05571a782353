"""Family 12: the forward pass is right, and the backward pass is not."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import cotangent
from mha_parity.catalogue.plain_attention import Attention, answer_of
from mha_parity.catalogue.registry import Bug, enter, feature_values
from mha_parity.oracle.eval_orders import EVAL_ORDERS, Prepared
from mha_parity.oracle.eval_orders_vjp import VJP

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem

BLOCK = 16


def with_gradients(kind: type[VJP]) -> Callable[[], Callable[[Problem], Answer]]:
    """Return a function that makes the right attention with the gradients of a backward pass."""

    def function(problem: Problem) -> Answer:
        answer = answer_of(Attention, problem)
        nothing = not answer.output.size or not problem.weights_shape[-1]
        if problem.case.gradients == "no" or nothing:
            return answer
        with np.errstate(all="ignore"):
            found = kind(Prepared(problem), EVAL_ORDERS[0]).gradients(cotangent(problem))
        summed = {name: problem.sum_shared_heads(name, each) for name, each in found.items()}
        kept = {name: array.astype(problem.dtype) for name, array in summed.items()}
        return dataclasses.replace(answer, gradients=kept)

    return lambda: function


class NoScale(VJP):
    """The scale is left out of the gradients of q and k."""

    def scale(self) -> float:
        """Return 1."""
        return 1.0


class PaddedScale(VJP):
    """The scale of the head width rounded up to a block."""

    def scale(self) -> float:
        """Round the width up."""
        if self.problem.given_scale is not None:
            return self.problem.scale
        return 1 / math.sqrt(-(-self.problem.head_dim // BLOCK) * BLOCK)


class Diagonal(VJP):
    """The softmax as if each weight depended on its own score alone."""

    def subtracted_row_term(self, d_p: Array, d_heads: Array) -> Array:  # noqa: ARG002  (nothing is subtracted)
        """Return 0."""
        return np.zeros((*d_p.shape[:-1], 1), dtype=d_p.dtype)


def _enter(bug_id: str, kind: type[VJP], title: str, **texts: str) -> None:
    sources = tuple(texts.pop("sources", "").split())
    enter(
        Bug(
            id=bug_id, family=12, title=title, sources=sources, make=with_gradients(kind),
            needs=feature_values("gradients=yes"), **texts,  # type: ignore[arg-type]  # the texts of a bug
        )
    )  # fmt: skip


_enter(
    "grad-no-scale", NoScale,
    "the gradients of q and k lack the scale",
    wrong="dQ = dS K, dK = dS^T Q",
    right="dQ = scale dS K, dK = scale dS^T Q",
    visible_when="gradients; the output is right",
    remedy="multiply dS by the scale before it goes back to q and k",
    sources="ooples/AiDotNet.Tensors#49",
)  # fmt: skip
_enter(
    "grad-padded-scale", PaddedScale,
    "the backward pass scales by the head width rounded up to a block",
    wrong="1/sqrt(D rounded up to 16) in the backward pass, 1/sqrt(D) in the forward",
    right="the same scale both ways",
    visible_when="gradients where D is not a multiple of 16",
    remedy="hand the scale of the forward pass to the backward one",
    sources="tile-ai/tilelang-ascend#1670",
)  # fmt: skip
_enter(
    "grad-softmax-diag", Diagonal,
    "the gradient of the softmax leaves out the sum over the row",
    wrong="dS = P * dP",
    right="dS = P * (dP - sum(P * dP))",
    visible_when="gradients; the output is right",
    remedy="subtract from dP the sum of P * dP over the keys, row by row",
)  # fmt: skip


class NanRows(VJP):
    """0 times NaN in the backward pass of rows that see no key."""

    def subtracted_row_term(self, d_p: Array, d_heads: Array) -> Array:
        """Let the rows' NaN through."""
        unseen = np.asarray(self.problem.masked_rows())[..., None]
        return np.where(unseen, np.nan, super().subtracted_row_term(d_p, d_heads))


_enter(
    "grad-nan-masked-row", NanRows,
    "a row that sees no key turns the gradients of all weights NaN",
    wrong="dS = P * (dP - sum(P * dP)) with P = NaN in that row",
    right="such a row has no gradient to give: 0 for it, and numbers for all others",
    visible_when="gradients with a fully masked row anywhere, even one that no loss looks at",
    remedy="set the weights of such rows to 0 before they go back",
    sources="pytorch/pytorch#41508 pytorch/pytorch#189045",
    beyond="torch's own gradients do it, so it is named in the report and not failed",
)  # fmt: skip
