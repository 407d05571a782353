"""Nothing is timed before it is judged: also where only a part of a large answer is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mha_parity.bench import array_files, task_arrays
from mha_parity.bench import judged_first as judging
from mha_parity.bench.contenders import CONTENDERS, KERNELS, Contender, reason_left_out
from mha_parity.bench.judged_first import Judge
from mha_parity.bench.layer_calls import build_workload
from mha_parity.bench.task_arrays import JudgedPart, cut, draw_task, gradient_task, judged_part
from mha_parity.bench.tasks import Size, Task, tasks
from mha_parity.core.candidate import Answer
from mha_parity.oracle.reference import reference_answer

SIZE = Size(2, 11, 12, 4)
BOTH = (False, True)
TASKS = tasks([SIZE], BOTH, BOTH, BOTH)
contenders = pytest.mark.parametrize("contender", CONTENDERS, ids=lambda each: each.name)
kernels = pytest.mark.parametrize("kernel", KERNELS, ids=lambda each: each.name)
EPS = np.finfo(np.float64).eps


def answer_of(contender: Contender, task: Task) -> Answer:
    """Return the contender's answer to a task, computed in this process."""
    stand = build_workload(contender, draw_task(task))
    answer: Answer = stand.answer(stand.call())
    return answer


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
@contenders
def test_every_contender_is_right(contender: Contender, task: Task) -> None:
    """Output, weights and gradients of everyone match torch's pinned path, under every mask."""
    if reason_left_out(contender, task, task_arrays.case_of(task), None):
        return  # left out of this task, as `test_timing` shows
    finding = Judge(draw_task(task)).finding(answer_of(contender, task))

    assert ("timed", "") == finding[:2]
    assert finding.units is not None
    assert 0 < finding.units <= 1


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
@kernels
def test_every_kernel_is_right(kernel: Contender, task: Task) -> None:
    """On projected heads too: output and gradients match torch's, under every mask."""
    projected = replace(task, form="qkv")
    finding = Judge(draw_task(projected)).finding(answer_of(kernel, projected))

    assert ("timed", "") == finding[:2]
    assert finding.units is not None
    assert 0 < finding.units <= 1


@kernels
def test_a_kernel_is_judged_before_it_is_timed(kernel: Contender) -> None:
    """One number of the output, or of a gradient, off by a half is found wrong."""
    task = gradient_task(replace(TASKS[0], form="qkv", backward=True))
    for change in ("output", "gradient"):
        answer = answer_of(kernel, task)
        assert answer.gradients is not None
        changed = {**answer.gradients, "key": answer.gradients["key"] + 0.5}
        wrong = (
            replace(answer, output=answer.output + 0.5)
            if change == "output"
            else replace(answer, gradients=changed)
        )

        assert "wrong" == Judge(draw_task(task)).finding(wrong).status


def test_projected_heads_are_judged_in_rows_however_wide() -> None:
    """Without weights there is no layer whose arrays would not fit: rows are judged, not heads."""
    part = judged_part(Task(size=Size(1, 16384, 12288, 96), form="qkv"))

    assert part.heads is None
    assert part.rows is not None


@pytest.mark.parametrize("what", ["output", "weights", "gradients"])
def test_each_part_of_an_answer_is_looked_at(what: str) -> None:
    """One number of the output, the weights or a gradient off by a tenth is found wrong."""
    task = replace(TASKS[0], backward=True)
    assert gradient_task(task) != task  # of one sample: judge that
    task = gradient_task(task)
    answer = answer_of(CONTENDERS[0], task)
    arrays: Any = answer.gradients["in_proj_weight"] if answer.gradients else None
    array = {"output": answer.output, "weights": answer.weights, "gradients": arrays}[what]
    array.reshape(-1)[5] += 0.5
    finding = Judge(draw_task(task)).finding(answer)

    assert "wrong" == finding.status
    assert "should be" in finding.reason


def test_an_imprecise_answer_is_not_timed_either() -> None:
    """An output rounded to float16 lies within the bound of float32, and still is refused."""
    answer = answer_of(CONTENDERS[1], TASKS[0])
    coarse = replace(answer, output=answer.output.astype(np.float16).astype(np.float32))
    finding = Judge(draw_task(TASKS[0])).finding(coarse)

    assert finding.status in {"less accurate", "wrong"}
    assert finding.units is not None
    assert finding.units > 1


@pytest.mark.parametrize("task", tasks([SIZE], BOTH, BOTH), ids=lambda task: task.name)
def test_some_rows_have_the_answer_of_the_whole(task: Task) -> None:
    """The reference of some query rows equals those rows of the whole, under any mask."""
    part, problem = JudgedPart(rows=(0, 3, 10)), draw_task(task).problem()
    whole, some = reference_answer(problem), reference_answer(cut(problem, part))

    np.testing.assert_allclose(some.output, whole.output[:, [0, 3, 10]], rtol=0, atol=64 * EPS)
    np.testing.assert_allclose(some.weights, whole.weights[:, :, [0, 3, 10]], rtol=0, atol=64 * EPS)


@pytest.mark.parametrize("task", tasks([SIZE], BOTH, BOTH), ids=lambda task: task.name)
def test_some_heads_have_the_answer_of_the_whole(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an identity output projection, two heads give their columns of the reference."""
    monkeypatch.setattr(task_arrays, "SEPARABLE", 1)
    drawn = draw_task(task)
    judge = Judge(drawn)
    width = 2 * SIZE.head_dim
    whole = reference_answer(drawn.problem())

    assert JudgedPart(heads=2) == judge.part
    np.testing.assert_allclose(
        judge.reference.output, whole.output[..., :width], rtol=0, atol=64 * EPS
    )


@pytest.mark.parametrize("limit", ["JUDGED_SCORES", "SEPARABLE"])
def test_a_part_is_judged_as_strictly(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Judged by rows or heads the right answer is right, and one moved number is found."""
    monkeypatch.setattr(task_arrays, limit, 1)
    monkeypatch.setattr(task_arrays, "LEAST_ROWS", 3)
    monkeypatch.setattr(judging, "LARGE", 1)
    drawn = draw_task(TASKS[0])
    judge = Judge(drawn)
    stand = build_workload(CONTENDERS[0], drawn)
    answer = judge.part.of(stand.answer(stand.call()), SIZE.head_dim)

    assert "timed" == judge.finding(answer).status
    answer.output[1, 2, 3] += 0.5
    assert "wrong" == judge.finding(answer).status


def test_large_tasks_are_judged_in_part() -> None:
    """The words say how much: all of a small one, rows of a long one, heads of a wide one."""
    said = [
        judged_part(task).words(task)
        for task in tasks([SIZE, Size(1, 16384, 512, 8), Size(1, 128, 12288, 96)])
    ]

    assert ["all judged", "8 of 16384 rows judged", "2 of 96 heads judged"] == said


def test_rows_are_spread_over_the_whole_sequence() -> None:
    """The first and the last query are among the judged ones, and none is there twice."""
    rows = judged_part(Task(size=Size(1, 4096, 512, 8))).rows

    assert rows is not None
    assert (0, 4095) == (rows[0], rows[-1])
    assert len(rows) == len(set(rows))


def test_the_shelf_keeps_arrays_and_their_sharing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is taken up equals what was laid down, read or mapped, and may be written into."""
    drawn = draw_task(replace(TASKS[0], padded=True))
    array_files.write_arrays(drawn, str(tmp_path))
    for shared in (array_files.SHARED, 0):
        monkeypatch.setattr(array_files, "SHARED", shared)
        found = array_files.read_arrays(str(tmp_path))
        problem = found.problem()
        for name, array in drawn.state.items():
            np.testing.assert_array_equal(array, found.state[name])
        np.testing.assert_array_equal(drawn.x, found.x)
        assert problem.query is problem.value
        found.x[0, 0, 0] = 7  # reaches neither the file nor another process

    assert 7 != array_files.read_arrays(str(tmp_path)).x[0, 0, 0]
