"""Equal calls of one object: how many are asked; the first other answer is reported alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.checks.call_effects import is_repeatable
from mha_parity.checks.statelessness import REPEATS, repeated_calls
from mha_parity.core.case import parse


class Call(str):
    """A call by its words; its problem is not looked at."""

    __slots__ = ()
    problem = None
    said = "a call"


class Count(int):
    """An answer by its number."""

    output = None


class Sequence:
    """The part of a sequence of calls that is asked: answers depart from call ``first`` on."""

    mode = "inference"

    def __init__(self, first: int, *, refuses: int = 0) -> None:
        self.first = first
        self.refuses = refuses
        self.calls = 0
        self.restored = 0
        self.this: Any = SimpleNamespace(_replace=lambda mode: Call(f"a call in {mode}"))

    def new(self) -> object:
        """Return an object to call."""
        return self

    def ask(self, function: object, step: str) -> SimpleNamespace:
        """Count a call."""
        assert function is self
        assert "a call in inference" == step
        self.calls += 1
        return SimpleNamespace(answer=None if self.calls == self.refuses else Count(self.calls))

    def tell_departure(self, *_: object) -> None:
        """Tell no problem: there is none."""

    def departure(self, _step: str, response: SimpleNamespace) -> str:
        """Return what differs."""
        return "other output" if response.answer is None or response.answer >= self.first else ""

    def restore(self, _function: object) -> None:
        """Count."""
        self.restored += 1


@pytest.mark.parametrize("first", [1, 2, 31, 32])
def test_the_first_call_that_is_answered_otherwise_is_reported_once(first: int) -> None:
    """Kills `continue` for `break`, which tells each later call too, and other numbers of calls."""
    sequence: Any = Sequence(first)
    (finding,) = repeated_calls(sequence)
    assert finding == (
        f"statelessness: other output in the answer to call {first} of 32 equal calls of one "
        "object, a call in inference."
    )
    assert (first, 1) == (sequence.calls, sequence.restored)


def test_thirty_two_equal_answers_tell_nothing() -> None:
    """What departs later is not asked."""
    sequence: Any = Sequence(33)
    assert [] == list(repeated_calls(sequence))
    assert (32, 32, 1) == (REPEATS, sequence.calls, sequence.restored)


def test_a_first_call_without_an_answer_is_another_checks_matter() -> None:
    """It tells nothing; a later one without an answer departs."""
    first: Any = Sequence(99, refuses=1)
    assert [] == list(repeated_calls(first))
    assert 1 == first.calls
    later: Any = Sequence(99, refuses=2)
    (finding,) = repeated_calls(later)
    assert "call 2 of 32" in finding


@pytest.mark.parametrize(
    ("words", "repeatable"),
    [
        ("N1-L1-S1-H1-D1", True), ("N0-L1-S1-H1-D1", False), ("N1-L0-S1-H1-D1", False),
        ("N1-L1-S0-H1-D1", False), ("N2-L3-S4-H1-D2-peaky", False),
        ("N2-L3-S4-H1-D2-boolmask-maskedrows", False),
    ],
)  # fmt: skip
def test_calls_are_compared_where_there_is_something_plain_to_compare(
    words: str, repeatable: bool
) -> None:
    """One number is enough. Kills each limit moved by one, and each condition left out."""
    assert is_repeatable(make_problem(parse(f"qkv-{words}-cross-float64-s1"))) is repeatable
