"""The benchmark's contenders as a pytest-benchmark series: judged first, then timed.

``make bench-series`` times them; in ``make test`` each runs once, as a test of correctness.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mha_numpy.costs import CONFIGURATIONS
from mha_parity.bench.contenders import CONTENDERS, Contender, reason_left_out
from mha_parity.bench.judged_first import Judge
from mha_parity.bench.layer_calls import build_workload
from mha_parity.bench.task_arrays import case_of, draw_task
from mha_parity.bench.tasks import Size, Task

# The sizes of the documents' examples, and a hundred tokens through each model whose weights are
# drawn in a moment; GPT-3's layer has 604 million of them.
SEEDS = [(1, 2, 4, 2), (1, 3, 6, 3), (1, 5, 6, 3), (1, 6, 32, 4), (2, 6, 100, 5), (1, 100, 512, 8)]
MODELS = [(1, 100, c.embed_dim, c.num_heads) for c in CONFIGURATIONS if c.embed_dim < 4096]
TASKS = [Task(size=Size(*numbers)) for numbers in dict.fromkeys(SEEDS + MODELS)]
# torch's fast path takes no odd number of heads.
SERIES = [
    pytest.param(task, contender, id=f"{task.name}-{contender.name}")
    for task in TASKS
    for contender in CONTENDERS
    if not reason_left_out(contender, task, case_of(task), None)
]


@pytest.mark.repeats(15)
@pytest.mark.parametrize(("task", "contender"), SERIES)
def test_forward(benchmark: Any, task: Task, contender: Contender) -> None:
    """The answer that is timed is right, judged on the very inputs it is timed on."""
    benchmark.group = task.name
    drawn = draw_task(task)
    judge = Judge(drawn)
    workload = build_workload(contender, drawn)
    answer = workload.answer(workload.call())
    finding = judge.finding(judge.part.of(answer, task.size.head_dim))
    timed = workload.answer(benchmark(workload.call))

    assert "wrong" != finding.status, finding.reason
    np.testing.assert_array_equal(answer.output, timed.output)


def test_every_contender_has_a_series() -> None:
    """Each of the benchmark's contenders is timed on each size but for the odd numbers of heads."""
    odd = [task for task in TASKS if task.size.num_heads % 2]
    assert len(TASKS) * len(CONTENDERS) - len(odd) == len(SERIES)


def test_a_wrong_contender_is_not_timed() -> None:
    """The judging that stands before the clock sees a contender with the heads mixed up."""
    task = TASKS[2]
    drawn = draw_task(task)
    judge = Judge(drawn)
    workload = build_workload(CONTENDERS[1], drawn)
    answer = workload.answer(workload.call())
    mixed = replace(answer, output=answer.output[..., ::-1].copy())

    assert "wrong" == judge.finding(judge.part.of(mixed, task.size.head_dim)).status
