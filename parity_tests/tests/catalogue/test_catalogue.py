"""The catalogue: every bug that can be seen is seen soon, on cases of the kind it says it needs."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import FAMILIES, Attention, Bug, catalogue
from mha_parity.catalogue import registry as entering
from mha_parity.catalogue.registry import feature_values
from mha_parity.catalogue.state import INPUTS
from mha_parity.core.candidate import CandidateError
from mha_parity.core.problem import WEIGHTS
from mha_parity.selftest.mutant import run_mutants, suite_cases
from mha_parity.selftest.mutation_run import CASES, GRADIENT_CASES

if TYPE_CHECKING:
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem

SEED = 11
DIRECTED = 40  # cases with the features that a bug names
# What one case cannot tell from rounding; the error over a whole run can.
DROWNED = {("softmax-add-eps", "float32")}
SEEN = [
    (bug.id, dtype)
    for bug in catalogue().values()
    for dtype in bug.dtypes
    if bug.equivalent is None and bug.beyond is None and (bug.id, dtype) not in DROWNED
]
EQUIVALENT = [bug.id for bug in catalogue().values() if bug.equivalent is not None]


def directed(bug: Bug, dtype: str) -> list[Case]:
    """Return cases of the suite that have what the bug needs to show."""
    if "gradients" in bug.needs:
        return list(suite_cases(dtype, SEED, GRADIENT_CASES, bug.needs["gradients"]))
    return [case for case in suite_cases(dtype, SEED, CASES) if _has(case, bug)][:DIRECTED]


def _has(case: Case, bug: Bug) -> bool:
    own = case.features()
    return all(own[axis] in values for axis, values in bug.needs.items())


@pytest.mark.parametrize(("name", "dtype"), SEEN, ids=[f"{n}-{d}-seed{SEED}" for n, d in SEEN])
def test_a_bug_is_seen_soon(name: str, dtype: str) -> None:
    """A few dozen cases with the features that an entry names are enough to fail it."""
    bug = catalogue()[name]
    (kill,) = run_mutants([bug], directed(bug, dtype), full=0)
    assert kill.killed, f"{name} survives {kill.cases} {dtype} cases"


@pytest.mark.parametrize("name", EQUIVALENT, ids=[f"{n}-seed{SEED}" for n in EQUIVALENT])
def test_an_equivalent_is_never_taken_for_wrong(name: str) -> None:
    """Another order of the same arithmetic passes on the cases on which it is another order."""
    bug = catalogue()[name]
    for dtype in bug.dtypes:
        (kill,) = run_mutants([bug], directed(bug, dtype))
        assert not kill.killed, kill
        assert kill.cases > 0


def test_a_change_that_does_nothing_is_not_seen() -> None:
    """The same cases pass the attention that all bugs change: what is seen is the bug's doing."""
    harmless = Bug(
        id="harmless", family=1, title="nothing", wrong="-", right="-", visible_when="never",
        remedy="-", kinds=(type("Same", (Attention,), {}),),
    )  # fmt: skip
    (kill,) = run_mutants([harmless], directed(harmless, "float64"), full=0)
    assert (DIRECTED, {}) == (kill.cases, dict(kill.by))


@pytest.mark.parametrize("name", catalogue())
def test_a_wrong_attention_leaves_its_problem_alone(name: str) -> None:
    """The bugs share their problems, so that none may write into them; not even where masked."""
    attend = catalogue()[name].function()
    for problem in _some_problems():
        before = _bytes(problem)
        try:
            with np.errstate():  # one of them leaves the error state changed
                attend(problem)
        except (CandidateError, ValueError, IndexError):
            continue
        finally:
            assert before == _bytes(problem)


@cache
def _some_problems() -> tuple[Problem, ...]:
    masked = [case for case in suite_cases("float64", SEED, CASES) if case.masked_rows == "some"]
    floats = [case for case in masked if "float" in case.padding + case.attn]
    return tuple(make_problem(case) for case in (*masked[:3], *floats[:3]))


def _bytes(problem: Problem) -> list[bytes | None]:
    arrays = (getattr(problem, name) for name in (*INPUTS, *WEIGHTS))
    return [None if array is None else array.tobytes() for array in arrays]


@pytest.mark.parametrize("name", catalogue())
def test_an_entry_tells_its_story(name: str) -> None:
    """Each entry says in words what is wrong and right, when it shows, what to do, and where from.

    Threads read as owner/repository#number; "(right)" among the aliases: equal in special cases.
    """
    bug = catalogue()[name]
    assert bug.family in FAMILIES
    for text in (bug.title, bug.wrong, bug.right, bug.visible_when, bug.remedy):
        assert text
        assert text == text.strip().rstrip(".")
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", thread) for thread in bug.sources)
    assert all(re.fullmatch(r"[a-z0-9-]+|\(right\)", alias) for alias in bug.aliases)
    assert bool(bug.kinds) is (bug.make is None)


def test_an_id_names_one_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entering a second bug under an id is refused."""
    monkeypatch.setattr(entering, "CATALOGUE", dict(catalogue()))
    with pytest.raises(ValueError, match="`scale-none` is in the catalogue twice"):
        entering.enter(catalogue()["scale-none"])


def test_needs_are_features() -> None:
    """A bug cannot need what no case has."""
    with pytest.raises(ValueError, match="`padding=wool` is no feature"):
        feature_values("attn=causal padding=wool")


def test_contiguous_arrays_are_read_as_they_are_whatever_their_strides() -> None:
    """Kills NaN around an array that is read for it: a pair of bugs then had NaN alone."""
    kind = catalogue()["strides-ignored"].kinds[0]
    for problem in (make_problem(case) for case in suite_cases("float64", SEED, 40)):
        if problem.case.memory == "c":
            right, found = (each(problem).answer().output for each in (Attention, kind))
            np.testing.assert_array_equal(right, found)
