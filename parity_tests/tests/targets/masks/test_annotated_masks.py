"""A mask gets the arrays that its annotation names: booleans, integers, or floats too."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("annotated_masks.py", cases=40, dtypes=("float64",))


@pytest.mark.parametrize("name", ["Booleans", "BooleansOfAnotherLibrary", "documented"])
def test_booleans_alone_get_no_floats(name: str) -> None:
    """Kills floats in one of two masks that `&` joins, and in one that is documented as boolean.

    The right layer failed by a crash, and the right function by floats taken for booleans.
    """
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict.sentence
    floats = [r for r in verdict.features if r.value in {"float2d", "float3d"} and r.cases]
    assert not floats


@pytest.mark.parametrize("name", ["FloatsScaled", "FaintIntegers"])
def test_other_arrays_that_are_named_are_passed(name: str) -> None:
    """Kills floats left out by one of several types, and integers by documentation alone."""
    verdict = judged(name)
    assert Outcome.FAIL is verdict.outcome, verdict.sentence


def test_floats_of_torchs_name_are_demanded_where_nothing_is_said() -> None:
    """A mask of torch's name has torch's meaning unless the documentation has another."""
    verdict = judged("undocumented", fail_fast=True)
    assert Outcome.FAIL is verdict.outcome, verdict.sentence
