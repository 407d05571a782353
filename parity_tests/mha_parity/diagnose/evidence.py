"""Compare the answers of a candidate with the predictions of a wrong attention.

Two answers agree when they differ by no more than rounding explains: a few dozen roundings of the
largest value, times what an error of the scores is multiplied by in the softmax. A prediction
*tells* something only where it departs from the right answer by many times that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue import Attention
from mha_parity.core.candidate import Answer, CandidateError
from mha_parity.core.compare import absolute_difference, as_float64

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.catalogue.plain_attention import Triple
    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem

# Sums over fewer than a hundred terms lose some ten roundings; two computations are compared.
ROUNDINGS = {"float64": 32.0, "float32": 32.0}
HALF_ROUNDINGS = 6.0
# Of the largest value: what differs by more is not the same answer, however rounded.
MAX_TOLERANCE_SHARE = 0.5
TELLING = 30.0  # times the allowance: a departure that no rounding imitates
BEYOND = frozenset(
    {"huge", "very_negative", "wide_range", "peaky"}
)  # regimes of scores that exp overflows at
SUBNORMAL_COST = 100  # times what products of other numbers take
SLOW_COST = 50_000  # scores: some 4 ms, and there are 2,200 predictions
# What decides q, k and v before they are split into heads.
BEFORE = ("__init__", "answer", "project", "linear", "inputs", "parameter", "precise")


@dataclass(frozen=True, eq=False)
class Prediction:
    """Answer of an attention to a problem, None where it breaks; and the largest score."""

    answer: Answer | None
    largest_score: float = 0.0

    @property
    def arrays(self) -> Iterator[Array | None]:
        """Output and weights."""
        yield None if self.answer is None else self.answer.output
        yield None if self.answer is None else self.answer.weights


def predict(kind: type[Attention], problem: Problem, projected: Triple | None = None) -> Prediction:
    """Return what the attention ``kind`` answers to ``problem``.

    ``projected`` are the right q, k and v: a kind that changes nothing before them takes copies.
    """
    attention = kind(problem)
    if projected is not None and all(getattr(kind, n) is getattr(Attention, n) for n in BEFORE):
        q, k, v = projected
        attention.project = lambda: (q.copy(), k.copy(), v.copy())  # type: ignore[method-assign]  # of this one object
    try:
        answer = attention.answer()
    except (ValueError, IndexError, TypeError, ZeroDivisionError, AttributeError):
        return Prediction(None)
    return Prediction(answer, largest_score(attention))


def largest_score(attention: Attention) -> float:
    """Return the largest score whose weight is not 0: rounding errs by so much more in the softmax.

    A fill value behind a mask is no score that could err.
    """
    scores, weights = attention.stages["masked scores"], attention.stages["weights"]
    if scores.shape != weights.shape:
        return largest_magnitude(scores)
    return largest_magnitude(np.where(weights != 0, scores, 0))


def largest_magnitude(array: Array) -> float:
    """Return the largest magnitude among the finite entries."""
    largest = np.abs(array).max(initial=0)
    if not np.isfinite(largest):  # of NaN the largest is NaN
        largest = np.abs(np.where(np.isfinite(array), array, 0)).max(initial=0)
    return float(largest)


@dataclass(eq=False)
class Observation:
    """A problem and the candidate's answer to it; None where it gave none."""

    problem: Problem
    answer: Answer | None
    failing: bool
    predictions: dict[type[Attention], Prediction] = field(default_factory=dict)
    _departs: dict[type[Attention], bool] = field(default_factory=dict, init=False)
    _matched: dict[type[Attention], bool] = field(default_factory=dict, init=False)

    def of(self, kind: type[Attention]) -> Prediction:
        """Return the prediction of ``kind``, computed once."""
        if kind not in self.predictions:
            self.predictions[kind] = predict(kind, self.problem, self.projected)
        return self.predictions[kind]

    @cached_property
    def projected(self) -> Triple:
        """The right q, k and v, (N, T, E): most of a prediction's time goes into them."""
        with np.errstate(all="ignore"):
            return Attention(self.problem).project()

    @property
    def is_nan(self) -> bool:
        """Whether the answer is NaN throughout."""
        return self.answer is not None and bool(np.isnan(as_float64(self.answer.output)).all())

    @property
    def right(self) -> Prediction:
        """The right answer."""
        return self.of(Attention)

    @cached_property
    def skipped(self) -> Array:
        """Which outputs belong to rows that see no key, (N, L, H Dv), where torch's paths differ.

        Nothing is skipped where the candidate departs nowhere else.
        """
        rows = self.problem.masked_rows()
        width = self.problem.v_head_dim
        elements = np.repeat(rows.swapaxes(1, 2), width, axis=2)
        if self.problem.case.form == "mha":
            elements = np.broadcast_to(elements.any(axis=2, keepdims=True), elements.shape)
        if self.answer is None or self.right.answer is None or not self.failing:
            return elements
        found, expected = self.answer.output, self.right.answer.output
        if (
            found.shape != expected.shape
            or found.dtype != expected.dtype
            or self._elsewhere(elements)
        ):
            return elements
        if self.problem.case.form == "qkv":
            return np.zeros_like(elements)
        # A NaN of one head that came through an identity out_proj to the others is not their bug.
        return np.asarray(elements & np.isnan(as_float64(found)))

    def _elsewhere(self, elements: Array) -> bool:
        """Whether the candidate departs outside the rows that see no key."""
        if self.answer is None or self.right.answer is None:
            return False
        allowed = self._allowed(self.right)
        if max_distance(self.answer.output, self.right.answer.output, elements) > allowed:
            return True
        weights = self._weights_gap(self.answer.weights, self.right.answer.weights)
        return weights * self.height > allowed

    def overflowed(self, kind: type[Attention]) -> bool:
        """Whether the candidate has no numbers where ``kind`` has some, at scores past exp's range.

        A softmax that overflows there is one mistake more, and speaks against no other.
        """
        expected = self.of(kind).answer
        if self.answer is None or expected is None or self.problem.case.regime not in BEYOND:
            return False
        found = self.answer.output
        same = found.shape == expected.output.shape
        return same and bool(
            (~np.isfinite(as_float64(found)) & np.isfinite(as_float64(expected.output))).any()
        )

    def _allowed(self, prediction: Prediction) -> float:
        name = self.problem.case.dtype
        bits = {"bfloat16": 7, "float16": 10, "float32": 23}.get(name, 52)
        height = max(self.height, self.answered_height)
        largest_score = max(prediction.largest_score, self.right.largest_score)
        roundings = ROUNDINGS.get(name, HALF_ROUNDINGS)
        return float(
            min(roundings * 2.0**-bits * (1 + largest_score), MAX_TOLERANCE_SHARE) * height
        )

    @cached_property
    def answered_height(self) -> float:
        """The largest finite value of the candidate's output; 0 where it gave none."""
        return 0.0 if self.answer is None else largest_magnitude(as_float64(self.answer.output))

    @cached_property
    def height(self) -> float:
        """The largest value that the right output and its values have."""
        attention = Attention(self.problem)
        attention.answer()
        stages = attention.stages
        return max(
            1e-30, largest_magnitude(stages["value heads"]), largest_magnitude(stages["output"])
        )

    def gap(self, first: Prediction, second: Prediction) -> float:
        """Return the distance of two predictions, in tolerances."""
        return max(self._gaps(first, second))

    def _gaps(
        self, first: Prediction, second: Prediction, skipped: Array | None = None
    ) -> Iterator[float]:
        """Yield the distance of the outputs, then that of the weights, in tolerances."""
        if first.answer is None or second.answer is None:
            yield 0.0 if first.answer is second.answer else np.inf
            return
        allowed = max(self._allowed(first), self._allowed(second))
        if skipped is not None and skipped.shape != self.skipped.shape:
            yield np.inf
            return
        skipped = self.skipped if skipped is None else self.skipped | skipped
        yield max_distance(first.answer.output, second.answer.output, skipped) / allowed
        weights = self._weights_gap(first.answer.weights, second.answer.weights)
        yield weights * self.height / allowed

    def _weights_gap(self, first: Array | None, second: Array | None) -> float:
        if first is None or second is None:
            return 0.0
        return max_distance(first, second, self._skipped_weights)

    @cached_property
    def _skipped_weights(self) -> Array:
        """Which rows of the weights see no key, (N, H, L, 1); (N, L, 1) where they are averaged."""
        masked = self.problem.masked_rows()
        rows = masked if self.problem.case.weights == "per_head" else masked.any(axis=1)
        return np.expand_dims(rows, -1)

    @cached_property
    def error_in_tolerances(self) -> float:
        """How far the candidate's answer is from the right one, in tolerances."""
        return self.gap(Prediction(self.answer), self.right)

    def distinguishes(self, kind: type[Attention]) -> bool:
        """Whether ``kind`` departs here from the right answer beyond all rounding."""
        if kind not in self._departs:
            gaps = self._gaps(self.of(kind), self.right)
            self._departs[kind] = any(gap > TELLING for gap in gaps)
        return self._departs[kind]

    def matches(self, kind: type[Attention]) -> bool:
        """Whether the candidate answered what ``kind`` predicts."""
        prediction = self.of(kind)
        if prediction.answer is None or self.answer is None:
            return False
        if kind not in self._matched:
            answered = Prediction(self.answer, prediction.largest_score)
            spread = self._nan_by_projection(as_float64(prediction.answer.output))
            self._matched[kind] = all(gap <= 1 for gap in self._gaps(answered, prediction, spread))
        return self._matched[kind]

    def _nan_by_projection(self, predicted: Array) -> Array | None:
        """Which outputs are NaN by an identity out_proj: 0 times a non-finite one of another head.

        Predictions leave that product out; None where the problem has a projection or no layer.
        """
        case = self.problem.case
        if self.answer is None or case.form != "mha" or case.out_proj != "identity":
            return None
        found = as_float64(self.answer.output)
        if found.shape != predicted.shape:
            return None
        rows = (~np.isfinite(predicted)).any(axis=-1, keepdims=True)
        return np.asarray(rows & np.isnan(found))

    def contradicts(self, kind: type[Attention]) -> bool:
        """Whether ``kind`` predicts a departure here that is not what the candidate answered.

        One that breaks is not contradicted, nor is one where the candidate's softmax overflows.
        """
        if self.answer is None or self.of(kind).answer is None or not self.distinguishes(kind):
            return False
        return not self.matches(kind) and not self.overflowed(kind)


def max_distance(first: Array, second: Array, skipped: Array) -> float:
    """Return the largest difference; infinite where shapes, dtypes or kinds of NaN differ."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return np.inf
    difference = absolute_difference(first, second)
    if skipped.shape[:-1] == first.shape[:-1] and skipped.shape[-1] in (1, first.shape[-1]):
        difference = np.where(skipped, 0, difference)
    return float(difference.max(initial=0))


def quickest(observations: Sequence[Observation], count: int) -> list[Observation]:
    """Return those whose predictions take the least time, quickest first.

    Products of subnormal numbers take a hundred times that of others.
    """
    return sorted(observations, key=lambda each: _cost(each.problem.case))[:count]


def is_slow(case: Case) -> bool:
    """Return whether a prediction takes so long that all of them take longer than a diagnosis."""
    return _cost(case) > SLOW_COST


def _cost(case: Case) -> int:
    scores = case.batch * case.heads_count * case.queries * case.keys
    return scores * (SUBNORMAL_COST if case.regime == "subnormal" else 1)


def observe(candidate: object, problem: Problem) -> Observation:
    """Ask the candidate, and note whether its answer is right."""
    try:
        answer = candidate(problem)  # type: ignore[operator]  # any candidate is callable
    except CandidateError:
        return Observation(problem, None, failing=False)
    seen = Observation(problem, answer, failing=False)
    if seen.error_in_tolerances > TELLING:
        return Observation(problem, answer, failing=True)
    return seen
