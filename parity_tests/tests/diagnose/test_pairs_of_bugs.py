"""Two bugs at once are tried on one answer, as long as there is time."""

from __future__ import annotations

import itertools

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import Attention, answer_of, catalogue
from mha_parity.core.case import Case
from mha_parity.diagnose import Observation
from mha_parity.diagnose.hypotheses import bug_pairs, join_bugs, single_bugs

CASE = Case(seed=3, batch=1, queries=4, keys=5, heads_count=2, head_dim=3, form="qkv",
            projection="none", inputs="cross")  # fmt: skip


def observed(kind: type[Attention]) -> Observation:
    """Return a failing answer of an attention."""
    problem = make_problem(CASE)
    return Observation(problem, answer_of(kind, problem), failing=True)


def test_two_bugs_of_one_answer_are_found() -> None:
    """In whichever order, where there is time for all pairs."""
    wanted = {"scale-dmodel", "softmax-add-eps"}
    every = [each for each in single_bugs() if each.id in {*wanted, "scale-none"}]
    first, second = (next(e for e in every if e.id == name) for name in sorted(wanted))
    both = join_bugs(first, second)
    assert both is not None
    found = bug_pairs(every, observed(both.kind), (), lambda: True)
    assert any({bug.id for bug in each.bugs} == wanted for each in found)


def test_no_bug_is_tried_when_the_time_is_over() -> None:
    """Kills predictions of the whole catalogue for a case of long rows, whatever time is left."""
    seen = observed(catalogue()["scale-none"].kinds[0])
    assert [] == list(bug_pairs(single_bugs(), seen, (), lambda: False))
    assert not seen.predictions

    left = itertools.chain([True] * 5, itertools.repeat(False))
    assert [] == list(bug_pairs(single_bugs(), seen, (), lambda: next(left)))
    assert len(seen.predictions) <= 6  # the right answer among them
