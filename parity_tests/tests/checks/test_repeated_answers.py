"""What each of the calls says that are repeated on a case, answer by answer, by a script."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.checks.call_effects import LEAST_MASK, MonitoredCandidate, sees_own_keys
from mha_parity.core.arrays import Array
from mha_parity.core.candidate import Answer
from mha_parity.core.case import parse
from mha_parity.core.problem import Problem
from mha_parity.core.target_facts import NO_FACTS
from mha_parity.targets.backends.numpy_arrays import NumpyArrays

PLAIN = make_problem(parse("qkv-N2-L3-S4-H2-D3-cross-float64-s1"))
SLICED = PLAIN.replace(case=PLAIN.case.replace(memory="sliced"))
RIGHT: Array = np.random.Generator(np.random.Philox(4)).standard_normal(PLAIN.output_shape)
OTHER = RIGHT + 1


class Scripted:
    """A bound target that answers one output after the other."""

    subject = offer = masks = own_weights = None
    facts = NO_FACTS
    name = convention = ""
    library = NumpyArrays()

    def __init__(self, outputs: list[Array], **modes: Any) -> None:
        self.outputs = list(outputs)
        self.reloaded, self.unlike, self.dropout = (
            modes.get(name) for name in ("reloaded", "unlike", "dropout")
        )

    def __call__(self, _: Problem) -> Answer:
        """Return the next answer."""
        return Answer(output=self.outputs.pop(0))

    def prepare(self, _: Problem) -> Any:
        """Return a call whose answer is the next one."""
        return CALL

    def answer(self, problem: Problem, _: object) -> Answer:
        """Return the next answer to a call that was prepared."""
        return self(problem)

    def answered(self, problem: Problem, _: object, __: object) -> Answer:
        """Return the next answer, as the answer to a case."""
        return self(problem)

    def call_after_loading(self, *_: object) -> Any:
        """Return a call of a layer that had other weights."""
        return CALL if self.reloaded else None

    def not_saved(self, *_: object) -> str:
        """Return the weight that is saved otherwise."""
        return self.unlike or ""

    def with_dropout(self, *_: object) -> Any:
        """Return what makes a call in a mode."""
        return (lambda mode: CALL if not mode else None) if self.dropout else None


CALL: Any = SimpleNamespace(make=lambda: None, given=())


def repeated(
    changes: dict[int, Array], problem: Problem = PLAIN, first: Array = RIGHT, **modes: Any
) -> list[str]:
    """Return the findings where some of the answers are others than the right ones."""
    outputs = [RIGHT, RIGHT, OTHER, RIGHT, RIGHT, RIGHT, RIGHT, RIGHT]
    outputs = [changes.get(place, each) for place, each in enumerate(outputs)]
    bound: Any = Scripted(outputs, **modes)
    kept = Answer(output=RIGHT)
    return list(
        MonitoredCandidate(bound).repeated_answers(problem, CALL, Answer(output=first), kept)
    )


HELD = ["determinism", "statelessness"]
OFF = "elements differ by up to 1"


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (0, [f"determinism: {OFF} between two equal calls."]),
        (1, [f"determinism: {OFF} between two equal calls."]),
        (3, [*HELD, f"statelessness: {OFF} in the answer after another problem."]),
        (4, [*HELD, f"statelessness: {OFF} in the answer to the same call of one object."]),
        (5, HELD),
    ],
)
def test_each_answer_is_compared_with_the_first(place: int, said: list[str]) -> None:
    """Kills an answer that is not compared, and each condition negated."""
    assert said == repeated({place: OTHER})
    assert HELD == repeated({})


def test_two_equal_answers_that_are_not_the_first_are_not_random() -> None:
    """They depend on an earlier call, and nothing more is asked."""
    said = repeated({0: OTHER, 1: OTHER})
    assert said == ["determinism", f"statelessness: {OFF} when asked again."]


def test_an_answer_that_changed_meanwhile_shares_memory() -> None:
    """The first output, as the target returned it, against the copy of it."""
    said = repeated({}, first=OTHER)
    assert said == [*HELD, "output aliasing: a later call overwrites the output of an earlier one."]


def test_another_problem_has_another_answer_to_the_bit() -> None:
    """Unless it is NaN or 0 throughout, or only appended keys are seen."""
    same = "statelessness: another problem of these shapes got the same answer."
    assert [*HELD, same] == repeated({2: RIGHT})
    assert HELD == repeated({2: np.nextafter(RIGHT, 9)})
    for nothing in (np.zeros_like(RIGHT), np.full_like(RIGHT, np.nan)):
        bound: Any = Scripted([nothing] * 5)
        answer = Answer(output=nothing)
        found = list(MonitoredCandidate(bound).repeated_answers(PLAIN, CALL, answer, answer))
        assert found == HELD
    appended = make_problem(parse("mha-N2-L3-S3-H2-D3-zeroattn-padding-float64-s2"))
    hidden = appended.replace(key_padding_mask=np.ones((2, 3), bool))
    for problem, said in ((appended, [*HELD, same]), (hidden, HELD)):
        assert said == repeated({2: RIGHT}, problem)


def test_numbers_laid_out_otherwise_have_the_answer_of_contiguous_ones() -> None:
    """One more call where the case is not contiguous, and none where it is."""
    assert [*HELD, "memory layout"] == repeated({}, SLICED)
    said = f"memory layout: {OFF} in the answers of sliced arrays and of contiguous arrays."
    assert [*HELD, said] == repeated({5: OTHER}, SLICED)


def test_a_layer_is_asked_with_weights_loaded_and_in_evaluation() -> None:
    """Each finding says what departs; what is saved otherwise is named beside what holds."""
    assert [*HELD, "weights reloaded", "dropout off"] == repeated({}, reloaded=True, dropout=True)
    loaded = f"weights reloaded: {OFF} from a newly constructed layer."
    assert [*HELD, loaded] == repeated({5: OTHER}, reloaded=True)
    unsaved = "weights reloaded: state_dict() has another `w` than was loaded."
    assert [*HELD, "weights reloaded", unsaved] == repeated({}, reloaded=True, unlike="w")
    dropped = f"dropout off: {OFF} from a layer without dropout."
    assert [*HELD, dropped] == repeated({5: OTHER}, dropout=True)


def test_appended_keys_are_not_the_callers() -> None:
    """A query sees its own keys where no mask hides them, nor lowers them by a thousand.

    Kills another number of keys taken for theirs.
    """
    text = "mha-N2-L3-S3-H1-D3-biaskv-zeroattn-floatpadding-float64-s3"
    problem = make_problem(parse(text))

    def sees(mask: Array) -> bool:
        return sees_own_keys(problem.replace(key_padding_mask=mask))

    hidden = np.full((2, 3), -np.inf)
    assert not sees(hidden)
    assert not sees(np.full((2, 3), LEAST_MASK))
    for sample, key in np.ndindex(2, 3):
        for number, seen in ((LEAST_MASK, False), (LEAST_MASK + 1, True), (0.0, True)):
            mask = hidden.copy()
            mask[sample, key] = number
            assert sees(mask) is seen
