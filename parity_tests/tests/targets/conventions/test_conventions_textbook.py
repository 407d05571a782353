"""NumPy layers and functions as courses have them are called as they want it, or refused."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from mha_parity.targets import load
from mha_parity.targets.static.signatures import by_letter, forward
from subject_checks import SUBJECTS, checks_of

RIGHT = {
    "WithMask": "module-valid-lens",
    "MaskNeeded": "module-valid-lens",
    "Called": "module-valid-lens",
    "ValuesFirst": "module-valid-lens",
    "OneInput": "module-mask",
    "masked": "fitted",
    "values_first": "fitted",
    "values_first_heads": "qkv-heads",
    "whole": "x-weights-out-heads",
}


def subject(name: str) -> object:
    """Return one of the layers or functions."""
    return load.load(f"{SUBJECTS}/textbook_layers.py:{name}")


judged = checks_of("textbook_layers.py", cases=24)


@pytest.mark.repeats(3)
@pytest.mark.parametrize(("name", "convention"), RIGHT.items(), ids=RIGHT)
def test_right_ones_hold(name: str, convention: str) -> None:
    """They are called as they want it, with masks where they take some."""
    verdict = judged(name)
    assert (convention, Outcome.PASS) == (verdict.convention, verdict.outcome)
    masked = any(each.meaning for each in verdict.parameters)
    drawn = {r.value for r in verdict.features if r.axis == "attn" and r.cases}
    assert masked == ({"none"} != drawn)


def test_all_four_matrices_are_judged() -> None:
    """The output projection is not the identity alone."""
    values = {r.value for r in judged("whole").features if r.axis == "out_proj" and r.cases}
    assert {"identity", "general"} == values


@pytest.mark.parametrize("name", ["KeysTwice", "without_output"])
def test_wrong_ones_fail(name: str) -> None:
    """A wrong one is seen."""
    verdict = judged(name)
    assert Outcome.FAIL == verdict.outcome
    assert "output" in {f.check_result.check for f in verdict.failures}


@pytest.mark.parametrize(
    ("names", "places"),
    [
        ("query key value", (0, 1, 2)), ("values keys queries", (2, 1, 0)), ("K Q V", (1, 0, 2)),
        ("x_v x_q x_k", (2, 0, 1)), ("a b c", (0, 1, 2)), ("q kv", (0, 1, 2)), ("", (0, 1, 2)),
        ("query quota value", (0, 1, 2)), ("inputs k q", (2, 1, 0)), ("q x keys", (0, 2, 1)),
        ("x y k", (0, 1, 2)),
    ],
)  # fmt: skip
def test_three_inputs_are_known_by_their_letters(names: str, places: tuple[int, ...]) -> None:
    """Where the letters do not tell, the order is query, key, value."""
    assert places == by_letter(names.split())


def test_a_matrix_of_three_is_packed() -> None:
    """A number of heads at the end makes no Q, K and V of weights."""
    assert "fitted" == judged("packed").convention
    assert Outcome.PASS == judged("packed").outcome


class _CalledByForward:
    def forward(self, rows: object) -> object:
        return rows


class _CalledByItsOwnCall(_CalledByForward):
    def __call__(self, rows: object, keys: object) -> object:
        return self.forward(rows), keys


def test_the_call_of_the_nearest_class_is_taken() -> None:
    """Kills a `forward` that is inherited, where a class has another call; both stand in one."""
    own = _CalledByItsOwnCall()
    assert vars(_CalledByItsOwnCall)["__call__"] is forward(_CalledByItsOwnCall)
    assert own is forward(own)
    assert _CalledByForward.forward is forward(_CalledByForward)
    assert "forward" == forward(_CalledByForward()).__name__
    assert len is forward(len)
