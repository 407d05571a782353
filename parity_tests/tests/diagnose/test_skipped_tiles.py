"""Tiles of keys that a kernel skips are said to be skipped, with their width and below what."""

from __future__ import annotations

import numpy as np
import pytest

from mha_parity.core.options import Options
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.scores.skipped_tiles import depth_limits
from mha_parity.diagnose.experiments.weights import causes_of_falling_scores
from mha_parity.worker.open_target import bind_in_process
from subject_checks import check_subject, load_subject

TOP = "are skipped where their largest score lies more than"
BEFORE = "below that of the tiles before"
DEPTH = "all their scores lie {} or more below the largest before them"
IN_ALL_ROWS = "tiles of keys ({}) get no weight in some rows: " + DEPTH


@pytest.mark.repeats(1)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("two_below", f"tiles of 16 keys {TOP} 1.99 … 2 {BEFORE}"),
        ("a_tenth", f"tiles of 8 keys {TOP} 2.3 … 2.31 {BEFORE}"),
        ("of_two_rows", f"tiles of 8 keys {TOP} 1 {BEFORE} in all rows of a tile of rows"),
    ],
)
def test_the_threshold_is_measured(name: str, said: str) -> None:
    """The width and the depth are those of the code."""
    verdict = check_subject(f"skipped_tiles.py:{name}", cases=200, diagnose=True)
    assert verdict.failures
    assert said == verdict.diagnosis[0].title


def test_scores_that_fall_show_what_all_rows_skip() -> None:
    """The depth that is seen is said, and no threshold, where all rows skip the same tiles."""
    subject = load_subject("skipped_tiles.py:of_many_rows")
    asked = bind_in_process(subject, Options(cases=18))
    (cause,) = causes_of_falling_scores(Caller(asked, lambda: True))
    assert IN_ALL_ROWS.format("the first at key 64 of 191", "2.3") == cause.text


@pytest.mark.parametrize("name", ["merged", "underflowing"])
def test_what_skips_nothing_that_has_a_weight_passes(name: str) -> None:
    """No tile, or one of weights that are 0 in float64, is no cause."""
    verdict = check_subject(f"skipped_tiles.py:{name}", cases=200, diagnose=True)
    assert ((), ()) == (verdict.failures, verdict.diagnosis)


@pytest.mark.parametrize(("lost", "limits"), [(3.0, (2.0, 3.0)), (2.0, None), (1.0, None)])
def test_a_threshold_needs_all_that_is_kept_on_one_side(
    lost: float, limits: tuple[float, float] | None
) -> None:
    """A tile that is lost at the depth of one that is kept leaves no threshold between them."""
    depth = np.array([[[0.5, 1.0, 1.5, 2.0, lost]]])
    skipped = np.array([[[False] * 4 + [True]]])
    assert limits == depth_limits(depth, 1, skipped, ~skipped)


@pytest.mark.parametrize("name", ["a_thousandth", "a_ten_millionth"])
def test_few_small_errors_of_float64_are_not_those_of_float32(name: str) -> None:
    """Most cases of float64 hold: a kernel that is right but in some tiles computes in float64.

    Kills float32 named by the few answers whose errors are small enough for its bounds.
    """
    verdict = check_subject(f"skipped_tiles.py:{name}", cases=300, diagnose=True)
    failing = {row.value: row.failed for row in verdict.features if row.axis == "dtype"}
    assert failing["float64"]
    assert not any("float32" in each.title for each in verdict.diagnosis), verdict.diagnosis
