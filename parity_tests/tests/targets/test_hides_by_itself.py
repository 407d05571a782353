"""A layer or function of any convention that hides the future by itself is judged as causal."""

from __future__ import annotations

import pytest

from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome
from mha_parity.run.check import check
from mha_parity.targets.bind import bind
from mha_parity.targets.conventions.self_causal import CAUSAL
from mha_parity.targets.load import load
from subject_checks import SUBJECTS

FILE = SUBJECTS / "hides_by_itself.py"
NAMES = [
    ("WithoutMask", "module-mask"), ("Layer", "module-mask"), ("function", "x-weights-heads"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "convention"), NAMES)
def test_a_right_one_passes_as_causal(name: str, convention: str) -> None:
    """No case asks it to see the future, and that is said."""
    verdict = check(bind(load(f"{FILE}:{name}")), Options(cases=30, seed=3, shrink=False))
    assert verdict.convention == convention
    assert verdict.outcome is Outcome.PASS
    assert CAUSAL in verdict.notes


@pytest.mark.parametrize("name", ["SeesNext", "sees_next"])
def test_one_that_sees_the_next_key_fails(name: str) -> None:
    """It hides the future but for one key: the causal rule is its mistake."""
    verdict = check(bind(load(f"{FILE}:{name}")), Options(cases=30, seed=3, shrink=False))
    assert verdict.outcome is Outcome.FAIL
    assert CAUSAL in verdict.notes
