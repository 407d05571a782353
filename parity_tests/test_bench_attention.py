"""Benchmarks: NumPy beside torch's three paths; nothing is timed before it is judged.

``make bench`` times them; in ``make test`` each runs once, as a test of correctness.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import mha_numpy
from mha_numpy.costs import CONFIGURATIONS
from mha_parity.candidate import Answer
from mha_parity.case import Case
from mha_parity.gold import golden
from mha_parity.judging import judge
from mha_parity.making import make
from mha_parity.problem import Problem

# (N, L, E, H): the sizes of the documents' examples, and a hundred tokens through each model whose
# weights are drawn in a moment; GPT-3's layer has 604 million of them.
SEEDS = [(1, 2, 4, 2), (1, 3, 6, 3), (1, 5, 6, 3), (1, 6, 32, 4), (2, 6, 100, 5), (1, 100, 512, 8)]
MODELS = [(1, 100, c.embed_dim, c.num_heads) for c in CONFIGURATIONS if c.embed_dim < 4096]
SIZES = list(dict.fromkeys(SEEDS + MODELS))
PATHS = ("numpy", "numpy, weights", "torch, weights", "torch, no weights", "torch, fast path")
Timed = Callable[[], tuple[Any, Any]]


def problem_of(size: tuple[int, int, int, int]) -> Problem:
    """Return self-attention of the size, in float32."""
    batch, length, width, heads = size
    case = Case(seed=1, batch=batch, queries=length, keys=length, heads_count=heads,
                head_dim=width // heads, bias="yes", dtype="float32")  # fmt: skip
    return make(case)


def contender(path: str, problem: Problem) -> Timed:
    """Return the call that is timed, on modules that hold the problem's weights."""
    width, heads = problem.query.shape[-1], problem.num_heads
    eye = {"out_proj.weight": np.eye(width, dtype=np.float32)}
    state = problem.state() | eye | {"out_proj.bias": np.zeros(width, dtype=np.float32)}
    weights = path.endswith(", weights")
    if path.startswith("numpy"):
        own = mha_numpy.MultiheadAttention(width, heads, batch_first=True)
        own.load_state_dict(state)
        own.eval()
        x = problem.query
        return lambda: own(x, x, x, need_weights=weights)
    layer = torch.nn.MultiheadAttention(width, heads, batch_first=True)
    layer.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})
    layer.train(mode=path != "torch, fast path")
    tensor = torch.from_numpy(problem.query)

    def call() -> tuple[Any, Any]:
        with torch.inference_mode():
            output, returned = layer(tensor, tensor, tensor, need_weights=weights)
        return output, returned

    return call


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", SIZES, ids=lambda s: "N{}-L{}-E{}-H{}".format(*s))
def test_forward(benchmark: Any, size: tuple[int, int, int, int], path: str) -> None:
    """The answer that is timed is right, judged on the very inputs it is timed on."""
    benchmark.group = "N{} L{} E{} H{}".format(*size)
    problem = problem_of(size)
    call = contender(path, problem)
    answer = Answer(output=np.asarray(call()[0]))
    judgements = judge(problem, golden(problem), answer)
    output = np.asarray(benchmark(call)[0])

    assert [] == [each.detail for each in judgements if each.severity.fails]
    np.testing.assert_array_equal(answer.output, output)


def test_a_wrong_contender_is_not_timed() -> None:
    """The judging that stands before the clock sees a contender with the heads mixed up."""
    problem = problem_of((1, 5, 6, 3))
    output = np.asarray(contender("numpy", problem)()[0])[..., ::-1].copy()
    judgements = judge(problem, golden(problem), Answer(output=output))

    assert any(each.severity.fails for each in judgements)
