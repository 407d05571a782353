"""What is wrong besides lost digits is asked in the dtype that has no more of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.catalogue import Attention, attend
from mha_parity.core.candidate import FunctionCandidate
from mha_parity.core.features import offer
from mha_parity.diagnose.experiments.calls import Caller
from mha_parity.diagnose.experiments.examination import examine, findings

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

FULL = offer(
    form="qkv", projection="none", inputs=("self", "cross"), attn=("none", "bool2d"),
    dtype=("float64", "float32"), size=("small",),
)  # fmt: skip
LAYER = offer(inputs=("self",), dtype=("float64", "float32"), size=("small",))
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
    candidate = FunctionCandidate("planted", lambda p: attend(kind, p), offered)  # type: ignore[arg-type]  # an offer
    return [each.text for each in findings(examine(Caller(candidate, lambda: True)))]


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
    assert len(found) == 1
    assert ROUNDED in found[0]
