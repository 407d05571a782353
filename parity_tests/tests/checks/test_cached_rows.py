"""Layers that decode with a key/value cache are asked row by row, however the cache is passed."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from cached_layers import (
    PROTOCOLS,
    BeginsAnew,
    BreaksAtFourRows,
    Concatenates,
    DynamicCache,
    FirstRowStale,
    Float32Cache,
    Grouped,
    Ignores,
    LastRowOfEach,
    Layer,
    Leaves,
    ManyRows,
    NoNumbers,
    NotItself,
    OddlyAnnotated,
    OfFourRows,
    OfMemory,
    OneHead,
    OneRowAtATime,
    Pair,
    Stacked,
    Tiled,
    TopLeft,
    TopLeftOfSeveral,
    Unmasked,
    UnmaskedShort,
    Updates,
    ValuesFirst,
)
from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import catalogue, passed_cache
from mha_parity.catalogue.plain_layer import bound_layer
from mha_parity.checks.cached_rows import (
    AFTERWARDS,
    ANEW,
    BEGINS,
    CAUSES,
    GROUPED,
    NAME,
    NOT_TOGETHER,
    OF_FLOAT32,
    STALE,
    TOGETHER,
    UNSEEN,
    check_cached_rows,
)
from mha_parity.checks.call_effects import MonitoredCandidate
from mha_parity.checks.compared_calls import compared_calls_reported
from mha_parity.core.candidate import REMARK
from mha_parity.core.case import Case
from mha_parity.core.options import Options
from mha_parity.core.parameters import Status
from mha_parity.core.verdict import Outcome
from mha_parity.oracle.torch_answers import problem_of
from mha_parity.run.check import check
from mha_parity.targets.bind import bind
from mha_parity.targets.calls.cache_arguments import CacheUse

CASE = Case(seed=3, batch=2, queries=6, keys=6, heads_count=2, head_dim=3, inputs="self")
PROBLEM = make_problem(CASE)


def findings(kind: type, number: int = 0) -> list[str]:
    """Return what the check says of a layer."""
    return list(check_cached_rows(bind(kind), PROBLEM, number))


@pytest.mark.parametrize("kind", PROTOCOLS, ids=lambda kind: kind.__name__)
def test_ways_to_pass_a_cache_are_found_and_hold(kind: type[Layer]) -> None:
    """A right layer is asked with its cache, in whatever way that is passed, and holds."""
    assert PROTOCOLS[kind] == bind(kind).cache
    assert [[NAME]] * len(BEGINS) == [findings(kind, number) for number in range(len(BEGINS))]


@pytest.mark.parametrize("number", range(len(BEGINS)))
@pytest.mark.parametrize(("clause", "bug"), CAUSES.items())
def test_wrong_caches_are_named(clause: str, bug: str, number: int) -> None:
    """The clause that a wrong cache of the catalogue ends with is that of its own name."""
    kind = catalogue()[bug].layer
    assert kind is not None
    said = [*check_cached_rows(bound_layer(kind()), PROBLEM, number)]
    assert said[1].endswith(f"asked with the cache of those before it: {clause}.")


def test_the_right_cached_layer_of_the_catalogue_holds() -> None:
    """The layer that the wrong ones are changed from has no finding, in cases of all kinds."""
    candidate = MonitoredCandidate(bound_layer(passed_cache.CachedLayer))
    verdict = check(candidate, Options(cases=60, diagnose=False, shrink=False))
    assert Outcome.PASS == verdict.outcome, verdict.failures[0].check_result.detail
    assert any(NAME == row.name and row.cases for row in verdict.checks)


@pytest.mark.parametrize(
    ("kind", "said"),
    [(TopLeft, UNSEEN), (ValuesFirst, "in row 2"), (Leaves, AFTERWARDS), (FirstRowStale, STALE)],
)
def test_wrong_rows_are_found(kind: type, said: str) -> None:
    """A causal mask at the wrong corner, mixed orders and what a cache leaves are findings."""
    assert said in findings(kind)[1]


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        (TopLeft, ["rows 0 to 1 begin a cache", "row 2, with it", "rows 0 to 2 without a cache"]),
        (
            TopLeftOfSeveral,
            ["the rows before", "two new rows, with their cache", "the whole, of which the last"],
        ),
    ],
)
def test_a_wrong_row_tells_the_calls_before_it(kind: type, calls: list[str]) -> None:
    """The call that begins the cache, those that go on with it, and the whole without one."""
    reported: list[str] = []
    with compared_calls_reported(lambda _, text: reported.append(text)):
        findings(kind)
    said = [line for line in reported[0].splitlines() if line[0].isdigit()]
    pairs = zip(said, enumerate(calls, start=1), strict=True)
    assert all(line.startswith(f"{number}. {call}") for line, (number, call) in pairs), said
    assert 2 == reported[0].count("   output  ")


def test_key_heads_that_a_cache_holds_are_grouped_too() -> None:
    """Kills as many key heads as query heads alone, where those that are tiled are right."""
    assert [[NAME]] * 2 == [findings(Grouped, number) for number in range(2)]
    assert findings(Tiled, 1)[1].startswith(f"{NAME}: {GROUPED} elements differ")
    assert [NAME] == findings(Tiled, 0)
    verdict = check(MonitoredCandidate(bind(Tiled)), Options(cases=30, shrink=False))
    assert "repeat each key head for all query heads" in verdict.diagnosis[0].remedy


def test_rows_that_are_not_seen_are_listed() -> None:
    """Of a mask that begins at the first key, the keys behind it are unseen."""
    assert findings(TopLeft, 2)[1].endswith(f"{UNSEEN}s 1, 2.")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (LastRowOfEach, f"{UNSEEN}s 0, 1."),
        (ManyRows, "became (2, 4, 8) float64 in row 3"),
        (NoNumbers, "elements differ by up to inf in row 3"),
        (BreaksAtFourRows, "a call with the cache of the rows before it raised IndexError"),
    ],
)
def test_what_else_goes_wrong_with_a_cache_is_said(kind: type, said: str) -> None:
    """Rows that are dropped, of another number, NaN or raise are findings of their own."""
    assert said in findings(kind, 2)[1]


@pytest.mark.parametrize("kind", [OfFourRows, OddlyAnnotated])
def test_a_cache_without_room_and_odd_annotations_are_no_finding(kind: type) -> None:
    """A ValueError at more rows is a refusal, and an annotation may be anything."""
    assert [NAME] == findings(kind)


def test_a_cache_is_asked_in_the_layout_that_it_was_found_with() -> None:
    """Rows without samples are taken, and no cache of them. Kills the layout of the case."""
    bound = bind(OneHead)
    assert "unbatched" in bound.offer["layout"]
    problem = make_problem(CASE.replace(heads_count=1, layout="unbatched", batch=1))
    assert [NAME] == list(check_cached_rows(bound, problem, 0))


def test_a_cache_in_float32_is_a_remark() -> None:
    """Digits that a cache loses are said, and fail nothing: they are those of float32."""
    assert [NAME, REMARK + OF_FLOAT32] == findings(Float32Cache)


def test_keys_of_a_context_that_are_kept_are_no_cache_of_rows() -> None:
    """A layer that takes what came back in the place of keys and values is not asked row by row."""
    assert bind(OfMemory).cache is None


def test_a_cache_that_raises_is_named_in_a_note() -> None:
    """What the next call raised is said, and the parameter counts as not tried."""
    verdict = check(MonitoredCandidate(bind(Concatenates)), Options(cases=12, diagnose=False))
    said = "its cache was not judged: with `past` as a call returned it, the next one raised"
    assert any(said in note for note in verdict.notes)
    assert "parameters not tried: past" in verdict.sentence


def test_a_cache_of_transformers_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that updates a cache by its own number is built with one, and gets such a cache.

    Without that library a class of its module that is called so is taken.
    """
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(DynamicCache=DynamicCache))
    assert CacheUse(("past_key_values",), begun="transformers") == bind(Updates).cache
    assert [NAME] == findings(Updates)
    monkeypatch.delitem(sys.modules, "transformers")
    assert CacheUse(("past_key_values",), begun="DynamicCache") == bind(Updates).cache


def test_several_new_rows_are_a_remark() -> None:
    """That two new rows of one call see each other is said, and fails nothing."""
    assert [NAME, REMARK + TOGETHER] == findings(OneRowAtATime)
    verdict = check(MonitoredCandidate(bind(OneRowAtATime)), Options(cases=200, shrink=False))
    assert 1 == sum(TOGETHER in note for note in verdict.notes)


def test_new_rows_that_do_not_see_each_other_are_not_said_to() -> None:
    """What several new rows see is measured before it is said."""
    assert [NAME, REMARK + NOT_TOGETHER] == findings(NotItself)


def test_several_rows_that_begin_a_sequence_are_a_remark() -> None:
    """A layer that takes its cache with a single row alone is right of every row."""
    assert [NAME, REMARK + ANEW] == findings(BeginsAnew)


def test_rows_of_the_cache_that_several_new_rows_do_not_see_are_a_finding() -> None:
    """A causal mask at the wrong corner, which a single new row does without."""
    (name, finding) = findings(TopLeftOfSeveral)
    assert NAME == name
    assert finding.endswith(f"in two new rows of one call, asked with the cache of those before "
                            f"them: row 2 {UNSEEN} 1.")  # fmt: skip


def test_several_new_rows_of_a_layer_without_a_rule_are_asked() -> None:
    """Each sees the cache and all new rows, as in the whole; kills layers with a rule alone."""
    assert [NAME] == findings(Unmasked)
    (name, finding) = findings(UnmaskedShort)
    assert NAME == name
    assert finding.endswith(f"two new rows of one call, asked with the cache of those before "
                            f"them: row 2 {UNSEEN} 0.")  # fmt: skip


def test_what_takes_one_new_row_at_a_time_is_in_the_sentence() -> None:
    """A cache with which several rows are not those of the whole was passed in part."""
    one, several = (
        check(MonitoredCandidate(bind(kind)), Options(cases=12, diagnose=False)).sentence
        for kind in (BeginsAnew, Pair)
    )
    assert "passed one new row at a time: past" in one
    assert "one new row" not in several


def test_a_cache_that_is_not_read_is_not_tried() -> None:
    """A parameter that nothing comes back for stays at its default, and the verdict says so."""
    bound = bind(Ignores)
    assert bound.cache is None
    verdict = check(MonitoredCandidate(bound), Options(cases=12, diagnose=False))
    found = {each.name: each.status for each in verdict.parameters}
    assert {Status.NOT_TRIED} == {found["past_key_value"], found["use_cache"]}


def test_a_cache_that_is_passed_is_tried() -> None:
    """The verdict on a right layer with a cache leaves no parameter out, and says what it takes."""
    verdict = check(MonitoredCandidate(bind(Stacked)), Options(cases=12, diagnose=False))
    found = {each.name: each.status for each in verdict.parameters if each.of == "call"}
    assert {"x": Status.TRIED, "layer_past": Status.TRIED, "use_cache": Status.TRIED} == found
    assert any("`layer_past`: takes what" in note for note in verdict.notes)


def test_a_layer_that_is_built_answers_its_own_rows() -> None:
    """A layer that is given as it is decodes rows of the problem with its own weights."""
    torch.manual_seed(0)
    for layer, wrong in ((Pair(8, 2).double(), 0), (TopLeft(8, 2).double(), 1)):
        bound = bind(layer)
        own = bound.own_weights
        assert own is not None
        problem = problem_of(CASE.replace(head_dim=4, attn="causal", keys=9, queries=9), own)
        assert 1 + wrong == len([*check_cached_rows(bound, problem, 0)])


def test_a_wrong_cache_makes_the_verdict_red_and_is_its_diagnosis() -> None:
    """The whole run names a cache that two sequences share."""
    kind = catalogue()["cache-shared"].layer
    assert kind is not None
    verdict = check(MonitoredCandidate(bound_layer(kind())), Options(cases=40))
    assert "cache-shared" == verdict.diagnosis[0].bug
