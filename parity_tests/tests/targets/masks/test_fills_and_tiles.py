"""Finite fills, masks of ones and zeros, tiles that are called as lengths are."""

from __future__ import annotations

import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.case import parse
from mha_parity.core.parameters import Status
from mha_parity.core.verdict import Outcome
from mha_parity.targets.bind import bind
from mha_parity.targets.masks import finite_fill
from subject_checks import check_subject, load_subject

FILE = "fills_and_tiles.py"


@pytest.mark.parametrize(
    ("name", "regimes"),
    [
        ("CausalFilledByThousand", ["huge", "very_negative", "wide_range"]),
        ("CausalFilledByFiveThousand", ["huge", "wide_range"]),
        ("CausalFilled", ["wide_range"]),
        ("CausalFilledBesideAMask", ["wide_range"]),
        ("filled_by_lengths", ["wide_range"]),
    ],
)
def test_a_finite_fill_takes_back_regimes_of_larger_scores(name: str, regimes: list[str]) -> None:
    """Whatever the size of the fill: a note, and no failure.

    So do a mask, lengths and the layer's own causal rule.
    """
    bound = bind(load_subject(f"{FILE}:{name}"))
    below = {key: why for key, why in bound.reasons.items() if why == finite_fill.REASON}
    assert regimes == [value for _, value in below]
    verdict = check_subject(f"{FILE}:{name}", cases=200, diagnose=False)
    assert Outcome.PASS == verdict.outcome, verdict
    assert finite_fill.REMARK in verdict.notes


def test_a_fill_below_the_scores_of_all_cases_takes_back_nothing() -> None:
    """Every regime is asked, and no remark says otherwise."""
    verdict = check_subject(f"{FILE}:filled_below_all", cases=200)
    assert Outcome.PASS == verdict.outcome, verdict
    assert finite_fill.REMARK not in verdict.notes
    assert "wide_range" in bind(load_subject(f"{FILE}:filled_below_all")).offer["regime"]


@pytest.mark.parametrize("name", ["CausalFilledWithinExp", "CausalFilledTooHigh"])
def test_a_fill_that_ordinary_scores_pass_is_asked_in_all_regimes(name: str) -> None:
    """Scores whose exp float64 holds lie below it: nothing is taken back, and cases fail."""
    bound = bind(load_subject(f"{FILE}:{name}"))
    assert finite_fill.REASON not in bound.reasons.values()
    verdict = check_subject(f"{FILE}:{name}", cases=200, fail_fast=True)
    assert Outcome.FAIL == verdict.outcome, verdict


@pytest.mark.repeats(2)
@pytest.mark.parametrize(
    "name",
    [
        "filled_by_lengths_too_high",
        "OneMinusMaskFirstHead",
        "SwitchInPlaceOfMask",
        "KeyTilesDropped",
    ],
)
def test_wrong_twins_fail(name: str) -> None:
    """Each is the right one of this file but for one line."""
    verdict = check_subject(f"{FILE}:{name}", cases=200, fail_fast=True)
    assert Outcome.FAIL == verdict.outcome, verdict


def test_a_required_mask_of_ones_and_zeros_is_passed() -> None:
    """A layer takes 1 - mask, which torch refuses for booleans: ones of the inputs' dtype."""
    verdict = check_subject(f"{FILE}:OneMinusMask", cases=200, diagnose=False)
    assert Outcome.PASS == verdict.outcome, verdict
    assert any("`attention_mask`: 1 keeps" in note for note in verdict.notes)


def test_a_switch_that_raises_beside_some_shapes_of_a_mask_is_passed_alone() -> None:
    """Every shape is tried beside it, not the first alone."""
    verdict = check_subject(f"{FILE}:SwitchOrShape", cases=200, diagnose=False)
    assert Outcome.PASS == verdict.outcome, verdict
    assert any("`is_causal` and `attn_mask` are not passed" in n for n in verdict.notes)


def test_a_switch_is_passed_as_often_as_an_array_of_any_shape() -> None:
    """At L = S half of the causal cases pass it, though ten arrays of five shapes say the same."""
    plan = bind(load_subject(f"{FILE}:SwitchOrShape")).masks
    assert plan is not None
    causal = parse("mha-N2-L5-S5-H2-D3-bias-outproj-causal-float64-s0")
    passed = [plan.passed(make_problem(causal.replace(seed=seed))) for seed in range(100)]
    by_switch = sum(any(each.value is True for each in one.values()) for one in passed)
    assert 35 < by_switch < 65


def test_a_tile_stays_at_its_default_and_a_bound_grows() -> None:
    """`block_size` is not passed where longer inputs are answered without, and is elsewhere."""
    tiles, bound = (
        check_subject(f"{FILE}:{name}", cases=200, diagnose=False)
        for name in ("KeyTiles", "BoundedLength")
    )
    assert [Outcome.PASS] * 2 == [tiles.outcome, bound.outcome], (tiles, bound)
    status = [
        each.status
        for verdict in (tiles, bound)
        for each in verdict.parameters
        if each.name == "block_size"
    ]
    assert [Status.NOT_TRIED, Status.TRIED] == status


def test_a_largest_length_by_name_grows_though_plain_calls_do_without() -> None:
    """Only the causal rule reads it. Kills a trial of plain calls that takes it for a tile."""
    verdict = check_subject(f"{FILE}:LargestLength", cases=200, diagnose=False)
    assert Outcome.PASS is verdict.outcome, verdict
    assert Status.TRIED in [e.status for e in verdict.parameters if e.name == "max_seq_len"]
