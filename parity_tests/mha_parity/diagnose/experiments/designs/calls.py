"""Calls of a candidate that an experiment designs, and what is right and wrong in each answer."""

from __future__ import annotations

import time
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import Attention
from mha_parity.core.arrays import split_heads
from mha_parity.core.candidate import NOT_ASKED, Answer, CandidateError, ask
from mha_parity.core.compare import absolute_difference, as_float64
from mha_parity.core.features import DTYPES
from mha_parity.core.target_facts import takes_one_length
from mha_parity.diagnose.evidence import ROUNDINGS, largest_magnitude, largest_score
from mha_parity.diagnose.read_weights import CALLS, plain_case_for, read_sample_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Candidate
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem

LENGTHS = ("queries", "keys")
CHUNK = 8  # calls between two looks at the clock
WRONG = 30.0  # allowances: a departure that no rounding imitates
NO_TIME = "the time of the experiments is over"
BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}


@dataclass(eq=False)
class CallResult:
    """One call: its problem, and the answer or the error message that came."""

    problem: Problem
    answer: Answer | None
    error: str = ""

    @property
    def crashed(self) -> bool:
        """Whether no answer came."""
        return self.answer is None

    @property
    def not_asked(self) -> bool:
        """Whether the call was not made, since the process was lost too often."""
        return self.error.startswith(NOT_ASKED)

    @cached_property
    def right(self) -> Attention:
        """The right attention on the problem, with its stages."""
        attention = Attention(self.problem)
        attention.answer()
        return attention

    @cached_property
    def expected(self) -> Array:
        """The right output by head, (N, H, L, Dv)."""
        return self.by_head(self.right.stages["output"])

    @cached_property
    def found(self) -> Array | None:
        """The candidate's output by head, in float64; None where its shape is another."""
        if self.answer is None or np.shape(self.answer.output) != self.problem.output_shape:
            return None
        return self.by_head(self.answer.output)

    def by_head(self, output: Array) -> Array:
        """Return (N, L, H Dv) as (N, H, L, Dv) in float64."""
        return split_heads(as_float64(output), self.problem.num_heads)

    @cached_property
    def allowed(self) -> float:
        """How far rounding in the answer's dtype may take an element."""
        name = "float64" if self.answer is None else np.asarray(self.answer.output).dtype.name
        bits = min(BITS.get(name, 52), BITS[self.problem.case.dtype])
        height = max(
            largest_magnitude(self.right.stages["value heads"]),
            largest_magnitude(self.expected),
            1e-30,
        )
        return ROUNDINGS["float64"] * 2.0**-bits * (1 + largest_score(self.right)) * height

    @cached_property
    def off(self) -> Array:
        """Which elements depart beyond rounding, (N, H, L, Dv).

        None of a row that sees no key, for which targets have rules of their own.
        """
        if self.found is None:
            return np.ones(self.expected.shape, dtype=bool)
        without_keys = np.asarray(self.problem.masked_rows().any(axis=1))[:, None, :, None]
        return ~without_keys & (
            absolute_difference(self.expected, self.found) > WRONG * self.allowed
        )

    @property
    def largest_error(self) -> float:
        """The largest error of an element, NaN left out."""
        found = self.expected if self.found is None else self.found
        with np.errstate(over="ignore"):
            return float(np.nanmax(np.abs(found - self.expected), initial=0))

    @property
    def wrong(self) -> bool:
        """Whether an answer came and departs."""
        return not self.crashed and bool(self.off.any())


class Caller:
    """Asks a candidate; an experiment asks for cases by what differs from a base."""

    def __init__(self, candidate: Candidate, running: Callable[[], bool]) -> None:
        """Take the candidate, and whether there is time for another call."""
        self.candidate = candidate
        self.running = running
        own = candidate.facts.own_weights
        # A layer that is built already has its sizes in all problems.
        self.built = own if own is not None and own.built else None
        self._multiple = 0 if own is None else own.multiple  # of lengths
        self.square = takes_one_length(candidate.facts.reasons)
        self.base = plain_case_for(candidate)
        if own is not None:
            self.base = own.case(self.base)
        if self.built is not None:
            # Without biases, of which it may have some and not others: copies get 0.
            self.base = self.base.replace(bias="no")
        self.trials: list[CallResult] = []
        self.seconds = 0.0
        self.unanswered: dict[str, str] = {}
        self._take_answered_layout()
        self._take_answered_dtype()

    def _take_answered_layout(self) -> None:
        """Ask problems in a layout that is answered, and keep what the others raise."""
        for layout in self.candidate.offer["layout"]:
            trial = self.ask([self.case(layout=layout)])[0]
            if not trial.crashed:
                self.base = self.case(layout=layout)
                return
            self.unanswered[f"layout={layout}"] = trial.error
        self.unanswered.clear()  # what no layout mends is no matter of the layout

    def _take_answered_dtype(self) -> None:
        """Ask problems in a dtype that is answered in itself, where there is one."""
        offered = [name for name in DTYPES if name in self.candidate.offer["dtype"]]
        for name in offered:
            trial = self.ask([self.case(dtype=name)])[0]
            if trial.answer is not None and np.asarray(trial.answer.output).dtype.name == name:
                self.base = self.base.replace(dtype=name)
                return

    def in_dtype(self, name: str) -> Caller:
        """Return a caller whose problems have another dtype; its calls are kept separate."""
        other = copy(self)
        other.base, other.trials, other.unanswered = self.base.replace(dtype=name), [], {}
        return other

    def case(self, **changes: object) -> Case:
        """Return the base case with changes, of one head where no more are offered.

        In self-attention L follows S, and S follows L. A layer that is built already keeps its
        sizes, and gets no more queries or keys than it takes; what takes multiples of a length
        alone gets these.
        """
        if self.built is not None:
            given = {n: size for n in LENGTHS if isinstance(size := changes.get(n), int)}
            changes |= {n: self.built.length(size) for n, size in given.items()}
            changes |= self.built.sizes
        elif "many" not in self.candidate.offer["heads"]:
            changes["heads_count"] = 1
        case = self.base.replace(**changes)
        if (case.inputs == "self" or self.square) and case.queries != case.keys:
            length = case.queries if "queries" in changes else case.keys
            case = case.replace(queries=length, keys=length)
        if case.layout == "unbatched":
            case = case.replace(batch=1)
        return case.in_multiples(self._multiple) if self._multiple else case

    def ask(self, cases: Iterable[Case]) -> list[CallResult]:
        """Return the trials of the cases, in order."""
        return self.ask_problems([unmixed_problem(case) for case in cases])

    def ask_problems(self, problems: Sequence[Problem]) -> list[CallResult]:
        """Return the trials of the problems, in order; fewer where the time is over."""
        trials: list[CallResult] = []
        started = time.perf_counter()
        for start in range(0, len(problems), CHUNK):
            if start and not self.running():
                break
            chunk = problems[start : start + CHUNK]
            for problem, result in zip(chunk, ask(self.candidate, chunk), strict=True):
                if isinstance(result, CandidateError):
                    trials.append(CallResult(problem, None, str(result).partition("\n")[0]))
                else:
                    trials.append(CallResult(problem, result))
        self.trials += trials
        self.seconds += time.perf_counter() - started
        return trials

    def _answers(self, problems: Sequence[Problem]) -> list[Answer | CandidateError]:
        """Return what the candidate says to each problem; an error where the time is over."""
        trials = self.ask_problems(problems)
        found = [each.answer or CandidateError("crash", each.error) for each in trials]
        return [*found, *(CandidateError("timeout", NO_TIME) for _ in problems[len(trials) :])]

    def quick(self, seconds: float) -> bool:
        """Return whether a small call takes less than ``seconds``."""
        before, count = self.seconds, 4
        self.ask([self.base.replace(seed=self.base.seed + 1 + i) for i in range(count)])
        return (self.seconds - before) / count < seconds

    def seconds_of(self, problem: Problem) -> float:
        """Return how long a call takes that is not the first of its shape."""
        self.ask_problems([problem])
        before = self.seconds
        self.ask_problems([problem])
        return self.seconds - before

    def varies(self, size: str) -> bool:
        """Return whether problems of other sizes of that name can be asked."""
        return self.built is None or size not in self.built.sizes

    def reaches(self, size: str, number: int) -> bool:
        """Return whether as many queries or keys are taken: of a built layer it depends."""
        if size not in LENGTHS or (self._multiple and number % self._multiple):
            return size not in LENGTHS
        return self.built is None or self.built.length(number) == number

    def with_parameter(self, effect: str, problem: Problem) -> str:
        """Return a sentence on a mask, with the parameter that it is passed in if it is another."""
        subject, _, rest = effect.partition(" ")
        plan = self.candidate.masks
        if plan is None or subject not in {"key_padding_mask", "attn_mask"}:
            return effect
        names = plan.array_parameters(problem)
        listed = " and ".join(f"`{name}`" for name in names)
        is_named = not names or subject in names
        return effect if is_named else f"{subject}, passed as {listed}, {rest}"

    def weights(self, problem: Problem, sample: int = 0, calls: int = CALLS) -> Array | None:
        """Return the weights that the output mixes values with, (H, L, S), of one sample."""
        found = read_sample_weights(self._answers, problem, sample, calls)
        return None if found is None else found[..., : problem.key.shape[1]]


def unmixed_problem(case: Case) -> Problem:
    """Return the case's problem, its output projection the identity: it mixes no heads."""
    problem = make_problem(case)
    if problem.w_out is None:
        return problem
    zeros = None if problem.b_out is None else np.zeros_like(problem.b_out)
    return problem.replace(w_out=np.eye(len(problem.w_out), dtype=problem.dtype), b_out=zeros)
