"""Nothing is timed before it is judged, by the rule that judges everybody."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mha_parity.bench.task_arrays import cut, judged_part
from mha_parity.core.arrays import merge_heads, split_heads
from mha_parity.core.check_result import Severity
from mha_parity.judging.gradients import judge_gradients
from mha_parity.judging.output import DEFAULT_SETTINGS, JudgeSettings, judge_answer
from mha_parity.oracle.eval_orders import EVAL_ORDERS
from mha_parity.oracle.reference import Reference, reference_answer
from mha_torch import plain

if TYPE_CHECKING:
    from mha_parity.bench.task_arrays import TaskArrays
    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem

LARGE = 1 << 18  # numbers in the projected rows, from which the judge asks the swift orders alone
# The others hold every term of a sum at once, or go through it term by term.
FAST_ORDERS = tuple(
    order
    for order in EVAL_ORDERS
    if order.projection == "blas" and order.sums in {"blas", "blocked"}
)


class JudgedAnswer(NamedTuple):
    """Whether an answer may be timed, else why not; its error in units of what is allowed."""

    status: str
    reason: str
    units: float | None


class Judge:
    """The reference of one task, and who agrees with it."""

    def __init__(self, task_arrays: TaskArrays) -> None:
        self.part = judged_part(task_arrays.task)
        self._problem = cut(task_arrays.problem(), self.part)
        self._backward = task_arrays.task.backward
        large = self._problem.key.size > LARGE
        self._settings = JudgeSettings(orders=FAST_ORDERS) if large else DEFAULT_SETTINGS
        self.words = self.part.words(task_arrays.task)

    @cached_property
    def reference(self) -> Reference:
        """The right answer."""
        if self.part.heads is not None:
            return _of_heads(self._problem)
        return reference_answer(self._problem)

    def finding(self, answer: Answer) -> JudgedAnswer:
        """Return what the judged part of an answer comes to, gradients included if it has any."""
        wanted = "none" if answer.weights is None else "averaged"
        problem = self._problem.replace(case=self._problem.case.replace(weights=wanted))
        check_results = judge_answer(problem, self.reference, answer, self._settings)
        if self.part.gradients and self._backward:
            check_results += judge_gradients(problem, self.reference, answer)
        units = max((j.error / j.allowed for j in check_results if j.allowed > 0), default=None)
        flawed = next((j for j in check_results if j.severity is not Severity.MATCH), None)
        if flawed is None:
            return JudgedAnswer("timed", "", units)
        reason = (flawed.detail or flawed.check).splitlines()[0]
        return JudgedAnswer(
            "wrong" if flawed.severity.fails else flawed.severity.value, reason, units
        )


def _of_heads(problem: Problem) -> Reference:
    """Return plain NumPy's reference of some heads, where torch in float64 takes too long."""
    rows = problem.query.astype(np.float64)
    q, k, v = (split_heads(_linear(rows, *_weights(problem, x)), problem.num_heads) for x in "qkv")
    hidden = problem.hidden()
    mask = np.where(hidden, -np.inf, 0.0) if hidden.any() else None
    stages = plain.sdpa_stages(q, k, v, attn_mask=mask, fully_masked="nan")
    output = merge_heads(stages.heads)
    if problem.w_out is not None:
        output = _linear(output, problem.w_out, problem.b_out)
    return Reference(
        q=q, k=k, v=v, logits=stages.logits, weights=stages.weights, heads=stages.heads,
        output=output,
    )  # fmt: skip


def _weights(problem: Problem, which: str) -> tuple[Array, Array | None]:
    return getattr(problem, f"w_{which}"), getattr(problem, f"b_{which}")


def _linear(rows: Array, weight: Array, bias: Array | None) -> Array:
    product = rows @ weight.astype(np.float64).T
    return product if bias is None else product + bias
