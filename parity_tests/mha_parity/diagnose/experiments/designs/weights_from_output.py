"""Attention weights read out of an output, and the scores they should come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue import Attention
from mha_parity.diagnose.experiments.designs.calls import unmixed_problem
from mha_parity.diagnose.read_weights import ATOL, CALLS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.diagnose.experiments.designs.calls import Caller


@dataclass(frozen=True, eq=False)
class SampleWeights:
    """Weights of one sample as read and as expected, (H, L, S), and the expected scores.

    ``scores`` are scaled and -inf where a key is hidden; ``query`` and ``key`` are the heads.
    """

    problem: Problem
    weights: Array
    expected: Array
    scores: Array
    query: Array
    key: Array

    @property
    def noise(self) -> float:
        """How far a weight that is read may be from the one that was used."""
        return ATOL[self.problem.case.dtype]

    @property
    def seen(self) -> Array:
        """Which keys get a weight, (H, L, S)."""
        return np.asarray(~(np.abs(self.weights) <= self.noise))

    @property
    def visible(self) -> Array:
        """Which keys should get one."""
        return np.asarray(np.isfinite(self.scores))

    @property
    def right(self) -> bool:
        """Whether the weights are those expected."""
        with np.errstate(invalid="ignore"):
            return bool((np.abs(self.weights - self.expected) <= 10 * self.noise).all())


def read_case_weights(caller: Caller, case: Case) -> SampleWeights | None:
    """Return the weights of sample 0 of a case, or None where they cannot be read."""
    if caller.built is not None and case.form == "mha":
        # The values of a layer show as many keys as its input has columns, half of them well.
        keys = min(case.keys, max(1, case.embed_dim // 2))
        case = case.replace(keys=keys, queries=keys if case.inputs == "self" else case.queries)
    return read_problem(caller, unmixed_problem(case))


def read_problem(
    caller: Caller, problem: Problem, sample: int = 0, calls: int = CALLS
) -> SampleWeights | None:
    """Return the weights of one sample of a problem, or None where they cannot be read."""
    weights = caller.weights(problem, sample, calls)
    return None if weights is None else reading_of(problem, weights, sample)


def reading_of(problem: Problem, weights: Array, sample: int) -> SampleWeights:
    """Return weights (H, L, S) of one sample beside those expected."""
    right = Attention(problem)
    right.answer()
    own = problem.key.shape[1]
    expected, scores, query, key = (
        np.asarray(right.stages[name][sample], dtype=np.float64)
        for name in ("weights", "masked scores", "query heads", "key heads")
    )
    return SampleWeights(
        problem, np.asarray(weights, dtype=np.float64), expected[..., :own], scores[..., :own],
        query, key[:, :own],
    )  # fmt: skip


def read_wider(caller: Caller, problem: Problem) -> SampleWeights | None:
    """Return the weights of a layer at the lengths of a problem, if it is wrong with wider heads.

    They show all keys: the values of a layer show as many as its input has columns.
    """
    case = problem.case
    trials = caller.ask([case.replace(head_dim=case.keys + 2)]) if case.form == "mha" else []
    return read_problem(caller, trials[0].problem) if trials and trials[0].wrong else None


def wrong_sums(readings: Iterable[SampleWeights]) -> str:
    """Return to what rows of weights sum in the first reading where that is not 1, "" in none."""
    for each in readings:
        sums = np.where(each.visible, each.weights, 0).sum(axis=-1)
        if not each.right and np.abs(sums - 1).max() > 100 * each.noise:
            return f"rows of weights sum to {sums.min():.4g} … {sums.max():.4g}"
    return ""
