"""Gradients are asked of no more rows than a backward pass of the cube of the length can do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mha_parity.core.case import Case
from mha_parity.core.features import make_offer
from mha_parity.core.options import Options
from mha_parity.core.target_facts import TargetFacts
from mha_parity.run.asked_cases import cases_for
from mha_parity.run.verdict_limits import of_short_lengths
from mha_parity.targets.bind import bind
from mha_parity.targets.convention_base import cubic_backward
from mha_parity.targets.convention_base.cubic_backward import LIMITS, longest_with_gradients
from subject_checks import load_subject


def test_the_cube_of_the_length_is_seen_and_the_square_is_not() -> None:
    """By the processor time of two small calls; matrix products alone take any length."""
    assert bind(load_subject("cubic_backward.py:Attention")).longest in LIMITS
    assert 0 == bind(load_subject("functions_with_backward.py:attention_forward")).longest


@pytest.mark.parametrize(
    ("seconds", "longest"),
    [
        ((0.001, 0.03), 0),
        ((0.01, 0.27), 0),
        ((0.01, 0.3), 256),
        ((0.001, 0.06), 512),
        ((1, 64), 128),
    ],
)
def test_the_limit_follows_from_both_times(
    seconds: tuple[float, float], longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short times and squares have none; kills each bound moved, and a limit of any number."""
    short, long = seconds
    clock = iter([0.0, short, 0.0, long])
    monkeypatch.setattr(cubic_backward, "process_time", lambda: next(clock))

    class Bound:
        library = SimpleNamespace(name="numpy")
        offer = make_offer(gradients=("no", "yes"))

        def plain_case(self) -> Case:
            return Case(seed=0, batch=2, queries=5, keys=5, heads_count=1, head_dim=4)

        def __call__(self, problem: object) -> None:
            """Answer nothing: the time is the clock's."""

    bound: Any = Bound()
    assert longest == longest_with_gradients(bound)


def test_cases_are_cut_to_the_limit_and_the_run_says_so() -> None:
    """Only those with gradients: kills a limit that outputs alone have."""
    offer = make_offer(gradients=("no", "yes"), inputs=("self", "cross"), layout=("batch_first",))
    candidate: Any = SimpleNamespace(facts=TargetFacts(longest=128), offer=offer, masks=None)
    options = Options(cases=300, grad=True)
    lengths = [max(case.queries, case.keys) for case in cases_for(candidate, offer, options)]
    assert 128 == max(lengths)
    assert "at most 128 rows" in of_short_lengths(candidate.facts, options)
    assert "" == of_short_lengths(candidate.facts, Options())
