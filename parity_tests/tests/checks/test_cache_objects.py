"""Caches that are objects, or that the user's code makes, are made, passed and judged."""

from __future__ import annotations

from inspect import Parameter
from typing import Any

import pytest

from mha_parity.checks.cached_rows import NAME
from mha_parity.core.parameters import Role, Status
from mha_parity.core.verdict import Outcome
from mha_parity.targets.caches.cache_objects import makers
from mha_parity.targets.calls.cache_arguments import FILLED, MEANING
from subject_checks import check_subject, checks_of, load_subject

judged = checks_of("cache_objects.py", cases=40, dtypes=("float64",))
RIGHT = {
    "Annotated": FILLED,
    "Requires": FILLED,
    "WithRoom": FILLED,
    "Makes": FILLED,
    "ByName": FILLED,
    "returns_another": MEANING,
    "WithPair": MEANING,
}
WRONG = (
    "AnnotatedInFront",
    "RequiresInFront",
    "WithRoomForCalls",
    "MakesAndForgets",
    "sees_empty_room",
    "ReturnsTheOld",
)


@pytest.mark.parametrize("name", RIGHT)
def test_right_ones_pass_and_are_said(name: str) -> None:
    """A cache is made for the first call; kills one that is left at None, or not begun anew."""
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict
    (cache,) = (each for each in verdict.parameters if each.role is Role.CACHE)
    assert Status.TRIED is cache.status
    assert any(RIGHT[name] in note for note in verdict.notes)
    assert NAME in {each.name for each in verdict.checks}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_fail_in_rows_with_the_cache(name: str) -> None:
    """What an object does wrong shows in rows that are asked with it, and nowhere else."""
    verdict = judged(name, cases=12, max_failures=1)
    assert Outcome.FAIL is verdict.outcome
    assert {NAME} == {each.check_result.check for each in verdict.failures}


def test_each_call_gets_an_empty_cache_of_its_own() -> None:
    """A required object is not kept for the next call; kills copies that are left out.

    Calls that are repeated would see the rows of those before them.
    """
    assert Outcome.PASS is judged("Requires").outcome


@pytest.mark.parametrize(
    ("annotation", "found"),
    [
        ("Grows | None", ("Grows",)),
        ("Optional['HasRoom']", ("HasRoom",)),
        ("Pair", ("Pair.create", "Pair")),
        ("Tensor", ("CacheOfLists",)),
        (Any, ("CacheOfLists",)),
        (Parameter.empty, ("CacheOfLists",)),
    ],
)
def test_makers_are_found_by_annotation_and_name(
    annotation: object, found: tuple[str, ...]
) -> None:
    """Classes of the module that are annotated; where none is, those that are called a cache."""
    subject = load_subject("cache_objects.py:Annotated")
    parameter = Parameter("cache", Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)
    assert found == makers(subject.forward, subject, parameter)


def test_a_method_that_makes_a_cache_is_found() -> None:
    """It stands behind the classes of the module."""
    subject = load_subject("cache_objects.py:Makes")
    parameter = Parameter("cache", Parameter.POSITIONAL_OR_KEYWORD)
    assert ("CacheOfLists", "init_cache") == makers(subject.forward, subject, parameter)


def test_a_pair_that_is_not_read_is_not_tried() -> None:
    """Of an empty pair no output depends: another one is passed, and the verdict says it."""
    verdict = judged("ReadsNoPair")
    assert Outcome.PASS is verdict.outcome
    assert "parameters not tried: kv_cache" in verdict.sentence


def test_a_class_that_is_called_a_cache_and_is_none_is_not_judged() -> None:
    """By its name alone it is a guess: the first rows are others with it, and the verdict is green.

    That the cache was not tried is said.
    """
    verdict = check_subject("guessed_cache.py:OfStrangers", cases=40, dtypes=("float64",))
    assert Outcome.PASS is verdict.outcome, verdict
    assert "parameters not tried: cache" in verdict.sentence
