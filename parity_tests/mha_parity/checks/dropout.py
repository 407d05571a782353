"""Check dropout in training, whatever random numbers two right programs draw.

With one-hot values the output of a call in training shows which weights were dropped; P are the
weights of the same candidate without dropout. For every draw

    dropped weight = 0 or P / (1 - p),  a share p of them 0;  output = dropped weights V

must hold, and the gradients follow from which were dropped. A layer that drops nothing in training
passes, with a remark: many take ``dropout`` and ignore it. A finding is the bare name of a check
that passed, or ``name: sentence`` for one that failed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.cases.variants import plain_variant
from mha_parity.cases.weight_readout import with_one_hot_values
from mha_parity.checks.compared_calls import ComparedCall, tell_compared
from mha_parity.checks.dropout_gradients import check_dropout_gradients
from mha_parity.core.candidate import REMARK
from mha_parity.core.compare import (
    as_float64,
    describe_difference,
    equal_up_to_float32,
    equal_up_to_rounding,
    reordering_tolerance,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem
    from mha_parity.targets.calls.target_call import Call
    from mha_parity.targets.convention_base.convention import Convention

# Not 0.5, so that p and 1 - p are never confused; exact in binary.
P = 0.25
# The probability that a right candidate fails in a run, or while one of its failures is shrunk.
FALSE_ALARM = 1e-15

OTHER_WEIGHTS = "weights in training"
AS_IN_EVALUATION = "compute the weights in training as in evaluation: dropout alone may differ"
CHECKS = {
    OTHER_WEIGHTS: "before dropout, the weights in training are those in evaluation",
    "dropout off": "a layer in eval mode drops nothing, also between two calls in training mode",
    "dropout on again": "a layer drops again when training mode follows eval mode",
    "dropout on the weights": "dropout sets weights to 0, not elements of the output",
    "dropout after the softmax": "dropout changes the sum of a row of weights, and not its logits",
    "dropout rescales": "the weights that dropout p keeps are multiplied by 1/(1 - p)",
    "dropout rate": "dropout p drops the share p of the weights",
    "dropped weights returned": "weights returned in training are those that multiply the values",
    "dropout of everything": "with dropout 1 the output is its bias alone",
    "gradients with dropout": "the backward pass drops and rescales what the forward pass did",
}


def false_alarm_probability(number: int) -> float:
    """Return the probability of a false alarm that check ``number`` may have: all sum to 1e-15."""
    return FALSE_ALARM / (number * (number + 1))


def kl_divergence(share: float) -> float:
    """Return the Kullback-Leibler divergence of a share of dropped weights from p.

    By Chernoff's bound a share at least as far from p has, among M weights, a probability below
    exp(-M d).
    """
    pairs = ((share, P), (1 - share, 1 - P))
    return sum(actual * math.log(actual / expected) for actual, expected in pairs if actual)


def dropout_problem(case: Case, offer: Offer, number: int) -> Problem | None:
    """Return a plain problem like ``case`` with enough weights to tell p from 1 - p."""
    needed = -math.log(false_alarm_probability(number)) / kl_divergence(0.5)
    sized = plain_variant(case, offer, 1, 1, 1)
    if sized is None:
        return None
    blocks = sized.batch * sized.heads_count
    keys = math.ceil(math.sqrt((2 if sized.attn == "causal" else 1) * needed / blocks))
    sized = plain_variant(case, offer, keys, keys, 2 * keys)
    # Some layers return weights along another path: ask for them where ``number`` is odd.
    wanted = [each for each in ("per_head", "averaged") if each in offer["weights"]]
    weights = wanted[0] if wanted and number % 2 else case.weights
    return None if sized is None else make_problem(sized.replace(weights=weights))


def check_dropout(bound: Convention, case: Case, number: int) -> Iterator[str]:
    """Yield the findings on a layer with dropout, on a plain problem like ``case``.

    Raises
    ------
    CandidateError
        The candidate refuses the problem, or gives no answer.

    """
    problem = dropout_problem(case, bound.offer, number)
    if problem is None:
        return
    unit = with_one_hot_values(problem, 2)
    prepare = bound.with_dropout(unit, P)
    if prepare is None:
        return
    clean = _answer(bound, unit, bound.prepare(unit))
    if clean.output.shape != unit.output_shape:
        return
    first, between, again = (_answer(bound, unit, prepare(mode)) for mode in (True, False, True))
    yield dropout_off(unit, clean.output, between.output)
    if first.output.shape != clean.output.shape:
        return
    if equal_up_to_rounding(clean.output, first.output):
        yield REMARK + NO_DROPOUT
        return
    trained = TrainingModeAnswer(unit, clean, first)
    if not trained.readable:  # what is wrong without dropout says nothing about dropout
        return
    if trained.visible_count * -math.log(1 - P) > -math.log(false_alarm_probability(number)):
        stuck = equal_up_to_rounding(clean.output, again.output)
        yield f"dropout on again: {NO_DROPOUT_AFTER_EVAL}" if stuck else "dropout on again"
    found = list(weight_findings(bound, trained, number))
    yield from found
    if not any(": " in each for each in found):  # else dropout 1 fails for the same reason
        yield from _everything(bound, problem)


def dropout_off(problem: Problem, clean: Array, evaluated: Array) -> str:
    """Return the finding on an answer in eval mode, compared with a layer without dropout.

    Digits of float32 in float64 are no dropout: a layer may take another path with it.
    """
    if equal_up_to_float32(clean, evaluated):
        return "dropout off"
    tell_compared(
        "dropout off",
        ComparedCall("a layer without dropout", problem, clean),
        ComparedCall(
            f"one with dropout {P} in eval mode, drawn anew each time", problem, evaluated
        ),
    )
    difference = describe_difference(clean, evaluated)
    return f"dropout off: {difference} from a layer without dropout."


NO_DROPOUT = "dropout changes nothing in training: it was not judged."
NO_DROPOUT_AFTER_EVAL = (
    "nothing is dropped in training mode after eval mode, though weights were dropped before."
)


def _answer(bound: Convention, problem: Problem, call: Call) -> Answer:
    return bound.answered(problem, call, call.make())


@dataclass(frozen=True, eq=False)
class TrainingModeAnswer:
    """The answers with and without dropout; weights are (N, H, L, S), in float64."""

    problem: Problem
    clean: Answer
    answer: Answer

    @cached_property
    def weights(self) -> Array:
        """P, the weights without dropout."""
        return self._read(self.clean)[..., 0, :]

    @property
    def readable(self) -> bool:
        """Whether the clean output shows weights: alike in both halves, not negative, of sum 1."""
        clean = self._read(self.clean)
        alike = np.abs(clean[..., 0, :] - clean[..., 1, :]) <= self.atol
        off = np.abs(clean.sum(axis=-1) - 1) > clean.shape[-1] * self.atol
        return bool(alike.all() and not off.any() and (clean >= -self.atol).all())

    @cached_property
    def weights_by_half(self) -> Array:
        """The weights in training as both halves of each head show them, (N, H, L, 2, S)."""
        return self._read(self.answer)

    @property
    def dropped(self) -> Array:
        """The weights that multiplied the values in training."""
        return self.weights_by_half[..., 0, :]

    @property
    def atol(self) -> float:
        """How far another order of sums moves a weight."""
        return reordering_tolerance(self.clean.output) / (1 - P)

    @cached_property
    def visible(self) -> Array:
        """Which weights are so large that kept ones differ from 0."""
        return np.asarray(self.weights > 4 * self.atol)

    @property
    def visible_count(self) -> int:
        """How many weights are so large."""
        return int(self.visible.sum())

    @cached_property
    def zero(self) -> Array:
        """Which weights are 0 in training."""
        return np.asarray(np.abs(self.dropped) <= self.atol)

    @property
    def rescaled(self) -> bool:
        """Whether each weight is 0 or larger by 1/(1 - p)."""
        kept = np.abs(self.dropped - self.weights / (1 - P)) <= self.atol
        return bool((kept | self.zero).all())

    def _read(self, answer: Answer) -> Array:
        n, h, length, total = self.problem.weights_shape
        keys = total - self.problem.appended
        blocks = as_float64(answer.output).reshape(n, length, h, 2, keys)
        return np.moveaxis(blocks, 2, 1)


def weight_findings(bound: Convention, trained: TrainingModeAnswer, number: int) -> Iterator[str]:
    """Check which weights are dropped, and the factor on the others."""
    difference = np.abs(trained.weights_by_half[..., 0, :] - trained.weights_by_half[..., 1, :])
    if not (difference <= trained.atol).all():
        if bound.drops_as_torch:
            yield (
                "dropout on the weights: in training two output columns with the same values "
                "differ; drop weights, and not elements of the output."
            )
        return
    yield "dropout on the weights"
    if not trained.rescaled:
        yield wrong_factor(trained)
        return
    yield from (OTHER_WEIGHTS, "dropout after the softmax", "dropout rescales")
    yield _rate(trained, number)
    if bound.drops_as_torch:
        yield from _returned(trained)
    kept = ~trained.zero / (1 - P)
    yield from check_dropout_gradients(trained.problem, trained.answer, trained.weights, kept)


def wrong_factor(trained: TrainingModeAnswer) -> str:
    """Return the finding on weights that are neither 0 nor larger by 1/(1 - p)."""
    actual, expected = (each.sum(axis=-1) for each in (trained.dropped, trained.weights))
    rows = np.isfinite(actual)  # a row whose logits are all dropped is NaN
    atol = trained.weights.shape[-1] * trained.atol
    if (np.abs(actual - expected)[rows] <= atol).all():
        return (
            "dropout after the softmax: the weights change in training, but the sums of their rows "
            "do not; drop weights, and not logits."
        )
    kept = trained.visible & ~trained.zero
    factors = (trained.dropped / np.where(kept, trained.weights, 1))[kept]
    factor = float(np.median(factors))
    off = np.abs(trained.dropped - factor * trained.weights)[kept]
    if (off > trained.atol * max(1.0, factor)).any():
        return (
            f"{OTHER_WEIGHTS}: the weights that dropout {P} keeps are {factors.min():.3g} to "
            f"{factors.max():.3g} times those without dropout, and by no common factor."
        )
    return (
        f"dropout rescales: with dropout {P} kept weights are {factor:.3g} of those without "
        f"dropout, but should be 1/(1 - {P}) = {1 / (1 - P):.3g}."
    )


def _rate(trained: TrainingModeAnswer, number: int) -> str:
    dropped, count = int((trained.zero & trained.visible).sum()), trained.visible_count
    if count and count * kl_divergence(dropped / count) > -math.log(
        false_alarm_probability(number)
    ):
        return f"dropout rate: {dropped} of {count} weights are dropped, but {P} is the dropout."
    return "dropout rate"


def _returned(trained: TrainingModeAnswer) -> Iterator[str]:
    """Compare the weights that are returned with those that the output shows."""
    returned, keys = trained.answer.weights, trained.weights.shape[-1]
    if returned is None:
        return
    per_head = returned.ndim == trained.dropped.ndim
    used = trained.dropped if per_head else trained.dropped.mean(axis=1)
    actual = returned[..., :keys]
    if actual.shape != used.shape:
        return
    name, expected = "dropped weights returned", used.astype(actual.dtype)
    if equal_up_to_rounding(actual, expected):
        yield name
    else:
        yield f"{name}: {describe_difference(expected, actual)} from those in use."


def _everything(bound: Convention, problem: Problem) -> Iterator[str]:
    """Check dropout 1, where the layer takes it."""
    prepare: Callable[[bool], Call] | None = bound.with_dropout(problem, 1.0)
    if prepare is None:
        return
    output = _answer(bound, problem, prepare(True)).output
    bias = 0 if problem.b_out is None else problem.b_out
    expected = np.broadcast_to(np.asarray(bias, dtype=output.dtype), problem.output_shape)
    name = "dropout of everything"
    if equal_up_to_rounding(expected, output) or not (bound.drops_as_torch or output.any()):
        yield name
        return
    nan = np.isnan(output).any()
    actual = "the output is NaN" if nan else describe_difference(expected, output)
    yield f"{name}: with dropout 1 {actual}, but the output should be its bias alone."
