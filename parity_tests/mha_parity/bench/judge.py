"""Nothing is timed before it is judged, by the rule that judges everybody."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mha_parity.bench.posing import cut, judged_part
from mha_parity.gold import Gold, golden, merge, split
from mha_parity.gradients import judge_gradients
from mha_parity.judgement import Severity
from mha_parity.judging import judge
from mha_parity.orders import ORDERS
from mha_parity.yardstick import Yardstick
from mha_torch import plain

if TYPE_CHECKING:
    from mha_parity.bench.posing import Posed
    from mha_parity.candidate import Answer
    from mha_parity.problem import Problem
    from mha_parity.values import Array

LARGE = 1 << 18  # numbers in the projected rows, from which the judge asks the swift orders alone
# The others hold every term of a sum at once, or go through it term by term.
SWIFT = tuple(
    order for order in ORDERS if order.projection == "blas" and order.sums in {"blas", "blocked"}
)


class Finding(NamedTuple):
    """Whether an answer may be timed, else why not; its error in units of what is allowed."""

    status: str
    reason: str
    units: float | None


class Judge:
    """The gold of one task, and who agrees with it."""

    def __init__(self, posed: Posed) -> None:
        self.part = judged_part(posed.task)
        self._problem = cut(posed.problem(), self.part)
        self._backward = posed.task.backward
        self.words = self.part.words(posed.task)

    @cached_property
    def gold(self) -> Gold:
        """The right answer."""
        gold = _of_heads(self._problem) if self.part.heads is not None else golden(self._problem)
        problem = self._problem
        if problem.key.size > LARGE:
            Yardstick.of(problem, gold, SWIFT)
        return gold

    def finding(self, answer: Answer) -> Finding:
        """Return what the judged part of an answer comes to, gradients included if it has any."""
        wanted = "none" if answer.weights is None else "averaged"
        problem = self._problem.replace(case=self._problem.case.replace(weights=wanted))
        judgements = judge(problem, self.gold, answer)
        if self.part.gradients and self._backward:
            judgements += judge_gradients(problem, self.gold, answer)
        units = max((j.error / j.allowed for j in judgements if j.allowed > 0), default=None)
        flawed = next((j for j in judgements if j.severity is not Severity.MATCH), None)
        if flawed is None:
            return Finding("timed", "", units)
        reason = (flawed.detail or flawed.check).splitlines()[0]
        return Finding("wrong" if flawed.severity.fails else flawed.severity.value, reason, units)


def _of_heads(problem: Problem) -> Gold:
    """Return the gold of some heads of a layer too wide for torch in float64: plain NumPy's."""
    rows = problem.query.astype(np.float64)
    q, k, v = (split(_linear(rows, *_weights(problem, x)), problem.num_heads) for x in "qkv")
    hidden = problem.hidden()
    mask = np.where(hidden, -np.inf, 0.0) if hidden.any() else None
    stages = plain.sdpa_stages(q, k, v, attn_mask=mask, fully_masked="nan")
    output = merge(stages.heads)
    if problem.w_out is not None:
        output = _linear(output, problem.w_out, problem.b_out)
    return Gold(
        q=q, k=k, v=v, logits=stages.logits, weights=stages.weights, heads=stages.heads,
        output=output,
    )  # fmt: skip


def _weights(problem: Problem, which: str) -> tuple[Array, Array | None]:
    return getattr(problem, f"w_{which}"), getattr(problem, f"b_{which}")


def _linear(rows: Array, weight: Array, bias: Array | None) -> Array:
    product = rows @ weight.astype(np.float64).T
    return product if bias is None else product + bias
