"""An answer that depends on earlier calls is a finding that names the two calls that show it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import pytest

from mha_parity.cases.covering import case_index, draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.catalogue.plain_attention import Attention, answer_of
from mha_parity.catalogue.registry import whole_offer
from mha_parity.catalogue.state import problem_signature
from mha_parity.core.arrays import Array
from mha_parity.core.candidate import FunctionCandidate
from mha_parity.core.case import parse
from mha_parity.core.check_result import CheckResult
from mha_parity.core.options import Options
from mha_parity.core.problem import Problem
from mha_parity.core.verdict import Verdict
from mha_parity.run import fresh_process
from mha_parity.run.check import check
from mha_parity.run.diagnosis_run import KEPT
from mha_parity.run.fresh_process import CHECK
from mha_parity.worker.open_target import opened
from subject_checks import SUBJECTS

Function = Callable[[Problem], Array]
FEW = 8
PLAIN = whole_offer() | {
    "weights": ("none",), "dtype": ("float64",), "size": ("small",), "attn": ("none",),
    "padding": ("none",), "masked_rows": ("none",), "regime": ("normal",), "scale": ("default",),
}  # fmt: skip


def right(problem: Problem) -> Array:
    """Return the right answer."""
    return answer_of(Attention, problem).output


def caches_by_shape() -> Function:
    """Return an attention that answers all problems of a shape as the first of them."""
    kept: dict[object, Array] = {}
    return lambda problem: kept.setdefault(problem_signature(problem), right(problem)).copy()


def keeps_the_first_scale() -> Function:
    """Return an attention with the scale that the first call had."""
    kept: list[float] = []

    def function(problem: Problem) -> Array:
        kept.append(problem.scale)
        return right(problem.replace(given_scale=kept[0]))

    return function


def keeps_the_first_buffer() -> Function:
    """Return an attention whose output has as many numbers as the first call had, and zeros."""
    kept: list[int] = []

    def function(problem: Problem) -> Array:
        output = right(problem)
        kept.append(output.size)
        output.reshape(-1)[kept[0] :] = 0
        return output

    return function


def grows() -> Function:
    """Return an attention to the keys and values of all calls of a width and batch so far."""
    kept: dict[object, tuple[Array, Array]] = {}

    def function(problem: Problem) -> Array:
        key, value = problem.key, problem.value
        like = key.shape[::2], value.shape[::2], problem.case.inputs
        if like in kept:
            pairs = zip(kept[like], (key, value), strict=True)
            key, value = (np.concatenate(pair, axis=1) for pair in pairs)
        kept[like] = key, value
        case = problem.case.replace(keys=key.shape[1])
        return right(problem.replace(key=key, value=value, case=case))

    return function


@dataclasses.dataclass(frozen=True, eq=False)
class WithFresh(FunctionCandidate):
    """A function that can be made anew, as a target can that has a process of its own."""

    made: Callable[[], Function] = caches_by_shape

    def fresh(self) -> AbstractContextManager[FunctionCandidate]:
        """Return the function without memory."""
        return opening(self.made)


@contextmanager
def opening(made: Callable[[], Function]) -> Iterator[FunctionCandidate]:
    """Yield a function that was never called."""
    yield FunctionCandidate("fresh", made(), PLAIN)


def judged(made: Callable[[], Function], cases: int) -> Verdict:
    """Judge a function that keeps something from call to call."""
    candidate = WithFresh("f", made(), PLAIN, made=made)
    return check(candidate, Options(cases=cases, shrink=False))


def finding(verdict: Verdict) -> CheckResult:
    """Return the finding of a verdict."""
    (found,) = (each.check_result for each in verdict.failures if each.check_result.check == CHECK)
    return found


def output_after(made: Callable[[], Function], *problems: Problem) -> Array:
    """Return the answer to the last of some problems asked one after the other."""
    function = made()
    return [function(problem) for problem in problems][-1]


@pytest.mark.parametrize("made", [keeps_the_first_scale, keeps_the_first_buffer, grows])
def test_the_two_calls_that_are_named_show_the_state(made: Callable[[], Function]) -> None:
    """The case named first has another answer after the case named second than alone."""
    sentence = finding(judged(made, 12)).detail
    ids = [word for word in sentence.split() if word.startswith(("qkv-", "mha-"))]
    later, earlier = (make_problem(parse(each)) for each in ids)

    assert "than in a fresh process: elements differ by up to" in sentence
    assert not np.allclose(output_after(made, later), output_after(made, earlier, later))


def test_a_cache_by_shape_is_named_by_its_relation() -> None:
    """A cache by shape answers a related problem with the answer to the case before it."""
    found = finding(judged(caches_by_shape, 12))

    assert found.detail.startswith(f"{found.case.id} with ")
    assert f"is answered otherwise after {found.case.id} than" in found.detail


def poisoned() -> Function:
    """Return an attention that is wrong at one place of a run after a later place was asked."""
    asked: set[int] = set()

    def function(problem: Problem) -> Array:
        place = case_index(problem.case)
        asked.add(place)
        return right(problem) * (2 if place == FEW and 2 * FEW in asked else 1)

    return function


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> int:
    """Take a sample of each eighth case, in runs from 20 cases on; return that number."""
    monkeypatch.setattr(fresh_process, "EVERY", FEW)
    monkeypatch.setattr(fresh_process, "SAMPLED_FROM", 20)
    return fresh_process.SAMPLED_FROM


def test_a_sample_of_right_answers_is_asked_in_reverse_order(sampled: int) -> None:
    """State that fails no case of the run is seen, and both calls are named."""
    verdict = judged(poisoned, sampled)
    found = finding(verdict)

    assert 0 == verdict.failed
    assert FEW == case_index(found.case)
    assert f"after {draw_cases(PLAIN, sampled, 0)[2 * FEW].id} than" in found.detail
    assert [0, FEW] == [place for place in range(FEW + 1) if fresh_process.is_sampled(place)]


def test_a_short_run_of_right_answers_is_not_asked_again(sampled: int) -> None:
    """Kills a sample of every run without a failure, however short: a process costs more."""
    verdict = judged(poisoned, sampled - 1)
    assert 0 == verdict.failed
    assert CHECK not in {row.name for row in verdict.checks}


def test_an_attention_without_state_has_no_finding(sampled: int) -> None:
    """A right attention is asked again in reverse order, and nothing is found."""
    verdict = judged(lambda: right, sampled)

    assert 0 == verdict.failed
    assert CHECK not in {row.name for row in verdict.checks}


def test_a_target_is_asked_in_a_further_process() -> None:
    """A scale kept in a module of its own process is found, and the two calls are named."""
    target = f"{SUBJECTS}/keeps_scale.py:attention"
    options = Options(cases=16, shrink=False)
    with opened(target, options) as candidate:
        verdict = check(candidate, options, target=target)

    assert "than in a fresh process" in finding(verdict).detail


def test_a_mask_that_hides_the_future_by_itself_is_passed_in_a_fresh_process() -> None:
    """What an earlier process found of masks and of the causal rule holds there too."""
    target, options = f"{SUBJECTS}/single_lengths.py:causal", Options(dtypes=("float64",))
    with opened(target, options) as candidate:
        cases = draw_cases({**candidate.offer, "padding": ("lengths",)}, 6, 1)
        problems = [make_problem(case) for case in cases]
        expected = [candidate(each).output for each in problems]
        with candidate.fresh() as other:  # type: ignore[attr-defined]  # of targets in a process
            found = [other(each).output for each in problems]
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(found, expected, strict=True))


def test_a_cache_that_is_written_into_is_the_first_cause() -> None:
    """No formula is right of such a target: what was measured of it is left out."""
    target = f"{SUBJECTS}/single_lengths.py:causal_in_the_cache"
    options = Options(dtypes=("float64",), cases=200, shrink=False)
    with opened(target, options) as candidate:
        first, *others = check(candidate, options, target=target).diagnosis
    assert KEPT == first.title
    assert "fresh process" in first.evidence
    assert all(each.bug for each in others)


@pytest.mark.parametrize(
    ("target", "more"),
    [
        ("optional_inputs.py:OptionalOther", {"inputs": ("cross",)}),
        ("optional_inputs.py:SwitchedContext", {"inputs": ("cross",)}),
        ("packed_samples.py:varlen", {"attn": ("causal",), "inputs": ("cross",)}),
    ],
)
def test_what_trials_settled_holds_in_a_fresh_process(
    target: str, more: dict[str, tuple[str, ...]]
) -> None:
    """Which input is the keys, a switch of these, where the causal rule counts from.

    Calls that know it not are answered otherwise, and were taken for state of the target.
    """
    with opened(f"{SUBJECTS}/{target}", Options(dtypes=("float64",))) as candidate:
        offer = {**candidate.offer, **more}
        problems = [make_problem(case) for case in draw_cases(offer, 6, 1)]
        expected = [candidate(each).output for each in problems]
        with candidate.fresh() as other:  # type: ignore[attr-defined]  # of targets in a process
            found = [other(each).output for each in problems]
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", ["f", "of_both"])
def test_a_fresh_process_gets_arrays_of_the_same_library(name: str) -> None:
    """Tensors, where it raises on NumPy's arrays and where it computes with these otherwise."""
    target, options = f"{SUBJECTS}/torch_function.py:{name}", Options(dtypes=("float32",))
    with opened(target, options) as candidate:
        problems = [make_problem(case) for case in draw_cases(candidate.offer, 6, 1)]
        expected = [candidate(each).output for each in problems]
        with candidate.fresh() as other:  # type: ignore[attr-defined]  # of targets in a process
            found = [other(each).output for each in problems]
    assert all(a.dtype == b.dtype for a, b in zip(found, expected, strict=True))
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(found, expected, strict=True))
