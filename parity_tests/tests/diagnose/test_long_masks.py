"""What a causal rule does beyond one tile is read at 131 rows; else the rows are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue import Attention, answer_of
from mha_parity.core.candidate import Answer, CandidateError, FunctionCandidate
from mha_parity.core.features import make_offer
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.masks.masks import masks
from mha_parity.diagnose.experiments.run_experiments import cause_findings, run_experiments
from mha_parity.diagnose.identify import identify

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem

LAYER = make_offer(inputs=("self",), attn=("none", "causal"))
PROJECTED = make_offer(
    form="qkv", projection="none", inputs=("self", "cross"), attn=("none", "causal")
)
TILE, RULE = 64, "attn=causal at L = S = 131"


class CountedAnew(Attention):
    """The causal rule counts the rows of each tile of 128 from 0."""

    def mask_scores(self, scores: Array) -> Array:
        """Hide the keys behind the row's place in its tile."""
        rows, keys = (np.arange(n) for n in scores.shape[-2:])
        seen = keys <= rows[:, None] % 128
        return np.where(seen | (not self.problem.is_causal), scores, -np.inf)


class NotRescaled(Attention):
    """On the diagonal tile what was accumulated is not rescaled, the sum of exponentials is."""

    def softmax(self, scores: Array) -> Array:
        """Weigh the keys before the row's own tile by the maximum that they had."""
        if not self.problem.is_causal:
            return super().softmax(scores)
        right = super().softmax(scores)
        keys, rows = (np.arange(n) // TILE for n in (scores.shape[-1], scores.shape[-2]))
        before = keys < rows[:, None]
        own, earlier = (
            np.where(which, scores, -np.inf).max(axis=-1, keepdims=True) for which in (True, before)
        )
        late = np.where(np.isfinite(earlier), own - earlier, 0)
        return np.asarray(np.where(before, right * np.exp(late), right))


def long_rows_doubled(problem: Problem) -> Answer:
    """Return twice the rows from 128 on, and none where a value is 0: weights cannot be read."""
    if problem.query.shape[1] > TILE and problem.is_causal:
        if problem.w_v is not None and np.any(problem.w_v == 0):
            raise CandidateError("crash", "raised ValueError: a weight is 0")
        output = answer_of(Attention, problem).output
        output[:, 128:] *= 2
        return Answer(output=output)
    return answer_of(Attention, problem)


def equal_lengths_alone(problem: Problem) -> Answer:
    """Return the right answer; a causal rule raises for keys of another number than queries."""
    if problem.is_causal and problem.query.shape[1] != problem.key.shape[1]:
        raise CandidateError("crash", "raised ValueError: causal attention is of one sequence")
    return answer_of(Attention, problem)


def effects(asked: Caller) -> dict[str, str]:
    """Return what each mask does instead, by its name."""
    return {each.name: each.effect for each in masks(asked)}


def test_rows_that_are_counted_anew_in_each_tile_are_said(caller: Callable[..., Caller]) -> None:
    """The weights of a layer are read by inputs as wide as there are keys."""
    assert "keys 0 … i % 128 (counted" in effects(caller(CountedAnew, LAYER))[RULE]


def test_tiles_that_are_merged_wrongly_under_a_mask_are_said(
    caller: Callable[..., Caller],
) -> None:
    """Without the causal rule all is right, and with it within each tile; the remedy fits."""
    asked = caller(NotRescaled, PROJECTED | {"inputs": ("self",)})
    (found,) = cause_findings(run_experiments(asked))
    assert "with attn=causal at L = S = 131: keys are combined in tiles of 64" in found.text
    assert "exp(old maximum - new maximum)" in found.remedy


def test_rows_are_named_where_weights_cannot_be_read() -> None:
    """Nothing is said of weights that no call showed."""
    candidate = FunctionCandidate("doubles", long_rows_doubled, LAYER)
    found = effects(Caller(candidate, lambda: True))
    assert "row 128–130 of 131 is wrong, the weights cannot be read" == found[RULE]


def test_a_rule_of_equal_lengths_alone_has_its_identity_card() -> None:
    """A right causal rule that raises for unequal lengths keeps j <= i."""
    card = identify(FunctionCandidate("square", equal_lengths_alone, PROJECTED), "square")
    (line,) = (each for each in card.measures if each.experiment.startswith("attn=causal"))
    assert line.as_torch
