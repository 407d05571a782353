"""Draw a task's arrays, and choose the part that is judged where the whole takes too long."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.bench.tasks import SEPARABLE
from mha_parity.cases.generate import cotangent
from mha_parity.core.candidate import Answer
from mha_parity.core.case import Case
from mha_parity.core.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.bench.tasks import Task
    from mha_parity.core.arrays import Array
    from mha_parity.core.features import Offer

SEED = 20260
JUDGED_HEADS = 2
JUDGED_SCORES = 1 << 20
LEAST_ROWS = 8
JUDGED_LENGTH = 40
# What a target may lack, and the values that all contenders then get, in order.
OPTIONAL = {
    "out_proj": ("general", "identity"),
    "bias": ("yes", "no"),
    "layout": ("batch_first", "sequence_first", "unbatched"),
}
PROJECTED = {"form": "qkv", "projection": "none", "bias": "no", "out_proj": "identity"}


@dataclass(frozen=True, eq=False, kw_only=True)
class TaskArrays:
    """A task's arrays: torch's state dict, and key_padding_mask (N, L) or None.

    ``rows``: query, key and value, (N, L, E): of a layer one array three times, of projected heads
    three, whose state is empty. An identity ``out_proj`` is written out: every contender multiplies
    by it. ``cotangent``, shaped as the output, is what goes backward.
    """

    task: Task
    case: Case
    rows: tuple[Array, Array, Array]
    state: dict[str, Array]
    key_padding_mask: Array | None
    cotangent: Array | None = None

    @property
    def x(self) -> Array:
        """The rows of the queries, of a layer all rows."""
        return self.rows[0]

    def problem(self) -> Problem:
        """Return the problem; its weights are views of the state's."""
        width = self.task.size.embed_dim
        query, key, value = self.rows
        if not self.state:
            return Problem(
                case=self.case, query=query, key=key, value=value,
                key_padding_mask=self.key_padding_mask,
            )  # fmt: skip
        stacked = self.state["in_proj_weight"]
        arrays = {f"w_{x}": stacked[i * width : (i + 1) * width] for i, x in enumerate("qkv")}
        bias = self.state.get("in_proj_bias")
        if bias is not None:
            arrays |= {f"b_{x}": bias[i * width : (i + 1) * width] for i, x in enumerate("qkv")}
        if self.case.out_proj == "general":
            arrays["w_out"] = self.state["out_proj.weight"]
            if bias is not None:
                arrays["b_out"] = self.state["out_proj.bias"]
        return Problem(
            case=self.case, query=query, key=key, value=value,
            key_padding_mask=self.key_padding_mask, **arrays,  # type: ignore[arg-type]  # names vary
        )  # fmt: skip


def draw_task(task: Task, offer: Offer | None = None) -> TaskArrays:
    """Return the task's arrays, as far as ``offer`` allows with biases and output projection.

    Numbers are standard normal, weights divided by the root of their width. In layers that are
    judged by some heads alone, the output projection keeps the head independence.
    """
    size, dtype = task.size, np.dtype(task.dtype)
    case = case_of(task, offer)
    rng = np.random.Generator(np.random.Philox(SEED))

    def normal(*shape: int) -> Array:
        drawn = rng.standard_normal(shape, dtype=np.float32)
        return drawn.astype(dtype, copy=False)

    shape = (size.batch, size.length, size.embed_dim)
    task_arrays = TaskArrays(
        task=task,
        case=case,
        state=_state(task, case, normal) if task.form == "mha" else {},
        rows=(
            (normal(*shape),) * 3
            if task.form == "mha"
            else (normal(*shape), normal(*shape), normal(*shape))
        ),
        key_padding_mask=(
            np.arange(size.length) >= np.array(task.lengths)[:, None] if task.padded else None
        ),
    )
    if not task.backward:
        return task_arrays
    return replace(task_arrays, cotangent=cotangent(task_arrays.problem()))


def _state(task: Task, case: Case, normal: Callable[..., Array]) -> dict[str, Array]:
    """Return a layer's weights under the names of torch's state dict."""
    width = task.size.embed_dim
    factor = np.asarray(width**-0.5, task.dtype)
    state = {"in_proj_weight": normal(3 * width, width)}
    state["in_proj_weight"] *= factor
    state["out_proj.weight"] = _out_weight(task, case, normal, factor)
    if case.bias == "yes":
        state["in_proj_bias"] = normal(3 * width)
        general = case.out_proj == "general"
        state["out_proj.bias"] = normal(width) if general else np.zeros(width, task.dtype)
    return state


def _out_weight(task: Task, case: Case, normal: Callable[..., Array], factor: Array) -> Array:
    size, dtype = task.size, np.dtype(task.dtype)
    if case.out_proj == "identity":
        return np.eye(size.embed_dim, dtype=dtype)
    if size.parameters < SEPARABLE:
        return normal(size.embed_dim, size.embed_dim) * factor
    weight = np.zeros((size.embed_dim, size.embed_dim), dtype)
    for start in range(0, size.embed_dim, size.head_dim):
        head = slice(start, start + size.head_dim)
        weight[head, head] = normal(size.head_dim, size.head_dim) * size.head_dim**-0.5
    return weight


def case_of(task: Task, offer: Offer | None = None) -> Case:
    """Return the task as a case: the fullest layer that ``offer`` still allows."""
    size = task.size
    chosen = {
        axis: next((v for v in values if offer is None or v in offer[axis]), values[0])
        for axis, values in OPTIONAL.items()
    }
    if task.form == "qkv":
        chosen |= PROJECTED
    return Case(
        seed=SEED, batch=size.batch, queries=size.length, keys=size.length,
        heads_count=size.num_heads, head_dim=size.head_dim, dtype=task.dtype,
        padding="lengths" if task.padded else "none", attn="causal" if task.causal else "none",
        **chosen,  # type: ignore[arg-type]  # axes of text, by name
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPart:
    """The part of an answer that is judged: some query rows, or the first heads; None is all.

    Gradients are judged of whole small tasks alone.
    """

    rows: tuple[int, ...] | None = None
    heads: int | None = None
    gradients: bool = False

    def of(self, answer: Answer, head_dim: int) -> Answer:
        """Return the part of an answer; averaged weights say nothing of some heads alone."""
        output, weights = answer.output, answer.weights
        if self.heads is not None:
            return Answer(output=output[..., : self.heads * head_dim].copy())
        if self.rows is None:
            return answer if self.gradients else replace(answer, gradients=None)
        rows = list(self.rows)
        return Answer(output=output[:, rows], weights=None if weights is None else weights[:, rows])

    def words(self, task: Task) -> str:
        """Say how much is judged."""
        if self.heads is not None:
            return f"{self.heads} of {task.size.num_heads} heads judged"
        if self.rows is not None:
            return f"{len(self.rows)} of {task.size.length} rows judged"
        return "all judged"


def judged_part(task: Task) -> JudgedPart:
    """Return the part of the task that fits the judge's float64 arrays."""
    size = task.size
    if task.parameters >= SEPARABLE:
        return JudgedPart(heads=min(JUDGED_HEADS, size.num_heads))
    if size.scores <= JUDGED_SCORES:
        return JudgedPart(gradients=task == gradient_task(task))
    row = size.scores // size.length
    count = min(max(JUDGED_SCORES // row, LEAST_ROWS), size.length)
    spread = np.linspace(0, size.length - 1, count)
    return JudgedPart(rows=tuple(round(place) for place in spread.tolist()))


def gradient_task(task: Task) -> Task:
    """Return the task whose gradients are judged: of one sample, and of few rows."""
    size = task.size
    return replace(task, size=replace(size, batch=1, length=min(size.length, JUDGED_LENGTH)))


def cut(problem: Problem, part: JudgedPart) -> Problem:
    """Return the problem whose whole answer is that part of the problem's answer."""
    if part.heads is not None:
        return _first_heads(problem, part.heads)
    return problem if part.rows is None else _some_rows(problem, np.array(part.rows))


def _some_rows(problem: Problem, rows: Array) -> Problem:
    """Take fewer queries for the same keys; what causality hides becomes a mask."""
    case = problem.case.replace(inputs="cross", queries=len(rows))
    mask = None
    if problem.is_causal:
        case = case.replace(attn="bool2d")
        mask = np.arange(problem.key.shape[1]) > rows[:, None]
    return problem.replace(case=case, query=problem.query[:, rows], attn_mask=mask)


def _first_heads(problem: Problem, heads: int) -> Problem:
    """Take some heads alone, on copies: the whole layer's gigabytes need not stay for them."""
    width = heads * problem.head_dim
    first = {
        name: array[:width].copy()
        for name in ("w_q", "w_k", "w_v", "b_q", "b_k", "b_v", "b_out")
        if (array := getattr(problem, name)) is not None
    }
    if problem.w_out is not None:
        first["w_out"] = problem.w_out[:width, :width].copy()
    return problem.replace(case=problem.case.replace(heads_count=heads), **first)
