"""The smallest case on which a bug of the catalogue shows, and a picture of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.clashes import can_coexist
from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import Attention, answer_of, whole_offer
from mha_parity.core.candidate import Answer, CandidateError
from mha_parity.core.compare import equal_up_to_rounding, max_difference
from mha_parity.run.shrink import smallest_failing_case

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.catalogue import Bug
    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem

TRIED = 150  # cases of the suite: in how many the bug shows, and from which the example is shrunk
RUNS = range(4)  # seeds whose cases are tried one after the other, until one shows the bug
MANY = 16  # keys that no eye takes in
KEPT = 4000  # elements of an input, up to which a problem is kept
SMALL = 60  # smallest cases, among which the plainest example is picked where some show the bug
PICTURED = (4, 5)  # queries and keys of a picture at least
VISIBLE = 1e-3  # of the largest value: less is no example for the eye, unless there is no other


@dataclass(frozen=True, eq=False)
class BugExample:
    """A problem on which a bug shows, what is shown of it, and both answers; None: no answer."""

    problem: Problem
    what: str
    right: Array
    wrong: Array | None

    @property
    def difference(self) -> Array | None:
        """Return wrong − right in float64; None where they cannot be subtracted."""
        if self.wrong is None or self.wrong.shape != self.right.shape:
            return None
        with np.errstate(all="ignore"):
            return np.asarray(self.wrong.astype(np.float64) - self.right.astype(np.float64))


def smallest(bug: Bug, examples: Sequence[BugExample]) -> BugExample:
    """Return the smallest example that shrinking finds from the best of those given."""
    # Sorting keeps what shows plainly in front, and inputs that can be printed before layers.
    first = min(examples, key=_order)
    return min((_shrunk(each, first) for each in _spellings(bug, first)), key=_order)


def pictured(bug: Bug) -> BugExample | None:
    """Return an example to draw: weights where they differ, of a few queries and keys.

    None where no case of the suite shows the bug, or a single call does not.
    """
    if bug.equivalent or bug.make is not None:
        return None
    for seed in RUNS:
        found: BugExample | None = None
        for number, case in enumerate(sorted(cases(bug, seed), key=_size)):
            if number >= SMALL and found is not None:
                break
            each = bug_example(bug, case)
            if each is not None and (found is None or _order(each) < _order(found)):
                found = each
            if each is not None and _large(each) and not _empty(each):
                break
        if found is not None:
            return _at_picture_sizes(bug, found if _empty(found) else smallest(bug, [found]))
    return None


def _at_picture_sizes(bug: Bug, found: BugExample) -> BugExample:
    """Return the example with a few more queries and keys, and with weights, where it shows so."""
    case = found.problem.case
    keys = max(case.keys, PICTURED[1])
    queries = keys if case.inputs == "self" else max(case.queries, PICTURED[0])
    larger = case.replace(queries=queries, keys=keys)
    for sizes in dict.fromkeys((larger, case)):
        for asked in (sizes.replace(weights="per_head"), sizes):
            if not can_coexist(asked.features()):
                continue
            each = bug_example(bug, asked, first="weights")
            if each is not None and (each.wrong is None) is (found.wrong is None):
                return each
    return found


def _size(case: Case) -> tuple[bool, bool, int]:
    elements = case.batch * case.queries * case.keys * case.embed_dim
    return min(case.queries, case.keys) < 2, case.form == "mha", elements


def _spellings(bug: Bug, first: BugExample) -> Iterator[Bug]:
    """Yield the bug; where it takes many keys, with other constants too, such as smaller blocks."""
    yield bug
    if first.problem.case.keys > MANY:
        for kind in bug.kinds[1:]:
            other = dataclasses.replace(bug, kinds=(kind,))
            if bug_example(other, first.problem.case) is not None:
                yield other


def cases(bug: Bug, seed: int) -> Iterator[Case]:
    """Yield the cases of the suite on which a bug is tried."""
    dtype = "float64" if "float64" in bug.dtypes else bug.dtypes[0]
    for case in draw_cases(whole_offer() | {"dtype": (dtype,)}, TRIED, seed):
        yield case if "memory" in bug.needs else case.replace(memory="c")


def bug_example(bug: Bug, case: Case, first: str = "output") -> BugExample | None:
    """Return what the bug shows on a case, of output and weights the ``first`` if both differ.

    None where it shows nothing.
    """
    problem, right = _answered(case)
    try:
        wrong = bug.attend(problem)
    except (CandidateError, ValueError, IndexError):
        return BugExample(problem, "output", right.output, None)
    for what in ("output", "weights") if first == "output" else ("weights", "output"):
        found, expected = _of(wrong, what), _of(right, what)
        if found is not None and expected is not None and not equal_up_to_rounding(expected, found):
            return BugExample(problem, what, expected, found)
    return None


def _answered(case: Case) -> tuple[Problem, Answer]:
    """Return the problem and the right answer; those of small cases are kept for further bugs."""
    elements = case.batch * max(case.queries, case.keys) * case.embed_dim
    return _kept(case) if elements <= KEPT else _kept.__wrapped__(case)


@lru_cache(maxsize=2000)
def _kept(case: Case) -> tuple[Problem, Answer]:
    problem = make_problem(case)
    return problem, answer_of(Attention, problem)


def _of(answer: Answer, what: str) -> Array | None:
    array: Array | None = answer.output if what == "output" else answer.weights
    return array


def _large(found: BugExample) -> bool:
    if found.wrong is None or found.wrong.shape != found.right.shape:
        return True
    largest = float(np.abs(np.nan_to_num(found.right)).max(initial=0))
    return max_difference(found.right, found.wrong) > VISIBLE * largest


def _shrunk(bug: Bug, first: BugExample) -> BugExample:
    """Return the smallest example of the same kind that shrinking finds."""
    best = first

    def still(case: Case) -> bool:
        nonlocal best
        found = bug_example(bug, case)
        if found is None or _large(first) > _large(found) or found.what != first.what:
            return False
        if (found.wrong is None) is not (first.wrong is None) or _empty(found) > _empty(first):
            return False
        best = found
        return True

    smallest_failing_case(first.problem.case, still, lambda case: case.gradients == "no")
    return best


def _empty(found: BugExample) -> bool:
    return found.right.size == 0


def _order(found: BugExample) -> tuple[bool, bool, bool, bool, int, str]:
    """Return what makes an example a good one to start from, best first."""
    case = found.problem.case
    narrow = min(case.queries, case.keys) < 2
    elements = case.batch * case.queries * case.keys * case.embed_dim
    return _empty(found), not _large(found), narrow, case.form == "mha", elements, case.id
