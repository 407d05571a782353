"""What no name predicts is measured: softmax, returned weights, gradients, heads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.catalogue import Attention
from mha_parity.catalogue.gradients import with_gradients
from mha_parity.core.candidate import Answer
from mha_parity.core.features import make_offer
from mha_parity.diagnose.experiments.conditions.values import values
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.designs.variants import with_key_heads
from mha_parity.diagnose.experiments.gradients.gradients import gradient_effects
from mha_parity.diagnose.experiments.returned import returned
from mha_parity.diagnose.experiments.run_experiments import cause_findings, run_experiments
from mha_parity.oracle.eval_orders_vjp import VJP

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem


PLAIN = make_offer(form="qkv", projection="none", inputs=("cross",), size=("small",))


class MaximumFromZero(Attention):
    """The running maximum starts at 0."""

    def softmax(self, scores: Array) -> Array:
        """Subtract 0 at least."""
        powers = np.exp(scores - np.maximum(scores.max(axis=-1, keepdims=True, initial=0), 0))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


class NoMaximum(Attention):
    """Nothing is subtracted."""

    def softmax(self, scores: Array) -> Array:
        """Divide by the sum."""
        powers = np.exp(scores)
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


class MaximumOfAllRows(Attention):
    """One maximum is subtracted from all rows of a head."""

    def softmax(self, scores: Array) -> Array:
        """Subtract the maximum over rows and keys."""
        powers = np.exp(scores - scores.max(axis=(-1, -2), keepdims=True, initial=-np.inf))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (MaximumFromZero, "in float64, rows whose scores are all below -720 … -752 are NaN"),
        (NoMaximum, "in float64, rows whose scores are all above 704 … 720 are NaN"),
        (MaximumOfAllRows, "rows whose scores are all below -720 … -752 next to rows of small"),
    ],
)
def test_scores_at_which_the_softmax_fails_are_found(
    kind: type[Attention], text: str, caller: Callable[..., Caller], full_offer: Offer
) -> None:
    """The constant added to a row's scores from which on its output is no number, by dtype."""
    with np.errstate(all="ignore"):
        (found, *_) = values(caller(kind, full_offer))
    assert text in found.text


class InfinityOfNothing(Attention):
    """Rows without keys are infinite."""

    number = np.inf

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Divide 1 by 0."""
        return super().apply_weights(weights, v) + (self.number if v.shape[-2] == 0 else 0)


class NothingOfNothing(InfinityOfNothing):
    """Rows without keys are 0 / 0, as rows are whose mask hides every key."""

    number = np.nan


def test_no_keys_are_a_cause_of_their_own(caller: Callable[..., Caller], full_offer: Offer) -> None:
    """What is neither 0 nor NaN at S = 0 is said as that, and nothing of NaN."""
    (found,) = values(caller(InfinityOfNothing, full_offer))
    assert "with no keys (S = 0) the output is infinite, expected 0" == found.text
    assert not [*values(caller(NothingOfNothing, full_offer))]


def returning(stage: str) -> Callable[[Problem], Answer]:
    """Return an attention whose returned weights are another stage."""

    def answer(problem: Problem) -> Answer:
        attention = Attention(problem)
        found = attention.answer()
        if found.weights is None:
            return found
        array = attention.stages[stage]
        array = array.mean(axis=1) if problem.case.weights == "averaged" else array
        return replace(found, weights=array)

    return answer


@pytest.mark.parametrize(
    ("stage", "text"),
    [("masked scores", "the scores before the softmax"), ("scores", "the scores before"),
     ("weights", "")],
)  # fmt: skip
def test_returned_weights_are_named_by_their_stage(
    stage: str, text: str, caller: Callable[..., Caller], full_offer: Offer
) -> None:
    """Scores in place of weights; what is right is not mentioned."""
    found = list(returned(caller(returning(stage), full_offer)))
    assert bool(text) is bool(found)
    assert all(text in each for each in found)


def halving(problem: Problem) -> Answer:
    """Return attention whose mean weights are halved from head to head."""
    attention = Attention(problem)
    found = attention.answer()
    if found.weights is None or problem.case.weights != "averaged":
        return found
    first, *others = attention.stages["weights"].swapaxes(0, 1)
    for each in others:
        first = (first + each) / 2
    return replace(found, weights=first)


def test_a_mean_of_unequal_shares_is_read(caller: Callable[..., Caller], full_offer: Offer) -> None:
    """Of three heads the first two have a quarter each."""
    (found,) = returned(caller(halving, full_offer))
    assert "0.25, 0.25, 0.5 times those of heads 0 … 2, expected 1/3 of each" in found


@pytest.mark.parametrize("inputs", ["cross", "self"])
def test_transposed_weights_are_said(inputs: str, caller: Callable[..., Caller]) -> None:
    """By their numbers, whether S is L or not. Kills the shape alone, and rows of odd sums."""

    def transposed(problem: Problem) -> Answer:
        found = Attention(problem).answer()
        weights = None if found.weights is None else found.weights.swapaxes(-1, -2)
        return replace(found, weights=weights)

    offer = PLAIN | {"weights": ("none", "per_head"), "inputs": (inputs,)}
    (found,) = returned(caller(transposed, offer))
    assert "are transposed, (…, S, L) in place of (…, L, S); the output is right" in found


def test_gradients_wrong_beyond_a_length_are_found(caller: Callable[..., Caller]) -> None:
    """A backward pass in tiles of 64 keys is right at all small sizes."""
    right = with_gradients(VJP)()

    def tiled(problem: Problem) -> Answer:
        found = right(problem)
        if problem.key.shape[1] <= 64 or found.gradients is None:
            return found
        return replace(found, gradients={**found.gradients, "key": 0.7 * found.gradients["key"]})

    offered = PLAIN | {"gradients": ("yes",)}
    (found,) = gradient_effects(caller(tiled, offered))
    assert (
        "wherever S > 64: gradient dK is 0.7 times the right one, in all heads and rows"
        == found.text
    )


def test_gradients_wrong_where_weights_are_returned_are_found(
    caller: Callable[..., Caller],
) -> None:
    """Plain calls are right: weights that are kept for a plot alone are taken from the graph."""
    right = with_gradients(VJP)()

    def detached(problem: Problem) -> Answer:
        found = right(problem)
        if problem.case.weights == "none" or found.gradients is None:
            return found
        return replace(found, gradients={**found.gradients, "key": 0 * found.gradients["key"]})

    offered = PLAIN | {"gradients": ("yes",), "weights": ("none", "per_head")}
    (found,) = gradient_effects(caller(detached, offered))
    assert (
        "with weights=per_head: gradient dK is 0 times the right one, in all heads and"
        in found.text
    )


@pytest.mark.parametrize(
    ("by_rest", "text"),
    [
        (
            True,
            "gradient dV is summed over the query heads h of one h % 3, expected of one h // 2",
        ),
        (False, "gradient dV is 0.7 times the right one, in all heads and rows"),
    ],
    ids=["other groups", "factor"],
)
def test_gradients_of_grouped_heads_alone_are_found(
    by_rest: bool, text: str, caller: Callable[..., Caller]
) -> None:
    """Where heads are equal they are right; what is summed in their place is read."""
    right = with_gradients(VJP)()

    def grouped(problem: Problem) -> Answer:
        found, groups = right(problem), problem.num_kv_heads
        share = problem.num_heads // groups
        if share == 1 or found.gradients is None:
            return found
        value = 0.7 * found.gradients["value"]
        if by_rest:
            chosen = np.arange(problem.num_heads) // share
            whole = right(with_key_heads(problem, groups, chosen)).gradients or {}
            own = whole["value"].reshape(*problem.value.shape[:2], share, groups, -1)
            value = own.sum(axis=2).reshape(problem.value.shape)
        return replace(found, gradients={**found.gradients, "value": value})

    offered = PLAIN | {"form": ("qkv",), "projection": ("none",), "kv_heads": ("equal", "fewer")}
    (found,) = gradient_effects(caller(grouped, offered | {"gradients": ("yes",)}))
    assert found.text.startswith(f"with grouped-query heads: {text}")


class Accumulates(Attention):
    """Each head adds to the output of those before it."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Sum over the heads."""
        return super().apply_weights(weights, v).cumsum(axis=1)


def test_heads_that_reach_others_are_said_to(caller: Callable[..., Caller]) -> None:
    """What flows from head to head is a finding, where the weights alone say nothing."""
    texts = [each.text for each in cause_findings(run_experiments(caller(Accumulates, PLAIN)))]
    assert (
        "heads are not independent: each of 3 heads reaches the outputs of all later ones too"
        in texts
    )


class ScaledTwiceAtEights(Attention):
    """1/D where D is a multiple of 8."""

    def scale(self) -> float:
        """Scale once more."""
        return super().scale() ** (2 if self.problem.head_dim % 8 == 0 else 1)


class Wavy(Attention):
    """An exponential that errs by 1e-4 with the score."""

    error = 1e-4

    def exp(self, x: Array) -> Array:
        """Err."""
        return np.asarray(super().exp(x) * (1 + self.error * np.sin(50 * x)))


class WavyInFloat32(Wavy):
    """One that errs by the digits of float32."""

    error = 1e-7


class Underflows(Attention):
    """Each sum of a row is 0."""

    def exp(self, x: Array) -> Array:
        """Return 0, of which NaN comes."""
        return np.zeros_like(x)


class StrictInASquare(Attention):
    """The causal rule hides the diagonal too, and nothing beyond the first L keys."""

    def mask_scores(self, scores: Array) -> Array:
        """Fill."""
        rows, keys = np.indices(scores.shape[-2:])
        square = (keys >= rows) & (keys < scores.shape[-2])
        return np.where(square & (self.problem.case.attn == "causal"), -1e9, scores)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ScaledTwiceAtEights, "the effective scale is"),
        (Wavy, "as an approximated exp does"),
        (StrictInASquare, "with attn=causal"),
    ],
)
def test_what_held_out_attentions_taught(
    kind: type[Attention], text: str, caller: Callable[..., Caller], full_offer: Offer
) -> None:
    """Weights are read where answers are wrong, and a rule holds for what is hidden too."""
    offered = full_offer | {"padding": ("none",), "attn": ("none", "causal")}
    (found, *_) = cause_findings(run_experiments(caller(kind, offered)))
    assert text in found.text
    assert "the weights read out are right" not in found.text
    assert "every key is seen" not in found.text


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (WavyInFloat32, "by up to 1e-07; rows of weights sum to 1"),
        (Underflows, "the weights are no softmax: rows of weights are NaN"),
    ],
)
def test_weights_that_nothing_explains_are_said_as_they_are(
    kind: type[Attention], text: str, caller: Callable[..., Caller]
) -> None:
    """Kills an exp that is called approximated by a rounding, and sums "nan … nan"."""
    (found, *_) = cause_findings(run_experiments(caller(kind, PLAIN)))
    assert text in found.text


class Later(Attention):
    """Each row sees the keys behind it, and the last one none."""

    def mask_scores(self, scores: Array) -> Array:
        """Hide the keys up to the row's own."""
        i, j = np.indices(scores.shape[-2:])
        return np.where(j > i, super().mask_scores(scores), -np.inf)

    def softmax(self, scores: Array) -> Array:
        """Have zeros where a row sees nothing."""
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(super().softmax(scores))


def test_rows_of_no_key_are_within_the_rule_of_the_others(caller: Callable[..., Caller]) -> None:
    """Kills "by no rule that was tried", where the last row sees none: its keys begin beyond S."""
    offered = make_offer(form="qkv", projection="none", inputs=("self",), size=("small", "equal"))
    found = cause_findings(run_experiments(caller(Later, offered)))
    assert any("row i sees keys i+1 … S-1 (within 0 … S-1)" in each.text for each in found), found
