"""Black-box probes: what a candidate does, read from outside, said in words with numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.catalogue import Attention, answer_of, catalogue, whole_offer
from mha_parity.core.candidate import CandidateError, FunctionCandidate
from mha_parity.core.features import make_offer
from mha_parity.diagnose import measurements
from mha_parity.diagnose.locate import first_wrong_stage
from mha_parity.diagnose.read_weights import SIZES, fit_scale, plain_case, read_weights

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer, Candidate
    from mha_parity.core.problem import Problem

NO_INDEX = "nowhere in plain problems: only with particular sizes, values or features"
PROJECTED = make_offer(form="qkv", projection="none", inputs=("self", "cross"))
D = SIZES["head_dim"]
HEADS = 3


def of(kind: type[Attention], offered: dict[str, tuple[str, ...]] | None = None) -> Candidate:
    """Return an attention as a candidate."""
    return FunctionCandidate("planted", lambda p: answer_of(kind, p), offered or whole_offer())


def said(candidate: Candidate) -> str:
    """Return all that the probes say."""
    return "\n".join(measurements.measure(candidate))


def departs(candidate: Candidate) -> str:
    """Return the stage at which it first departs."""
    reading = read_weights(candidate, plain_case(candidate.offer))
    assert reading is not None
    return first_wrong_stage(candidate, reading)


class Scaled(Attention):
    """Another factor on the scores."""

    factor = 0.123

    def scale(self) -> float:
        """Return the planted factor."""
        return self.factor


class OverQueries(Attention):
    """A softmax over the queries."""

    def softmax(self, scores: Array) -> Array:
        """Normalise columns."""
        powers = np.exp(scores - scores.max(axis=-2, keepdims=True))
        return np.asarray(powers / powers.sum(axis=-2, keepdims=True))


class NextChannel(Attention):
    """Every value channel written one channel further."""

    def merge(self, x: Array) -> Array:
        """Roll the merged channels."""
        return np.roll(super().merge(x), 1, axis=-1)


class Neighbour(Attention):
    """Keys of the next sample."""

    def split(self, x: Array, heads: int) -> Array:
        """Add a little of the next sample."""
        own = super().split(x, heads)
        return own + 0.1 * np.roll(own, 1, axis=0)


@pytest.mark.parametrize("offered", [whole_offer(), PROJECTED], ids=["layer", "projected"])
def test_the_weights_are_read_out(offered: dict[str, tuple[str, ...]]) -> None:
    """With unit vectors as values the output is the weights: a right attention's, exactly."""
    reading = read_weights(of(Attention, offered), plain_case(offered))
    assert reading is not None
    # The oracle and the candidate are one computation, so that only the read-out could differ.
    assert np.abs(reading.weights - reading.right).max() < 100 * 2**-52
    slopes, misfit = fit_scale(reading)
    assert slopes is not None
    assert np.abs(slopes * math.sqrt(D) - 1).max() < 1e-9
    assert misfit < 1e-9


@pytest.mark.parametrize("offered", [whole_offer(), PROJECTED], ids=["layer", "projected"])
def test_nothing_is_said_of_a_right_attention(offered: dict[str, tuple[str, ...]]) -> None:
    """A right attention departs nowhere, and no probe finds anything odd."""
    assert (f"the first stage to depart from torch: {NO_INDEX}",) == measurements.measure(
        of(Attention, offered)
    )


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("scale-dmodel", f"{(HEADS * D) ** -0.5:.4f} = 1/sqrt(d_model)"),
        ("scale-num-heads", f"{HEADS**-0.5:.4f} = 1/sqrt(num_heads)"),
        ("scale-linear", f"{1 / D:.4f} = 1/head_dim"),
        ("scale-none", "the scores are not scaled"),
        ("softmax-base2", f"{math.log(2) * D**-0.5:.4f} = ln 2/sqrt(head_dim)"),
    ],
)
def test_a_wrong_scale_is_measured_and_named(name: str, sentence: str) -> None:
    """The factor is read from log-ratios of the weights, and spelled in the sizes it is made of."""
    text = said(catalogue()[name].candidate())
    assert f"expected {D**-0.5:.4f} = 1/sqrt(head_dim); " in text
    assert sentence in text
    assert "scale" == departs(catalogue()[name].candidate())


def test_a_scale_of_no_formula_is_measured_alone() -> None:
    """A planted factor comes back to all digits shown, without a formula that it is not."""
    text = said(of(Scaled))
    expected = f"{1 / math.sqrt(D):.4f} = 1/sqrt(head_dim) ({0.123 * math.sqrt(D):.4g} times that)"
    assert f"effective scale 0.1230, expected {expected}" in text


def test_each_heads_own_scale_is_reported() -> None:
    """Heads that differ in scale are listed one by one."""

    class Uneven(Attention):
        def scores(self, q: Array, k: Array) -> Array:
            each = np.arange(1, 1 + q.shape[1])[:, None, None]
            return np.asarray(super().scores(q, k) * each)

    scales = ", ".join(f"{h / math.sqrt(D):.4f}" for h in (1, 2, 3))
    assert f"each head has its own scale: {scales}" in said(of(Uneven))


@pytest.mark.parametrize(
    ("name", "axis"),
    [
        ("softmax-query-axis", "each column (over the queries)"),
        ("softmax-head-axis", "each cell over the heads"),
        ("softmax-batch-axis", "each cell over the samples"),
        ("softmax-joint-heads", "each query over heads and keys"),
        ("softmax-whole-matrix", "each head's whole matrix"),
    ],
)
def test_the_softmax_axis_is_read_from_sums(name: str, axis: str) -> None:
    """Whatever the weights sum to 1 over is the axis of the softmax."""
    text = said(catalogue()[name].candidate())
    assert f"weights sum to 1 in {axis}, but should in each row (over the keys)" in text


def test_the_axis_of_a_planted_softmax_is_read_on_projected_rows() -> None:
    """The same without a layer around it."""
    assert "each column (over the queries)" in said(of(OverQueries, PROJECTED))


@pytest.mark.parametrize(
    ("name", "reached"),
    [("split-no-transpose", f"1, {1 + D}, {1 + 2 * D}"), ("merge-d-major", "3")],
)
def test_channels_show_how_heads_are_grouped(name: str, reached: str) -> None:
    """A channel of v reaches its own output channel alone; elsewhere heads are grouped wrongly."""
    assert f"channel 1 of v reaches output channels {reached}" in said(
        catalogue()[name].candidate()
    )


def test_a_rolled_channel_is_reported() -> None:
    """A planted shift by one is said as such."""
    assert "channel 1 of v reaches output channels 2" in said(of(NextChannel))


def test_samples_that_reach_each_other_are_reported() -> None:
    """Changing one sample must change that one alone."""
    assert "changing sample 0 changes the answers to samples [0, 1]" in said(of(Neighbour))


def test_rows_that_reach_each_other_are_reported() -> None:
    """Changing one query must change its row alone; over the queries, a softmax mixes them all."""
    assert "changing query row 1 changes output rows [0, 1, 2, 3]" in said(of(OverQueries))


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("causal-forced", "keys after the query (a causal mask that was not asked for)"),
        ("self-unseen", "the key at the query's own place"),
        ("last-key-unseen", "the last key"),
    ],
)
def test_hidden_keys_are_reported(name: str, pattern: str) -> None:
    """Keys that no mask hides and that yet have no weight are named by their pattern."""
    assert f"hidden without reason: {pattern}" in said(catalogue()[name].candidate())


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("qkv-order-kqv", "projection, split or scores of q and k"),
        ("qkv-order-qvk", "projection of v, mixing or merge"),
        ("q-bias-unscaled", "biases of q, k (bias=yes)"),
        ("scale-none", "scale"),
        ("scale-includes-mask", "mask (padding=float)"),
        ("mask-ignored", "mask (padding=bool)"),
        ("mask3d-tile-order", "mask (attn=bool3d)"),
        ("causal-loose", "mask (attn=causal)"),
        ("causal-strict", "mask (attn=causal)"),
        ("softmax-plus-one", "softmax (its rows do not sum to 1)"),
        ("zeroattn-ignored", "appended keys (zero_attn=yes)"),
        ("projection-skipped", "projection of v, mixing, merge or output projection"),
        ("out-proj-transposed", "output projection"),
        ("weights-transposed", "the weights that are returned"),
    ],
)
def test_the_first_departing_stage(name: str, first: str) -> None:
    """Each stage from the projections to the returned array is distinguished from earlier ones."""
    assert departs(catalogue()[name].candidate()).startswith(first)


def test_a_sum_just_off_is_reported_with_its_distance() -> None:
    """A softmax in float32 shows in the last digits of a float64 sum, and the words say how far."""
    text = said(catalogue()["f64-capped-at-f32"].candidate())
    assert "rows of weights sum to 1 within " in text
    assert "e-08 alone" in text


@pytest.mark.parametrize(("severity", "said_so"), [("crash", True), ("inconclusive", False)])
def test_a_candidate_without_answer_is_said_to_have_none(severity: str, said_so: bool) -> None:
    """Where even the plainest problem fails there is nothing to measure, and that is said.

    Nothing is said of one that is asked no more: it may answer.
    """

    def silent(_: Problem) -> Answer:
        raise CandidateError(severity, "no answer")

    found = measurements.measure(FunctionCandidate("silent", silent, whole_offer()))
    no_answer = "the candidate does not answer the plainest problem that it offers"
    assert ((no_answer,) if said_so else ()) == found
