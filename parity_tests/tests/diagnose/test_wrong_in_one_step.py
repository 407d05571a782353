"""One wrong step is named, and nothing that follows from it is said beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from subject_checks import check_subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.verdict import Verdict


@pytest.fixture(scope="module")
def diagnosed() -> Callable[[str], Verdict]:
    """Return a function that gives the verdict on one of the subjects, with causes."""

    def verdict(name: str) -> Verdict:
        target = f"wrong_in_one_step.py:{name}"
        return check_subject(target, cases=30, diagnose=True, shrink=True)

    return verdict


@pytest.mark.repeats(2)
@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("strict_filled", "causal-strict"),
        ("strict_added", "causal-strict"),
        ("always_strict", "causal-strict"),
        ("Strict", "causal-strict"),
        ("doubled", "output-doubled"),
        ("returned", "input-returned"),
        ("KeyOfQuery", "k-with-weights-of-q"),
        ("SplitByView", "split-no-transpose"),
        ("MergedByView", "merge-no-transpose"),
    ],
)
def test_the_wrong_step_is_the_only_cause(
    name: str, bug: str, diagnosed: Callable[[str], Verdict]
) -> None:
    """The verdict names the bug, and neither a mask, dropout nor the output's memory beside it."""
    verdict = diagnosed(name)
    assert [bug] == [each.bug for each in verdict.diagnosis], verdict.diagnosis


def test_a_factor_without_a_name_is_measured(diagnosed: Callable[[str], Verdict]) -> None:
    """Weights that are right but for one factor are said to be that, with its value."""
    (cause,) = diagnosed("tripled").diagnosis
    assert "all weights are 3 times what they should be" in cause.title


@pytest.mark.parametrize("name", ["Layer", "always_causal"])
def test_the_right_ones_pass(name: str, diagnosed: Callable[[str], Verdict]) -> None:
    """What the wrong subjects share is right, and so is a function that is always causal."""
    verdict = diagnosed(name)
    assert ((), ()) == (verdict.failures, verdict.diagnosis)
