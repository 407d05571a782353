"""Sizes, places and earlier calls at which answers are wrong become the shortest rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import Attention, answer_of
from mha_parity.core.candidate import NOT_ASKED, Answer, CandidateError
from mha_parity.core.case import Case
from mha_parity.diagnose import diagnose
from mha_parity.diagnose.experiments.conditions.sizes import scan
from mha_parity.diagnose.experiments.conditions.state import CallHistoryEffect, earlier_calls
from mha_parity.diagnose.experiments.designs.calls import Caller, CallResult
from mha_parity.diagnose.experiments.designs.shortest_rules import (
    EVERYWHERE,
    OffIndices,
    ends_rule,
    index_rule,
    size_rule,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.problem import Problem


def keeps_columns() -> Callable[[Problem], Answer]:
    """Return an attention whose denominator has what a longer call before it left behind."""
    kept = np.zeros(0)

    def answer(problem: Problem) -> Answer:
        nonlocal kept
        right = Attention(problem)
        found = right.answer()
        keys = problem.key.shape[1]
        left = kept[keys:].sum() if kept.size > keys else 0.0
        kept = np.ones(max(keys, kept.size))
        return Answer(output=found.output / (1 + left))

    return answer


def test_a_call_that_changes_later_answers_is_found(caller: Callable[..., Caller]) -> None:
    """A buffer that a longer call filled: the call with more keys is the one."""
    found = earlier_calls(caller(keeps_columns()))
    assert found.changes[0].startswith("a call with more keys changes the answer")
    assert CallHistoryEffect((), 6, 0) == earlier_calls(caller(Attention))


def odd_lengths_fail(problem: Problem) -> Answer:
    """Fail for an odd number of queries."""
    if problem.case.queries % 2:
        raise CandidateError("crash", "raised ValueError: cannot reshape")
    return answer_of(Attention, problem)


def test_calls_that_were_not_made_fail_nowhere() -> None:
    """Behind the last time-out no size was tried. Kills sizes that count as failing there."""
    problem = make_problem(Case(seed=1, batch=1, queries=2, keys=2, heads_count=1, head_dim=2))
    said = ("gave no answer within 1 seconds", f"{NOT_ASKED}: the process was lost 3 times")
    found = scan("L", (1, 2), [CallResult(problem, None, each) for each in said], {})
    assert ({1: True}, said[0]) == (found.crashed, found.error)


def test_the_sizes_that_make_a_call_fail_are_found(caller: Callable[..., Caller]) -> None:
    """Where every answer that comes is right, the crash is all there is to say."""
    failing = caller(odd_lengths_fail).candidate
    (found,) = diagnose(failing, (), crashes=True)
    assert "the call raised ValueError: cannot reshape wherever L is odd" == found.title
    assert found.bug is None
    assert () == diagnose(caller(Attention).candidate, (), crashes=True)


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        ("S > 64", lambda s: s > 64),
        ("S is odd", lambda s: s % 2 == 1),
        ("S % 16 != 0", lambda s: s % 16 != 0),
        ("S > 64 and S % 64 != 0", lambda s: s > 64 and s % 64 != 0),
        ("S > 1 and S % 64 = 1", lambda s: s > 1 and s % 64 == 1),
        ("S is no power of two", lambda s: s & (s - 1) != 0),
        ("S != L = 6", lambda s: s != 6),
        ("S != 64", lambda s: s != 64),
        (None, lambda s: s in {3, 7, 11, 50}),
    ],
)
def test_a_size_rule_is_the_shortest_that_fits(
    rule: str | None, holds: Callable[[int], bool]
) -> None:
    """Thresholds, moduli, powers and coincidences; without a rule nothing is said."""
    assert rule == size_rule("S", {s: holds(s) for s in range(1, 140)}, {"L": 6})


@pytest.mark.parametrize(
    ("rule", "off"),
    [
        ("the last row", lambda n: {n - 1}),
        ("rows from 4 on", lambda n: set(range(4, n))),
        ("the last rows beyond a multiple of 8", lambda n: set(range(n - n % 8, n))),
        (EVERYWHERE, lambda n: set(range(n))),
        (None, lambda n: {n // 2, n // 3}),
    ],
)
def test_a_place_rule_fits_every_answer(rule: str | None, off: Callable[[int], set[int]]) -> None:
    """One rule for answers of several lengths, or none."""
    seen = [OffIndices(n, frozenset(off(n))) for n in (9, 13, 20, 31)]
    assert rule == index_rule("row", seen)


def test_the_last_key_of_a_row_is_a_formula_in_i() -> None:
    """Tiles of 16 keys and 32 rows, cut at the row itself."""
    rows = np.arange(100)
    assert ("min(i, 16 * (i // 32 + 1) - 1)") == ends_rule(
        np.minimum(rows, 16 * (rows // 32 + 1) - 1), 100
    )
    assert ("min(i, 32 * (i // 32) + 15): blocks of keys that it needs are skipped") == ends_rule(
        np.minimum(rows, 32 * (rows // 32) + 15), 100
    )
    assert ends_rule(np.random.default_rng(3).integers(0, 100, 100), 100) is None
