"""What is wrong with scores, weights and digits is said in numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.catalogue import Attention, answer_of, catalogue
from mha_parity.core.candidate import Answer
from mha_parity.core.features import make_offer
from mha_parity.diagnose.experiments.conditions.correct_digits import error_analysis
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.run_experiments import cause_findings, run_experiments

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.catalogue.plain_attention import Triple
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem


IN_FLOAT32 = make_offer(form="qkv", projection="none", inputs=("self", "cross"), dtype=("float32",))


class Powered(Attention):
    """The scores changed by a function before the softmax."""

    change: Callable[[Array], Array] = staticmethod(lambda z: z)

    def softmax(self, scores: Array) -> Array:
        """Change, then normalise."""
        changed = self.change(np.where(np.isfinite(scores), scores, 0))
        return super().softmax(np.where(np.isfinite(scores), changed, scores))


def powered(change: Callable[[Array], Array]) -> type[Attention]:
    """Return the attention with a function of the scores."""
    return type("Changed", (Powered,), {"change": staticmethod(change)})


class LargestFive(Attention):
    """A row keeps the keys of its five largest scores."""

    def softmax(self, scores: Array) -> Array:
        """Hide the others."""
        least = np.sort(scores, axis=-1)[..., -5:][..., :1]
        return super().softmax(np.where(scores >= least, scores, -np.inf))


class LastKeyOfZeros(Attention):
    """The last key is read as zeros."""

    def scores(self, q: Array, k: Array) -> Array:
        """Set its scores to 0."""
        scores = super().scores(q, k)
        scores[..., -1] = 0
        return scores


class SecondKeySharpened(Attention):
    """The scores of the second key are multiplied by 1.5."""

    def scores(self, q: Array, k: Array) -> Array:
        """Multiply them."""
        scores = super().scores(q, k)
        scores[..., 1:2] *= 1.5
        return scores


class HalfSum(Attention):
    """The sum over the keys is kept in float16, key by key."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Round each partial sum."""
        total = np.zeros((*weights.shape[:-1], v.shape[-1]), dtype=np.float16)
        for j in range(v.shape[-2]):
            total += (weights[..., j : j + 1] * v[..., j : j + 1, :]).astype(np.float16)
        return total.astype(v.dtype)


class PaddedKeys(Attention):
    """Zero keys up to a multiple of 32 stand in the denominator."""

    def softmax(self, scores: Array) -> Array:
        """Count them."""
        top = scores.max(axis=-1, keepdims=True)
        powers = np.exp(scores - top)
        extra = -scores.shape[-1] % 32
        return np.asarray(powers / (powers.sum(axis=-1, keepdims=True) + extra * np.exp(-top)))


class TilesOfTheirOwn(Attention):
    """Partial softmaxes over tiles of 64 keys, added without their maxima."""

    def softmax(self, scores: Array) -> Array:
        """Subtract each tile's maximum."""
        parts = [scores[..., i : i + 64] for i in range(0, scores.shape[-1], 64)]
        powers = np.concatenate([np.exp(p - p.max(axis=-1, keepdims=True)) for p in parts], axis=-1)
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


class MergedWithoutSums(Attention):
    """Two halves of the keys, merged by their maxima without their sums."""

    def softmax(self, scores: Array) -> Array:
        """Normalise each half, then weight it by exp of its maximum."""
        half = -(-scores.shape[-1] // 2)
        parts = [p for p in (scores[..., :half], scores[..., half:]) if p.shape[-1]]
        tops = [p.max(axis=-1, keepdims=True) for p in parts]
        factors = [np.exp(t - np.maximum.reduce(tops)) for t in tops]
        rows = [super(MergedWithoutSums, self).softmax(p) for p in parts]
        rows = [p * f for p, f in zip(rows, factors, strict=True)]
        return np.asarray(np.concatenate(rows, axis=-1) / sum(factors))


class HalfScores(Attention):
    """The scores are kept in float16."""

    def scores(self, q: Array, k: Array) -> Array:
        """Round."""
        return super().scores(q, k).astype(np.float16).astype(self.work_dtype)


class HalfFirstHead(Attention):
    """The weights of head 0 are kept in float16."""

    def softmax(self, scores: Array) -> Array:
        """Round head 0."""
        weights = super().softmax(scores)
        weights[:, 0] = weights[:, 0].astype(np.float16)
        return weights


def on_grid(numbers: int, axis: int | None) -> type[Attention]:
    """Return the attention with v on a grid: its largest number, or a row's, / numbers."""

    class OnGrid(Attention):
        """v has few numbers."""

        def project(self) -> Triple:
            """Round v."""
            q, k, v = super().project()
            step = np.abs(v).max(axis=axis, keepdims=True) / numbers
            return q, k, np.rint(v / step) * step

    return OnGrid


PLANTED: dict[str, tuple[type[Attention], str]] = {
    "clip": (powered(lambda z: np.clip(z, -5, 5)), "scores are clipped to ±5 "),
    "clip below the maximum": (
        powered(lambda z: np.maximum(z, z.max(axis=-1, keepdims=True) - 5)),
        "scores are clipped at -5 from below (of each score less the row's largest)",
    ),
    "cap": (powered(lambda z: 30 * np.tanh(z / 30)), "scores are capped by 30 tanh(score / 30)"),
    "relu": (powered(lambda z: np.maximum(z, 0)), "negative scores are set to 0"),
    "rounded": (powered(lambda z: np.round(z * 16) / 16), "rounded to multiples of 0.0625"),
    "base 2": (powered(lambda z: z * math.log(2)), "ln(2)/sqrt(D), so 2^score"),
    "largest": (LargestFive, "a row sees only its 5 keys with the largest scores"),
    "half sum": (HalfSum, "the stage `sum of P V over the keys` is rounded to float16"),
    "padded": (PaddedKeys, "exp(0) is added to the denominator 8 times"),
    "tiles": (TilesOfTheirOwn, "tiles of 64; each tile has its own maximum subtracted"),
    "merged": (MergedWithoutSums, "each tile's result is weighted by exp of its maximum alone"),
    "half": (HalfScores, "the stage `scores` is rounded to float16"),
    "grid": (on_grid(127, None), "`v` is rounded to a grid of 255 numbers over the array"),
    "row grid": (on_grid(127, -1), "stage `v` is rounded to a grid of 255 numbers over each row"),
    "columns": (catalogue()["softmax-query-axis"].kinds[0], "each column, over the queries"),
}  # fmt: skip


@pytest.mark.repeats(3)
@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_said_in_numbers(
    name: str, causes: Callable[[type[Attention]], str]
) -> None:
    """The first line that is understood says what the attention computes instead."""
    kind, sentence = PLANTED[name]
    assert sentence in causes(kind).partition("\n")[0]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (LastKeyOfZeros, ("the weights of the last key of ", ": its score is 0 in each row")),
        (SecondKeySharpened, ("the weights of key 1 of ", " alone are off")),
    ],
)
def test_one_key_that_is_off_is_named(
    kind: type[Attention], said: tuple[str, str], causes: Callable[[type[Attention]], str]
) -> None:
    """Its place, and its score where that is a constant; no tiles are seen in it."""
    first = causes(kind).partition("\n")[0]
    assert all(each in first for each in said)
    assert "tiles" not in first


def test_a_sum_of_weights_near_1_is_distinguished_from_it(caller: Callable[..., Caller]) -> None:
    """An output that is larger by 3e-6 is that of weights that sum to more, and it is said so."""

    def larger(problem: Problem) -> Answer:
        answer = answer_of(Attention, problem)
        return replace(answer, output=answer.output * (1 + 3e-6))

    found = cause_findings(run_experiments(caller(larger)))
    assert "every row of weights sums to 1 + 3e-06, expected 1" in [each.text for each in found]


def test_digits_are_lost_in_one_head_alone(caller: Callable[..., Caller]) -> None:
    """Which head rounds, at which stage, and to which dtype."""
    found = error_analysis(caller(HalfFirstHead))
    assert found is not None
    assert ("the first head (0)", "weights", "float16") == (found.heads, found.stage, found.dtype)


def test_a_small_error_of_a_formula_is_no_rounding(caller: Callable[..., Caller]) -> None:
    """An error of 1e-4 that keeps its pattern when the inputs move by as much."""
    found = error_analysis(caller(powered(lambda z: z * 1.0003)))
    assert found is not None
    assert not found.rounding


class ShortWeights(Attention):
    """The weights are rounded to the eight digits of bfloat16, in float32."""

    def softmax(self, scores: Array) -> Array:
        """Round by scaling with the power of two below."""
        weights = super().softmax(scores)
        unit = np.exp2(np.floor(np.log2(np.maximum(weights, 1e-30))) - 7)
        return np.asarray(np.round(weights / unit) * unit, dtype=weights.dtype)


def test_heads_that_all_round_are_said_to_be_all(caller: Callable[..., Caller]) -> None:
    """In float32 each element of a head may err by less than what no rounding imitates."""
    found = error_analysis(caller(ShortWeights, IN_FLOAT32))
    assert found is not None
    assert ("", "weights", "bfloat16") == (found.heads, found.stage, found.dtype)
