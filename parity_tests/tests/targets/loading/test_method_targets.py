"""A method of a model is judged as a layer, with the arrays alone that it reads."""

from __future__ import annotations

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome
from mha_parity.targets.bind import bind
from mha_parity.targets.method_targets import target_in
from subject_checks import checks_of, load_subject

judged = checks_of("methods.py", cases=32, dtypes=("float64",))


@pytest.mark.parametrize(
    "name", ["Model._attend", "Model.attention", "Block.attend", "Registered", "ReadsItsDictionary"]
)
def test_right_ones_hold(name: str) -> None:
    """Other weights are left as they are; an array that is kept twice is set in both places."""
    verdict = judged(name)
    assert (Outcome.PASS, 0) == (verdict.outcome, verdict.failed), verdict


@pytest.mark.parametrize(
    "name",
    [
        "ModelUnscaled._attend",
        "BlockSwapped.attend",
        "ReadsItsDictionaryTwice",
        "CalledOtherwise.call",
    ],
)
def test_wrong_ones_fail(name: str) -> None:
    """Each by what its right twin does."""
    assert Outcome.FAIL == judged(name).outcome


def test_the_method_by_which_an_object_is_called_is_the_class_itself() -> None:
    """A block with more than an attention is refused, by its forward as by its own name."""
    block = load_subject("methods.py:Block")
    assert block is target_in(block, "forward") is target_in(block, "__call__")
    with pytest.raises(TargetError, match=r"`fc1.weight`, `fc2.weight` have no counterpart"):
        bind(block)
