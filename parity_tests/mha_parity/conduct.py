"""How a candidate behaves beside what it computes: watched around each call, on its own side.

Findings travel as notes of the answer, ``name: sentence``; each name is a check of the report. A
bare name is a check that was asked; unless a note speaks against it, it held.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity import dropout, unusual
from mha_parity.alike import differ, same
from mha_parity.candidate import REMARK, Answer, CandidateError
from mha_parity.drawing import place_of
from mha_parity.global_state import GlobalState, seeded
from mha_parity.tracing import Forbidden

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mha_parity.case import Case
    from mha_parity.conventions.base import Call, Convention
    from mha_parity.features import Offer
    from mha_parity.problem import Problem
    from mha_parity.values import Array

CHECKS: Mapping[str, str] = MappingProxyType(
    {
        "inputs unchanged": "the arrays passed in are as they were after the call",
        "own memory": "the output shares no memory with an input, nor with a later output",
        "same answer twice": "the same call gives the same answer",
        "no memory of earlier calls": "an answer does not depend on the calls before it",
        "global state unchanged": "NumPy's error state, print options and seed are left alone",
        "forbidden modules": "nothing is computed through a module that --forbid names",
        "no flood of output": "less than a MiB is printed over a case",
        "weights reloaded": "a layer computes with the weights it was given last",
    }
    | dropout.CHECKS
    | unusual.CHECKS
)
# Of a run's first cases all are asked more, then every so-manieth: again and again, where that can
# tell anything; and on problems beside them, where what is wrong shows in almost every one.
AGAIN = (24, 8)
BESIDE = (12, 101)
ALWAYS = ("inputs unchanged", "own memory", "global state unchanged")


class Watched:
    """A candidate whose every call is watched."""

    def __init__(self, bound: Convention, *, forbid: Iterable[str] = ()) -> None:
        self.bound = bound
        self.name = bound.name
        self.convention = bound.convention
        self.offer: Offer = bound.offer
        self.reasons = bound.reasons
        self._forbid = tuple(forbid)
        self._last: Case | None = None

    def __call__(self, problem: Problem) -> Answer:
        """Return the candidate's answer with what was seen as its notes."""
        call = self.bound.prepare(problem)
        before = [array.copy() for _, array in call.given]
        state = GlobalState.now()
        started = time.perf_counter()
        with Forbidden(self._forbid) as trace:
            result = call.make()
        seconds = time.perf_counter() - started
        notes = [*state.changed(), *trace.findings(), *_written(call, before)]
        state.restore()
        answer = self.bound.answered(problem, call, result)
        notes += _shared(call, answer)
        kept = dataclasses.replace(answer, output=answer.output.copy(), seconds=seconds)
        found = [*ALWAYS, *(["forbidden modules"] if self._forbid else []), *notes]
        # A case comes twice in a row where it is changed by a relation: then it was asked already.
        related = problem.case == self._last
        self._last = None if related else problem.case
        if not related and (times := turn(problem.case, *BESIDE)):
            found += self._beside(problem, times)
        if not related and turn(problem.case, *AGAIN) and _plain(problem) and not notes:
            found += self._repeated(problem, call, answer, kept)
        state.restore()  # what was asked beside the case may have changed it once more
        return told(kept, found)

    def many(self, problems: Iterable[Problem]) -> Iterator[Answer | CandidateError]:
        """Yield the answer to each problem in turn, or the error that came instead."""
        for problem in problems:
            try:
                yield self(problem)
            except CandidateError as error:
                yield error

    def _beside(self, problem: Problem, times: int) -> Iterator[str]:
        """Ask for dropout, and for what should be refused, on problems beside this one."""
        questions = (
            dropout.judged(self.bound, problem.case, times),
            unusual.judged(self.bound, problem.case),
        )
        for findings in questions:
            with contextlib.suppress(CandidateError):  # it refuses: then it is not asked
                yield from findings

    def _repeated(
        self, problem: Problem, call: Call, answer: Answer, kept: Answer
    ) -> Iterator[str]:
        """Ask again: at once, seeded otherwise, after another problem, and the same object."""
        second, state_after_one = seeded(1, self.bound, problem)
        third, state_after_two = seeded(2, self.bound, problem)
        if state_after_one == state_after_two:
            yield "global state unchanged: the call seeds NumPy's global generator."
        if not same(second, third):
            yield f"same answer twice: {differ(second, third)} between two equal calls."
            return
        yield "same answer twice"
        if not same(kept.output, third):
            yield f"no memory of earlier calls: {differ(kept.output, third)} when asked again."
            return
        yield "no memory of earlier calls"
        other = _other(problem)
        second = self.bound(other).output
        if not np.array_equal(answer.output, kept.output, equal_nan=True):
            yield "own memory: a later call wrote into the output of an earlier one."
        # To the bit: in bfloat16 two problems may be as near as the order of sums can move one.
        elif np.array_equal(kept.output, second, equal_nan=True) and second.any():
            yield "no memory of earlier calls: another problem of these shapes got the same answer."
        yield from self._as_before("after another problem", self.bound(problem), kept)
        yield from self._as_before("of the same object", self._made(problem, call), kept)
        yield from self._of_layers(problem, other, kept)

    def _made(self, problem: Problem, call: Call) -> Answer:
        return self.bound.answer(problem, call.make())

    def _as_before(self, when: str, again: Answer, kept: Answer) -> Iterator[str]:
        if not same(kept.output, again.output):
            found = differ(kept.output, again.output)
            yield f"no memory of earlier calls: {found} in the answer {when}."

    def _of_layers(self, problem: Problem, other: Problem, kept: Answer) -> Iterator[str]:
        """Ask a layer that had other weights, and one with dropout in eval mode."""
        reloaded = self.bound.reloaded(problem, other)
        if reloaded is not None:
            again = self._made(problem, reloaded).output
            unlike = "" if same(kept.output, again) else differ(kept.output, again)
            name = "weights reloaded"
            yield f"{name}: {unlike} from a layer made anew." if unlike else name
        asked = self.bound.with_dropout(problem, dropout.P)
        if asked is not None:
            yield dropout.off(kept.output, self._made(problem, asked(False)).output)


def told(answer: Answer, found: list[str]) -> Answer:
    """Return the answer with notes, remarks and the checks that held, each once."""
    remarks = tuple(dict.fromkeys(each for each in found if each.startswith(REMARK)))
    found = [each for each in found if each not in remarks]
    notes = tuple(dict.fromkeys(each for each in found if ": " in each))
    failed = {note.partition(": ")[0] for note in notes}
    asked = dict.fromkeys(each for each in found if ": " not in each)
    return dataclasses.replace(
        answer,
        notes=notes,
        held=tuple(name for name in asked if name not in failed),
        remarks=(*answer.remarks, *(remark.removeprefix(REMARK) for remark in remarks)),
    )


def _plain(problem: Problem) -> bool:
    """Return whether asking again can tell anything: where rounding is not blown up."""
    case = problem.case
    told = problem.query.size > 0 and case.keys > 0
    return told and case.regime == "normal" and case.masked_rows == "none"


def turn(case: Case, first: int, every: int) -> int:
    """Return the how-manieth time it is a case's turn to be asked more; 0 where it is not.

    The place in the run decides, and not what this process has seen: whether a case fails must not
    depend on which cases others have tried.
    """
    place = place_of(case)
    if place < first:
        return place + 1
    return first + place // every if place % every == 0 else 0


def _other(problem: Problem) -> Problem:
    """Return another problem of the same shapes."""
    changes: dict[str, Any] = {}
    done: dict[int, Array] = {}
    for name in ("query", "key", "value", "w_q", "w_k", "w_v", "b_v", "bias_v", "w_out"):
        array = getattr(problem, name)
        if array is not None:
            changed = (array[..., ::-1] * array.dtype.type(-1.5)).astype(array.dtype)
            changes[name] = done.setdefault(id(array), changed)
    return problem.replace(**changes)


def _written(call: Call, before: list[Array]) -> Iterator[str]:
    for (name, after), first in zip(call.given, before, strict=True):
        # By bits: a NaN is equal to itself, and 0 unlike -0.
        if after.tobytes() != first.tobytes():
            yield f"inputs unchanged: the call wrote into `{name}`; copy it before changing it."
            return


def _shared(call: Call, answer: Answer) -> Iterator[str]:
    for name, array in call.given:
        if np.may_share_memory(answer.output, array) and np.shares_memory(answer.output, array):
            yield f"own memory: the output is a view of `{name}`; return a new array."
            return
