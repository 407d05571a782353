"""Fewer key heads are judged wherever a function takes them, and only there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome
from mha_parity.diagnose.experiments.designs.variants import OUTPUT_ORDER, QUERY_ORDER
from mha_parity.run.check import check
from mha_parity.targets.bind import bind
from mha_parity.targets.convention_base.grouped_heads import NO_GROUPS, TILES
from mha_parity.targets.load import load
from subject_checks import SUBJECTS, check_subject

if TYPE_CHECKING:
    from pathlib import Path

FILE = SUBJECTS / "grouped_heads.py"
COUNTED = SUBJECTS / "counted_key_heads.py"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        *((FILE, name) for name in ("grouped", "grouped_kernel", "repeated")),
        *((COUNTED, name) for name in ("of_weights", "of_rows", "two_by_default", "ByRatio")),
    ],
)
def test_a_right_one_passes_with_fewer_key_heads(file: Path, name: str) -> None:
    """Cases with fewer key heads are drawn, and all pass; a call with their number gets it."""
    verdict = check(bind(load(f"{file}:{name}")), Options(cases=30, seed=3, shrink=False))
    drawn = next(row for row in verdict.features if (row.axis, row.value) == ("kv_heads", "fewer"))
    assert drawn.cases >= 5
    assert verdict.outcome is Outcome.PASS


def test_three_axes_whose_lengths_are_taken_for_heads_are_not_asked() -> None:
    """They get the right answer at L = S, and that of no keys at others."""
    found = bind(load(f"{FILE}:repeated"))
    assert "unbatched" not in found.offer["layout"]
    assert "zero-size" in found.reasons["layout", "unbatched"]


@pytest.mark.repeats(2)
@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("grouped_heads.py:grouped_out_of_order", OUTPUT_ORDER),
        ("counted_key_heads.py:ExchangedLayer", QUERY_ORDER),
        ("grouped_heads.py:grouped_with_split_exchanged", QUERY_ORDER),
        ("counted_key_heads.py:OutputExchangedLayer", OUTPUT_ORDER),
        ("grouped_heads.py:tiled_kernel", "key heads are tiled"),
        ("counted_key_heads.py:TiledByRatio", "key heads are tiled"),
    ],
)
def test_a_wrong_order_of_heads_is_said(name: str, effect: str) -> None:
    """Each output head is the attention of one query head and one key head: of which is said.

    This holds for functions of heads and for layers with projections.
    """
    verdict = check(bind(load(f"{SUBJECTS}/{name}")), Options(cases=30, seed=3, shrink=False))
    assert verdict.outcome is Outcome.FAIL
    assert effect in verdict.diagnosis[0].title
    assert "look at" not in verdict.diagnosis[0].remedy


@pytest.mark.parametrize(
    ("name", "reason"),
    [("folded", NO_GROUPS), ("equal_heads", "raised ValueError"), ("documented_tiles", TILES)],
)
def test_what_groups_nothing_is_not_asked_for_it(name: str, reason: str) -> None:
    """An answer of the right shape is no grouping; tiles that are documented are not torch's."""
    bound = bind(load(f"{FILE}:{name}"))
    assert ("equal",) == bound.offer["kv_heads"]
    assert reason in bound.reasons["kv_heads", "fewer"]


def test_what_the_module_documents_is_read() -> None:
    """Of the order of heads, and of float32: kills documentation of the target alone."""
    for name in ("attention", "Striped"):
        right = check_subject(f"documented_by_module.py:{name}", cases=60)
        assert Outcome.PASS is right.outcome, right.sentence
        left = {each.value: each.reason for each in right.features if each.status == "not offered"}
        assert TILES == left["fewer"]
        assert "float64" in left
    for name in ("unscaled", "Reversed"):
        wrong = check_subject(f"documented_by_module.py:{name}", cases=60)
        assert Outcome.FAIL is wrong.outcome, wrong.sentence


def test_heads_that_are_in_no_tiles_as_documented_fail() -> None:
    """The order that the documentation names is left to it where calls show that order alone."""
    name = f"{FILE}:documented_otherwise"
    verdict = check(bind(load(name)), Options(cases=30, seed=3, shrink=False))
    assert verdict.outcome is Outcome.FAIL


def test_heads_with_a_linear_each_are_not_asked_for_fewer_keys() -> None:
    """An array of one head has its size however many heads there are: no call is tried."""
    bound = bind(load(f"{SUBJECTS}/layers_in_the_wild.py:HeadsOfAConfig"))
    assert ("equal",) == bound.offer["kv_heads"]
    assert ("kv_heads", "fewer") not in bound.reasons


@pytest.mark.parametrize("name", ["tiled", "first_for_all"])
def test_fewer_key_heads_that_are_read_in_a_wrong_order_fail(name: str) -> None:
    """With as many key heads as query heads they are right: only fewer show it."""
    verdict = check(bind(load(f"{COUNTED}:{name}")), Options(cases=30, seed=3, shrink=False))
    assert verdict.outcome is Outcome.FAIL
    assert {"fewer"} == {
        row.value for row in verdict.features if row.failed and row.axis == "kv_heads"
    }


def test_a_number_that_counts_otherwise_stays_at_its_default() -> None:
    """As many as there are query heads, it would leave one key head: no trial fits, but that."""
    bound = bind(load(f"{COUNTED}:counted_by_rest"))
    assert ("equal",) == bound.offer["kv_heads"]
    verdict = check(bound, Options(cases=30, seed=3, shrink=False))
    assert verdict.outcome is Outcome.PASS
    assert {"num_groups"} == {each.name for each in verdict.parameters if each.status != "tried"}


def test_a_layer_that_raises_with_the_key_heads_of_its_constructor_fails() -> None:
    """Kills a trial that takes the promise back: it was green, with the parameter not tried."""
    verdict = check_subject("grouped_layers.py:NeverRepeats", cases=40, dtypes=("float64",))
    assert Outcome.FAIL is verdict.outcome
    assert {"fewer"} == {each.case.features()["kv_heads"] for each in verdict.failures}
