"""The bug is named: on wrong attentions written in other styles than the catalogue's.

Each subject says in its file what it does wrong. The suite runs on it, and the failing cases go to
the diagnosis, which has never seen it.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import Attention, answer_of, catalogue
from mha_parity.catalogue.gradients import with_gradients
from mha_parity.catalogue.registry import whole_offer
from mha_parity.core.candidate import Answer, FunctionCandidate
from mha_parity.core.case import Case
from mha_parity.core.options import Options
from mha_parity.diagnose import Observation, diagnose
from mha_parity.judging.output import JudgeSettings
from mha_parity.oracle.eval_orders_vjp import VJP
from mha_parity.run.asked_cases import NarrowedCandidate, restricted_offer
from mha_parity.run.case_run import run_cases
from mha_parity.run.check import check
from mha_parity.selftest.mutant import monitored
from mha_parity.targets.bind import bind
from subject_checks import SUBJECTS, check_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Candidate
    from mha_parity.core.problem import Problem
    from mha_parity.core.verdict import Diagnosis

FOLDER = SUBJECTS / "wrong"
STYLES = ("einsums", "layers", "lengths", "loops", "streams", "tensors")
LOOPS = ("loops",)  # Python loops over every number: their bugs show at small sizes
SEED = 5
CASES = 400
GRADIENT_CASES = 30  # some of each kind of mask
FAILURES = 12  # a diagnosis looks at twice as many; fewer are harder
SECONDS = 200.0  # forty times those of a check: a busy machine shall not end the search


@cache
def style(name: str) -> ModuleType:
    """Return the subjects of one style."""
    spec = importlib.util.spec_from_file_location(f"wrong_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def subjects(*styles: str) -> list[tuple[str, str, str]]:
    """Return style, name and true bug of every subject."""
    return [(each, name, true) for each in styles for name, true in style(each).EXPECTED.items()]


def failing(candidate: Candidate) -> Iterator[tuple[Problem, Answer]]:
    """Yield what the suite finds wrong."""
    offer = restricted_offer(candidate, Options())
    for case_result in run_cases(candidate, draw_cases(offer, CASES, SEED), JudgeSettings()):
        if case_result.fails and case_result.problem is not None and case_result.answer is not None:
            yield case_result.problem, case_result.answer


@cache
def diagnosed(file: str, name: str) -> tuple[Diagnosis, ...]:
    """Return what the diagnosis says of a subject, however busy the machine is."""
    candidate: Candidate = bind(getattr(style(file), name))
    if file in LOOPS:
        few = {"size": ("small", "equal")}
        candidate = NarrowedCandidate(candidate, {**candidate.offer, **few})
    failures = list(islice(failing(candidate), FAILURES))
    assert failures, f"{name} passes {CASES} cases"
    return diagnose(candidate, failures, budget=SECONDS)


def names(diagnosis: Diagnosis) -> set[frozenset[str]]:
    """Return the name and its aliases; of two bugs at once the order is nothing."""
    given = (diagnosis.bug or "", *diagnosis.aliases)
    return {frozenset(name.split(" + ")) for name in given}


BOTH_MASKS, TILED = "KeepMask", "TiledMask"  # they have tests of their own below
SINGLE = [each for each in subjects(*STYLES) if each[1] not in {BOTH_MASKS, TILED}]
# Every tenth subject; the others, and the same bugs in further styles, are for `make test-all`.
SAMPLED = {name for _, name, _ in SINGLE[::10]}


@pytest.mark.parametrize(
    ("file", "name", "true"),
    [
        pytest.param(
            *each,
            id=f"{each[0]}-{each[1]}-seed{SEED}",
            marks=() if each[1] in SAMPLED else pytest.mark.slow,
        )
        for each in SINGLE
    ],
)
def test_the_first_name_is_the_true_one(file: str, name: str, true: str) -> None:
    """The bug is named first, or as an alias that no output tells from it; nothing else surely."""
    found = diagnosed(file, name)
    assert found
    assert frozenset((true,)) in names(found[0])
    assert not [each.bug for each in found[1:] if each.confident]
    assert found[0].remedy


@pytest.mark.whole
def test_a_bug_beyond_its_entry_is_two_of_the_catalogue() -> None:
    """A mask that inverts the causal rule too: no entry alone predicts both."""
    (found,) = diagnosed("tensors", BOTH_MASKS)
    assert ("bool-inverted + causal-anti", True) == (found.bug, found.confident)


def test_masks_in_the_order_of_heads_are_named() -> None:
    """A mask of N * H rows that is read as (H, N) in place of (N, H) has a name of its own."""
    assert "mask3d-tile-order" == diagnosed("layers", TILED)[0].bug


def test_a_prediction_takes_the_projections_that_are_there() -> None:
    """Projected once for all that change nothing before the heads; others project themselves."""
    calls = []

    class Counted(Attention):
        def project(self) -> tuple[Array, Array, Array]:
            calls.append(1)
            return super().project()

    problem = make_problem(Case(seed=3, batch=2, queries=4, keys=5, heads_count=2, head_dim=3))
    seen = Observation(problem, None, failing=False)
    seen.projected = Counted(problem).project()
    for bug in ("scale-none", "split-no-transpose"):
        kind = catalogue()[bug].kinds[0]
        answer = seen.of(kind).answer
        assert answer is not None
        assert np.array_equal(answer.output, answer_of(kind, problem).output)
    seen.of(Counted)
    assert 2 == len(calls)


@pytest.mark.parametrize("out_of_place", [False, True])
def test_a_nan_that_the_output_projection_spreads_fits_the_bug(out_of_place: bool) -> None:
    """0 times the NaN of one head is NaN in all of its row, and in no other row."""
    case = Case(seed=1, batch=1, queries=4, keys=4, heads_count=3, head_dim=2, regime="huge")
    kind = catalogue()["softmax-no-max"].kinds[0]
    problem = make_problem(case)
    predicted = answer_of(kind, problem)
    rows = np.isnan(predicted.output).any(axis=-1, keepdims=True)
    assert 0 < rows.sum() < rows.size
    assert not np.array_equal(np.isnan(predicted.output).all(axis=-1, keepdims=True), rows)
    spread = np.where(~rows if out_of_place else rows, np.nan, predicted.output)
    seen = Observation(problem, Answer(output=spread), failing=True)
    assert seen.matches(kind) is not out_of_place


def test_the_subjects_are_many() -> None:
    """At least forty wrong attentions, in six styles, of at least thirty bugs."""
    assert len(SINGLE) >= 40
    assert len({true for _, _, true in SINGLE}) >= 30


PAIRS = subjects("pairs")


@pytest.mark.parametrize(
    ("file", "name", "true"),
    [
        pytest.param(*each, id=f"{each[1]}-seed{SEED}", marks=pytest.mark.slow if i % 3 else ())
        for i, each in enumerate(PAIRS)
    ],
)
def test_two_bugs_at_once_are_both_named(file: str, name: str, true: str) -> None:
    """Where no single bug explains what is seen, the right two do."""
    found = diagnosed(file, name)
    assert found
    assert frozenset(true.split(" + ")) in names(found[0])
    pairs = [frozenset(each.split(" + ")) for each in (found[0].bug or "", *found[0].aliases)]
    assert len({*pairs}) == len(pairs)


@pytest.mark.repeats(3)
@pytest.mark.parametrize("name", style("strange").UNKNOWN)
def test_what_is_in_no_catalogue_gets_measurements(name: str) -> None:
    """A mistake outside the catalogue is given no name with confidence, but numbers."""
    found = diagnosed("strange", name)
    assert not [each.bug for each in found if each.confident]
    assert [each.title for each in found if each.bug is None]


def test_the_share_explained_is_of_the_failures() -> None:
    """A bug in one feature beside a bug everywhere is said to explain a part, and not surely."""
    found = diagnosed("layers", "LateQueryBias")
    assert found[0].confident
    assert 1 == found[0].explains
    assert "predicts" in found[0].evidence


def checked(file: str, name: str) -> tuple[Diagnosis, ...]:
    """Return what a check of gradients says of a subject."""
    spec = importlib.util.spec_from_file_location(f"right_{file}", FOLDER.parent / f"{file}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    candidate = bind(getattr(module, name))
    return check(
        candidate, Options(cases=GRADIENT_CASES, seed=SEED, grad=True, shrink=False)
    ).diagnosis


@pytest.mark.repeats(1)
@pytest.mark.parametrize(
    "name", [bug.id for bug in catalogue().values() if bug.family == 12 and bug.beyond is None]
)
def test_wrong_gradients_are_named(name: str) -> None:
    """Behind a right output a wrong backward pass is named by the gradients that it gives."""
    bug = catalogue()[name]
    candidate = replace(bug.candidate(), function=monitored(bug))
    (found,) = check(
        candidate, Options(cases=GRADIENT_CASES, seed=SEED, grad=True, shrink=False)
    ).diagnosis
    assert name == found.bug
    assert found.confident


def test_a_wrong_gradient_of_other_hands_is_named() -> None:
    """A layer with gradients written by hand that takes the softmax for its diagonal."""
    (found,) = checked("numpy_vjp", "ForgetsRowTerm")
    assert ("grad-softmax-diag", True) == (found.bug, found.confident)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        pytest.param(
            "Negates",
            "gradient dV is -1 times the right one, in all heads and rows",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "ForgetsScale",
            "gradient dQ is sqrt(D) (2.449) times the right one, in all heads and rows",
            marks=pytest.mark.slow,
        ),
        (
            "ForgetsFirstHead",
            "gradient dQ is wrong at the first head (0), rows 0 … 1, by no one factor",
        ),
        (
            "ForgetsBroadcast",
            "with float attn_mask (L, S): gradient of attn_mask is wrong, by no one factor",
        ),
    ],
)
def test_a_gradient_of_no_entry_is_measured(name: str, sentence: str) -> None:
    """Which gradient is wrong, and by which factor, where the catalogue has no name for it."""
    assert sentence in [each.title for each in checked("numpy_vjp", name)]


@pytest.mark.parametrize(
    ("factor", "title"),
    [
        pytest.param(
            lambda _: 0.5,
            "gradient of value is 0.5 times the right one, in all heads and rows",
            marks=pytest.mark.slow,
        ),
        (
            lambda c: c.head_dim**-0.5,
            "gradient of value is 1/sqrt(D) (0.3015) times the right one, in all heads and rows",
        ),
    ],
    ids=["half", "root"],
)
def test_a_formula_is_one_of_all_failing_cases(factor: Callable[[Case], float], title: str) -> None:
    """A half is 1/sqrt(4) in a case of four heads, by chance; a formula has to fit three."""
    right = with_gradients(VJP)()

    def answer(problem: Problem) -> Answer:
        found = right(problem)
        if found.gradients is None:  # of an empty problem
            return found
        value = found.gradients["value"] * problem.dtype.type(factor(problem.case))
        return replace(found, gradients=found.gradients | {"value": value})

    offer = whole_offer() | {"dtype": ("float64",), "gradients": ("yes",)}
    candidate = FunctionCandidate("scaled", answer, offer)
    (found,) = check(candidate, Options(cases=30, seed=SEED, grad=True, shrink=False)).diagnosis
    assert title == found.title
    assert found.bug is None


def test_nothing_is_said_of_right_gradients() -> None:
    """The same layer with nothing changed passes."""
    assert () == checked("numpy_vjp", "Layer")


@pytest.mark.filterwarnings("ignore:(overflow|invalid value)")  # what the subject does wrong
def test_an_overflow_in_16_bits_is_named() -> None:
    """Float16 overflows past 11 where exp is computed in it: the name fits the cases of each dtype.

    The plainest failing cases are those of float16, since others overflow at wild scores alone.
    """
    found = check_subject("overflowing.py:attention", cases=100, diagnose=True)
    named = found.diagnosis[0]
    assert ("softmax-no-max", True, 1.0) == (named.bug, named.confident, named.explains)
    only = check_subject("overflowing.py:attention", cases=100, diagnose=True, dtypes=("float16",))
    assert "softmax-no-max" == only.diagnosis[0].bug
