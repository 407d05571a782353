"""Check the side effects and the repeatability of each call, in the process that makes it.

A finding is ``name: sentence`` for a check that failed, or the bare name of one that was made and
passed unless another finding of that name says otherwise. The answer carries them as its notes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mha_parity.cases.covering import FIRST, REPEAT_EVERY, case_index
from mha_parity.checks import altered_problems, dropout, further_checks, statelessness
from mha_parity.checks.altered_problems import other_problem
from mha_parity.checks.call_sequence import copied
from mha_parity.checks.compared_calls import ComparedCall, compared_calls_reported, tell_compared
from mha_parity.checks.forbidden_modules import ForbiddenModules
from mha_parity.checks.seeded_calls import seeded_call, seeds_again
from mha_parity.core.candidate import REMARK, Answer, CandidateError
from mha_parity.core.compare import as_float64, describe_difference, equal_up_to_rounding
from mha_parity.core.features import AXES, PLAIN
from mha_parity.core.global_state import GlobalState
from mha_parity.targets.calls.error_origin import attributed
from mha_parity.targets.calls.target_call import Call, as_they_stand
from mha_parity.targets.source_facts import source_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention


class Schedule(NamedTuple):
    """The places in the draw with further calls: ``first`` ones, then each multiple of ``every``.

    The place decides, and not what this process has seen: whether a case fails must not depend on
    the cases before it.
    """

    first: int
    every: int

    def number(self, case: Case) -> int:
        """Return the 1-based number of a scheduled case; 0 where it is not scheduled."""
        place = case_index(case)
        if place < self.first:
            return place + 1
        return self.first + place // self.every if place % self.every == 0 else 0


FURTHER = "further calls complete"
LAYOUT = "memory layout"
CHECKS: Mapping[str, str] = MappingProxyType(
    {
        "inputs unchanged": "the call leaves the arrays passed in as they were",
        "output aliasing": "the output shares no memory with an input, nor with a later output",
        "determinism": "the same call gives the same answer",
        "statelessness": "an answer does not depend on earlier calls, modes or autograd",
        LAYOUT: "the same numbers in contiguous arrays get the same answer",
        "global state unchanged": "the call leaves the global state of NumPy, torch and random",
        "forbidden modules": "the call runs no code of a module that --forbid names",
        FURTHER: "the calls that a check makes besides that of the case end, at sizes of their own",
        "weights reloaded": "a layer computes with the weights loaded last, and saves them",
    }
    | {**further_checks.CHECKS}
)
REPEAT = Schedule(first=FIRST, every=REPEAT_EVERY)  # of repeated calls
# The same where each operation is compiled for each size, a second for the sizes of a case.
REPEAT_COMPILED = Schedule(first=FIRST // 2, every=4 * REPEAT_EVERY)
# Of dropout, rejected inputs, NaN, caches and sequences of calls, on further problems.
EXTRA = Schedule(first=12, every=101)
LEAST_MASK = -1e3  # what a mask adds to the score of a key that may have a weight next to another's
COMPILED = (
    f"JAX compiles each operation for each size: all calls but the first {REPEAT_COMPILED.first} "
    f"and one in {REPEAT_COMPILED.every} are made under jax.jit, where it takes them."
)
ALWAYS = ("inputs unchanged", "output aliasing", "global state unchanged")


class MonitoredCandidate:
    """A candidate whose every call is checked for side effects."""

    def __init__(self, bound: Convention, *, forbid: Iterable[str] = ()) -> None:
        self.bound = bound
        self.name = bound.name
        self.convention = bound.convention
        self.offer: Offer = bound.offer
        self.masks = bound.masks
        self.facts = source_facts(bound)
        self._forbid = tuple(forbid)
        self._last: Case | None = None
        self._tell: Callable[[str, str], None] | None = None
        self.left_out: tuple[str, ...] = ()  # checks whose further calls ended an earlier process
        self.on_check: Callable[[str], None] = lambda _: None  # called with what is checked, and ""
        self._lost: list[tuple[str, str]] = []

    def describe_calls(self, tell: Callable[[str, str], None]) -> None:
        """Have ``tell`` called with "" and the call of each problem, as Python, before it is made.

        Where a check finds something in calls of its own, with its name and those calls.
        """
        self._tell = tell

    def __call__(self, problem: Problem) -> Answer:
        """Return the candidate's answer with the findings of this call."""
        schedule = REPEAT_COMPILED if self.facts.compiles else REPEAT
        repeated = schedule.number(problem.case) > 0
        before = GlobalState.now()
        try:
            with (
                self.bound.bypass,
                attributed(self.bound.subject),
                as_they_stand(on=repeated),
                compared_calls_reported(self._tell),
            ):
                return self._monitored(problem, repeated=repeated)
        finally:  # a call that raises leaves nothing to the next, and no further call does
            before.restore()

    def _monitored(self, problem: Problem, *, repeated: bool) -> Answer:
        call = self.bound.prepare(problem)
        if self._tell is not None:
            self._tell("", self.bound.as_python(call))
        before = [array.copy() for _, array in call.given]
        before_call = GlobalState.now()
        started = time.perf_counter()
        with ForbiddenModules(self._forbid) as forbidden:
            result = call.make()
        seconds = time.perf_counter() - started
        failed = [*before_call.changed(), *forbidden.findings(), *written_inputs(call, before)]
        before_call.restore()
        answer = self.bound.answered(problem, call, result)
        failed += _aliases(call, answer)
        kept = dataclasses.replace(copied(answer), seconds=seconds)
        if call.compiles:
            kept = dataclasses.replace(kept, remarks=(*kept.remarks, COMPILED))
        findings = [*ALWAYS, *(["forbidden modules"] if self._forbid else []), *failed]
        # The second problem of a relation has the case of the first: ask nothing more of it.
        related = problem.single_call or problem.case == self._last
        self._last = None if related else problem.case
        self._lost = []
        if not related and not failed and repeated and is_repeatable(problem):
            found = self.repeated_answers(problem, call, answer, kept)
            findings += self._further("repeated calls", found)
        if not related and (number := EXTRA.number(problem.case)):
            for name, further in further_checks.further_checks(self.bound, problem, number):
                findings += self._further(name, further)
            if not failed:
                sequence = statelessness.check_statelessness(self.bound, problem, number)
                findings += self._further("statelessness", sequence)
        return dataclasses.replace(with_findings(kept, findings), lost=tuple(self._lost))

    def _further(self, name: str, findings: Iterator[str]) -> Iterator[str]:
        """Yield the findings of further calls, unless such a call ended an earlier process.

        An exception that one of them raises is none of the call that the case is judged by.
        """
        if name in self.left_out:
            return
        self.on_check(name)
        try:
            yield from findings
        except CandidateError as error:
            if error.severity != "inconclusive":  # else the target cannot be asked that
                sentence = f"{error} in a further call, made to check {name}"
                self._lost.append((error.severity, f"{sentence}\n{error.detail}".rstrip()))
        finally:
            self.on_check("")

    def repeated_answers(
        self, problem: Problem, call: Call, answer: Answer, kept: Answer
    ) -> Iterator[str]:
        """Repeat the call: at once, with other seeds, after another problem, with the same object.

        ``kept`` is ``answer`` with a copy of its output.
        """
        calls = [seeded_call(self.bound, problem, seed) for seed in (1, 2)]
        yield from seeds_again(*calls)
        second, third = (each.output for each in calls)
        if not equal_up_to_rounding(second, third):
            again = ComparedCall("the same again", problem, third)
            tell_compared("determinism", ComparedCall("a call", problem, second), again)
            yield f"determinism: {describe_difference(second, third)} between two equal calls."
            return
        yield "determinism"
        if not equal_up_to_rounding(kept.output, third):
            first_call = ComparedCall("the first call", problem, kept.output)
            tell_compared("statelessness", first_call, ComparedCall("a later one", problem, third))
            yield f"statelessness: {describe_difference(kept.output, third)} when asked again."
            return
        yield "statelessness"
        other = other_problem(problem)
        second = self.bound(other).output
        if not np.array_equal(answer.output, kept.output, equal_nan=True):
            yield f"output aliasing: {statelessness.OVERWRITES.format('output')}."
        # To the bit: in bfloat16 two problems may differ by less than the order of sums does.
        # Answers that are NaN throughout say nothing.
        elif (
            np.array_equal(kept.output, second, equal_nan=True)
            and np.nan_to_num(as_float64(second)).any()
            and (not problem.appended or sees_own_keys(problem))
        ):
            tell_compared(
                "statelessness",
                ComparedCall("the case", problem, kept.output),
                ComparedCall("another problem of these shapes", other, second),
            )
            yield "statelessness: another problem of these shapes got the same answer."
        unchanged = partial(self._unchanged, problem, kept)
        yield from unchanged("after another problem", self.bound(problem))
        yield from unchanged("to the same call of one object", self._answer(problem, call))
        yield from self._contiguous(problem, kept)
        yield from self._modes(problem, other, kept)

    def _answer(self, problem: Problem, call: Call) -> Answer:
        return self.bound.answer(problem, call.make())

    def _unchanged(self, problem: Problem, kept: Answer, when: str, again: Answer) -> Iterator[str]:
        if not equal_up_to_rounding(kept.output, again.output):
            first = ComparedCall("the first call", problem, kept.output)
            tell_compared("statelessness", first, ComparedCall(when, problem, again.output))
            difference = describe_difference(kept.output, again.output)
            yield f"statelessness: {difference} in the answer {when}."

    def _contiguous(self, problem: Problem, kept: Answer) -> Iterator[str]:
        """Check the answer to a problem laid out otherwise against that to contiguous arrays."""
        layout = problem.case.memory
        if layout == PLAIN["memory"]:
            return
        plain = problem.replace(case=problem.case.replace(memory=PLAIN["memory"]))
        output = self.bound(plain).output
        if equal_up_to_rounding(output, kept.output):
            yield LAYOUT
            return
        difference = describe_difference(output, kept.output)
        laid_out, contiguous = AXES["memory"][layout], AXES["memory"][plain.case.memory]
        tell_compared(
            LAYOUT,
            ComparedCall(contiguous, plain, output),
            ComparedCall(laid_out, problem, kept.output),
        )
        yield f"{LAYOUT}: {difference} in the answers of {laid_out} and of {contiguous}."

    def _modes(self, problem: Problem, other: Problem, kept: Answer) -> Iterator[str]:
        """Check a layer that had other weights before, and one with dropout in eval mode."""
        reloaded = self.bound.call_after_loading(problem, other)
        if reloaded is not None:
            again = self._answer(problem, reloaded).output
            name = "weights reloaded"
            if equal_up_to_rounding(kept.output, again):
                yield name
            else:
                tell_compared(
                    name,
                    ComparedCall("a layer with these weights", problem, kept.output),
                    ComparedCall("one that had others, and was called", problem, again),
                )
                yield (
                    f"{name}: {describe_difference(kept.output, again)} from a newly constructed "
                    f"layer{self._by_old_weights(problem, other, again)}."
                )
            if unlike := self.bound.not_saved(problem, reloaded):
                yield f"{name}: state_dict() has another `{unlike}` than was loaded."
        prepare = self.bound.with_dropout(problem, dropout.P)
        if prepare is not None:
            evaluated = self._answer(problem, prepare(False)).output
            yield dropout.dropout_off(problem, kept.output, evaluated)

    def _by_old_weights(self, problem: Problem, other: Problem, again: Array) -> str:
        """Say that an answer is the one by the weights that were loaded before, where it is."""
        with contextlib.suppress(CandidateError):
            old = self.bound(altered_problems.with_weights_of(problem, other)).output
            return f"; {statelessness.OLD_WEIGHTS}" if equal_up_to_rounding(old, again) else ""
        return ""


def sees_own_keys(problem: Problem) -> bool:
    """Return whether a query sees a key that is not appended, with a mask that leaves it weight.

    Where padding leaves the appended row of zeros alone, any inputs have the same answer.
    """
    own = problem.weights_shape[-1] - problem.appended
    visible = ~problem.hidden()[..., :own] & (problem.additive()[..., :own] > LEAST_MASK)
    return bool(visible.any())


def with_findings(answer: Answer, findings: list[str]) -> Answer:
    """Return the answer with failed checks, remarks and passed checks, each once."""
    remarks = tuple(dict.fromkeys(each for each in findings if each.startswith(REMARK)))
    checks = dict.fromkeys(each for each in findings if each not in remarks)
    failed = {each: each.partition(": ")[0] for each in checks if ": " in each}
    return dataclasses.replace(
        answer,
        notes=tuple(failed),
        held=tuple(each for each in checks if ": " not in each and each not in failed.values()),
        remarks=(*answer.remarks, *(remark.removeprefix(REMARK) for remark in remarks)),
    )


def is_repeatable(problem: Problem) -> bool:
    """Return whether a repeated call is comparable: where rounding is not amplified."""
    case = problem.case
    plain = case.regime == "normal" and case.masked_rows == "none"
    return plain and problem.query.size > 0 and case.keys > 0


def written_inputs(call: Call, before: list[Array]) -> Iterator[str]:
    """Yield a finding where an array of a call has other bits than before it."""
    for (name, after), first in zip(call.given, before, strict=True):
        # By bits: NaN equals itself, and 0 differs from -0.
        if after.tobytes() != first.tobytes():
            yield f"inputs unchanged: the call wrote into `{name}`; copy it before changing it."
            return


def _aliases(call: Call, answer: Answer) -> Iterator[str]:
    for name, array in call.given:
        if np.may_share_memory(answer.output, array) and np.shares_memory(answer.output, array):
            yield f"output aliasing: the output is a view of `{name}`; return a new array."
            return
