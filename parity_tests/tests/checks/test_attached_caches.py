"""Caches that callers attach to a layer are attached and judged, or said not to be."""

from __future__ import annotations

import pytest

from mha_parity.checks.cached_rows import NAME
from mha_parity.core.parameters import Role, Status
from mha_parity.core.verdict import Outcome
from mha_parity.targets.calls.cache_arguments import ATTACHED
from subject_checks import checks_of

judged = checks_of("attached_caches.py", cases=24, dtypes=("float64",))


@pytest.mark.parametrize("name", ["Attached", "SetsUp"])
def test_right_ones_pass_and_are_said(name: str) -> None:
    """A new cache is attached for each sequence; kills one that stays from call to call."""
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict
    (cache,) = (each for each in verdict.parameters if each.role is Role.CACHE)
    assert ("kv_cache", "attribute", Status.TRIED) == (cache.name, cache.of, cache.status)
    assert any(ATTACHED in note for note in verdict.notes)
    assert NAME in {each.name for each in verdict.checks}


@pytest.mark.parametrize("name", ["OverwritesTheLast", "CountsFromFirst"])
def test_wrong_ones_fail_in_rows_with_the_cache(name: str) -> None:
    """Each is right without a cache; kills attributes that are left at None."""
    verdict = judged(name, cases=12, max_failures=1)
    assert Outcome.FAIL is verdict.outcome
    assert {NAME} == {each.check_result.check for each in verdict.failures}


def test_a_cache_that_nothing_makes_is_said_not_to_be_tried() -> None:
    """No parameter shows it, and the verdict names the attribute."""
    verdict = judged("OfStrangers")
    assert Outcome.PASS is verdict.outcome, verdict
    assert "parameters not tried: kv_cache" in verdict.sentence


def test_an_attribute_that_a_constructor_sets_is_listed_once() -> None:
    """Kills a name that stands twice in the sentence."""
    verdict = judged("OfItsConstructor", cases=8)
    (cache,) = (each for each in verdict.parameters if each.role is Role.CACHE)
    assert ("constructor.kv_cache", Status.TRIED) == (cache.key, cache.status)
