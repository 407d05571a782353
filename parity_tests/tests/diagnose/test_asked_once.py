"""A problem of a diagnosis is one call: effects of calls are checked on the cases."""

from __future__ import annotations

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.checks.call_effects import MonitoredCandidate
from mha_parity.core.arrays import Array
from mha_parity.diagnose.read_weights import plain_case
from mha_parity.run.asked_cases import SingleCalls
from mha_parity.targets.bind import bind

calls: list[int] = []


def attention(Q: Array, K: Array, V: Array, n_heads: int) -> Array:
    """Return softmax(Q K^T / sqrt(D)) V by head, (L, E), and count the calls."""
    calls.append(1)
    q, k, v = (x.reshape(len(x), n_heads, -1).swapaxes(0, 1) for x in (Q, K, V))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.asarray((weights @ v).swapaxes(0, 1).reshape(Q.shape))


def test_a_problem_of_a_diagnosis_is_one_call() -> None:
    """The first problem of a draw is asked again by the checks of calls, but not by a diagnosis."""
    candidate = MonitoredCandidate(bind(attention))
    problem = make_problem(plain_case(candidate.offer).replace(seed=0, layout="unbatched", batch=1))
    calls.clear()
    candidate(problem)
    assert len(calls) > 1
    once = SingleCalls(candidate)
    for ask in (once, lambda each: next(once.many([each]))):
        calls.clear()
        ask(problem)
        assert 1 == len(calls)
