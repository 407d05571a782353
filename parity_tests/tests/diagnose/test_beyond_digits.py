"""What is wrong besides lost digits is asked in the dtype that has no more of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.catalogue import Attention, answer_of
from mha_parity.core.candidate import FunctionCandidate
from mha_parity.core.features import make_offer
from mha_parity.diagnose.experiment_diagnosis import ExperimentDiagnosis
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.run_experiments import cause_findings, run_experiments

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

FULL = make_offer(
    form="qkv", projection="none", inputs=("self", "cross"), attn=("none", "bool2d"),
    dtype=("float64", "float32"), size=("small",),
)  # fmt: skip
EMPTY = FULL | {
    "attn": ("none",), "dtype": ("float64", "float16"), "size": ("small", "empty"),
}  # fmt: skip
LAYER = make_offer(inputs=("self",), dtype=("float64", "float32"), size=("small",))
ROUNDED = "the stage `weights` is rounded to float32"


class Float32Weights(Attention):
    """The weights have the digits of float32."""

    def softmax(self, scores: Array) -> Array:
        """Round them."""
        weights = super().softmax(scores)
        return weights.astype(np.float32).astype(weights.dtype)


class AndInverted(Float32Weights):
    """And a mask is inverted."""

    def mask_scores(self, scores: Array) -> Array:
        """Hide what is not marked."""
        hidden = self.problem.hidden()
        shown: Array = np.where(hidden, scores, -np.inf) if hidden.any() else scores
        return shown


class AndGlobalMaximum(Float32Weights):
    """And the maximum is that of the whole array."""

    def softmax(self, scores: Array) -> Array:
        """Subtract one number from all rows."""
        with np.errstate(all="ignore"):
            powers = np.exp(scores - scores.max(initial=-np.inf))
            weights = powers / powers.sum(axis=-1, keepdims=True)
        return np.asarray(weights.astype(np.float32).astype(weights.dtype))


def said(kind: type[Attention], offered: object) -> list[str]:
    """Return what the experiments find, the first first."""
    candidate = FunctionCandidate("planted", lambda p: answer_of(kind, p), offered)  # type: ignore[arg-type]  # an offer
    return [each.text for each in cause_findings(run_experiments(Caller(candidate, lambda: True)))]


@pytest.mark.parametrize(
    ("kind", "offered", "first"),
    [
        (AndInverted, FULL, "the mask is inverted: what it marks is seen"),
        (AndGlobalMaximum, LAYER, "rows whose scores are all below"),
    ],
)
def test_what_is_wrong_in_every_dtype_is_said_before_lost_digits(
    kind: type[Attention], offered: object, first: str
) -> None:
    """Float64 alone shows the rounding; both dtypes show the other cause, which comes first."""
    found = said(kind, offered)
    assert first in found[0]
    assert any(ROUNDED in each for each in found[1:])


def test_lost_digits_alone_are_all_that_is_said() -> None:
    """In float32 nothing is wrong."""
    found = said(Float32Weights, FULL)
    assert 1 == len(found)
    assert ROUNDED in found[0]


class InfiniteWithoutKeys(Attention):
    """Rows without a key are infinite."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Return infinity of nothing."""
        return super().apply_weights(weights, v) + (0 if v.shape[-2] else np.inf)


class HalfRowSums(InfiniteWithoutKeys):
    """And row sums are kept in float16."""

    def softmax(self, scores: Array) -> Array:
        """Divide by the rounded sum."""
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-1e300))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True).astype(np.float16))


def test_a_rounding_that_small_changes_of_the_inputs_leave_is_said_first() -> None:
    """A row sum moves less than a unit of float16, so its error is a pattern; no keys come last."""
    found = said(HalfRowSums, EMPTY)
    assert "the stage `row sums` is rounded to float16" in found[0]
    assert "with no keys (S = 0)" in found[-1]


class UnlikeRows(InfiniteWithoutKeys):
    """And each row's weights are changed by a factor of its own, by no rule that is tried."""

    def softmax(self, scores: Array) -> Array:
        """Add up to 2e-4 of the weights."""
        rows = np.random.default_rng(scores.shape[-1]).random(scores.shape[-2])[:, None]
        return np.asarray(super().softmax(scores) * (1 + 2e-4 * rows * np.tanh(scores)))


def test_what_is_not_understood_of_plain_problems_is_said_beside_what_is() -> None:
    """That rows without keys are infinite explains no row that has some."""
    candidate = FunctionCandidate("planted", lambda p: answer_of(UnlikeRows, p), EMPTY)
    found = ExperimentDiagnosis(candidate, lambda: True).causes
    assert [True, False] == ["rows of weights" in each.title for each in found]
    assert "with no keys (S = 0)" in found[-1].title
