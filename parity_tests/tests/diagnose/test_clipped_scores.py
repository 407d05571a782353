"""Clips that large scores alone reach, and small weights that are changed, in self-attention."""

from __future__ import annotations

import pytest

from mha_parity.core.options import Options
from mha_parity.diagnose.experiments.conditions.values import SHARED
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.run_experiments import cause_findings, run_experiments
from mha_parity.worker.open_target import bind_in_process
from subject_checks import check_subject, load_subject

AGAIN_IS = ", and each row is divided by its sum again"
AGAIN = ", and each row divided by its sum again"


def sentences(name: str) -> list[str]:
    """Return what the experiments find in a layer of the file."""
    target = bind_in_process(load_subject(f"large_scores.py:{name}"), Options(cases=18))
    return [each.text for each in cause_findings(run_experiments(Caller(target, lambda: True)))]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ClippedScores", "scores are clipped to ±50 before the softmax"),
        (
            "UnlikeClips",
            "scores are clipped at 66 from above and at -60 from below before the softmax",
        ),
        ("ClippedBelowMaximum", "scores are clipped to 20 below the largest of their row"),
    ],
)
def test_a_clip_that_large_scores_reach_is_named_with_its_constant(name: str, said: str) -> None:
    """Beyond the clip all scores are alike: the constant is where the output stops being right."""
    assert [said] == sentences(name)


def test_an_overflow_of_exp_is_no_clip() -> None:
    """Without a maximum that is subtracted rows are NaN, in a layer of one array as elsewhere."""
    (found,) = sentences("WithoutMaximum")
    assert "in float64, rows whose scores are all above 704 … 720 are NaN" in found


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("RaisedWeights", "weights below 1e-09 are raised to it"),
        ("DroppedWeights", "weights below 1e-05 are set to 0"),
        (
            "DroppedAndDivided",
            "weights below 0.0001 are set to 0, and each row is divided by its sum again",
        ),
        (
            "CausalDropped",
            "weights below 0.0001 are set to 0, and each row is divided by its sum again",
        ),
        (
            "DroppedBesideLargest",
            "weights below 0.001 of the largest of their row are set to 0" + AGAIN_IS,
        ),
        ("CausalRaised", "weights below 1e-09 are raised to it"),
        ("AddedToWeights", "1e-09 is added to each weight, behind the softmax"),
        (
            "AddedAndDivided",
            "1e-08 is added to each weight, behind the softmax" + AGAIN,
        ),
        (
            "SmoothedWeights",
            "1e-07 divided by the number of keys is added to each weight, behind the softmax"
            + AGAIN,
        ),
    ],
)
def test_what_becomes_of_small_weights_is_named_with_its_constant(name: str, said: str) -> None:
    """A least weight, a threshold and an addend differ, also where rows are divided again."""
    assert [said] == sentences(name)


def test_tiles_that_are_skipped_at_peaked_rows_alone_are_named() -> None:
    """Rows of scores of a standard deviation of 1 see all keys: longer peaked ones are read."""
    (found,) = sentences("SkippedTiles")
    assert found.startswith("tiles of 16 keys are skipped where their largest score lies more than")


def test_a_right_layer_shows_nothing() -> None:
    """The same layer with neither step replaced."""
    assert not sentences("Layer")


def test_one_maximum_for_all_rows_is_unlike_a_large_hidden_score() -> None:
    """Of functions that take one array three times, in float32 alone: such rows are keys too.

    Kills a largest score at which float32 allows any output, and rows that are their own keys.
    """
    verdict = check_subject(
        "large_scores.py:one_maximum", cases=120, dtypes=("float32",), diagnose=True
    )
    assert verdict.diagnosis[0].title.endswith(SHARED), verdict.diagnosis
