"""Calls of one object after each other, and the answers of new objects to the same problems.

First the shorter, then the longer problem, wider heads where there are no weights, more keys where
L = S alone is judged, other rows of its shapes, other masks, none, the shorter again; then the same
in evaluation mode and without autograd, as inference runs. One sample after several is a sequence
of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.checks import altered_problems as altered
from mha_parity.checks.compared_calls import ComparedCall, tell_compared
from mha_parity.core.candidate import Answer, CandidateError
from mha_parity.core.compare import describe_difference, equal_up_to_rounding
from mha_parity.core.features import UNLIKE_LENGTHS
from mha_parity.targets.calls.layer_modes import has_modes, set_mode
from mha_parity.targets.calls.target_call import asked_of, owner_of
from mha_parity.targets.convention_base.always_causal import UNEQUAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.core.problem import Problem
    from mha_parity.targets.calls.target_call import Call
    from mha_parity.targets.convention_base.convention import Convention

WIDER = 4  # times: by which heads of another width are wider
# torch's own path for inference is another computation, of another accuracy in 16 bits.
MODES_DTYPES = ("float64", "float32")


class Mode(NamedTuple):
    """How a call is made; ``said`` ends a sentence about it."""

    said: str = ""
    evaluates: bool = False
    trains: bool = False
    without_autograd: bool = False


AS_BUILT = Mode()
TRAINING = Mode(" in training mode", trains=True)
MODES = (
    Mode(" in evaluation mode", evaluates=True),
    Mode(" without autograd", without_autograd=True),
    Mode(" in evaluation mode without autograd", evaluates=True, without_autograd=True),
)


class Step(NamedTuple):
    """A call: its problem, what to call that, and the mode."""

    problem: Problem
    said: str
    mode: Mode = AS_BUILT

    def __str__(self) -> str:
        """Return what it is called in a sentence."""
        return f"{self.said}{self.mode.said}"


class Response(NamedTuple):
    """Result of a call, as the object returned it and as an answer; ``error`` if it raised."""

    result: Any
    answer: Answer | None
    error: str = ""


class CallSequence:
    """The calls to make of one object built for ``problem``, and what new objects answer.

    Of a function, and of an object that is given as it is, there is no other: what it kept in
    earlier calls is in both answers. ``mode`` is that of the calls outside the sequence.
    """

    def __init__(self, bound: Convention, problem: Problem) -> None:
        self.bound = bound
        self.this = Step(problem, "this problem")
        self.other = Step(altered.other_rows(problem), "other rows of the same shapes")
        self._expected: dict[Problem, Answer | None] = {}
        self.refusals: dict[Problem, CandidateError] = {}
        self.mode = AS_BUILT
        self._calls: dict[Problem, Call] = {}

    @cached_property
    def half(self) -> list[Step]:
        """The call with half the lengths and other, smaller rows; none where one is left."""
        short = altered.first_half(altered.scaled_rows(self.other.problem, 0.5))
        if short is None or self.bound.of_one_length:
            return []
        return [
            Step(short, f"a problem of {short.case.queries} queries and {short.case.keys} keys")
        ]

    @cached_property
    def longer(self) -> list[Step]:
        """The call with twice the keys, where a causal rule of its own is judged at L = S alone.

        New objects answer it by that rule, whatever it is; what is kept of it changes later calls.
        """
        reasons = self.bound.reasons
        reason = reasons.get(UNLIKE_LENGTHS) or reasons.get(("inputs", "cross"), "")
        more = altered.with_more_keys(self.this.problem, self.other.problem)
        if more is None or not reason.startswith(UNEQUAL):
            return []
        return [Step(more, f"a problem of {more.case.queries} queries and {more.case.keys} keys")]

    @cached_property
    def single(self) -> list[Step]:
        """The call with the first sample alone: what is kept by lengths may have another batch."""
        one = altered.first_sample(self.other.problem)
        if one is None or self.expected(one) is None:
            return []
        step = Step(one, "a problem of one sample")
        if self.bound.of_one_batch and self.departure(step, self.ask(self.new(), step)):
            return []  # as its first call neither: it is built for as many samples as it gets
        same = self.bound.switches(one) == self.bound.switches(self.this.problem)
        return [step] if same else []

    @cached_property
    def wide(self) -> list[Step]:
        """The call with wider heads, where the object takes them rightly as its first call.

        One that knows its heads' width by a constructor or by weights does not.
        """
        case = self.this.problem.case
        if case.projection != "none" or not isinstance(self.bound.subject, type):
            return []
        problem = make_problem(case.replace(head_dim=WIDER * case.head_dim))
        step = Step(problem, f"a problem with heads of width {problem.head_dim}")
        first = self.ask(self.new(), step) if self.expected(problem) is not None else None
        return [] if first is None or self.departure(step, first) else [step]

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The calls that a new object answers, in their order."""
        problem = self.this.problem
        masks = [
            Step(each, said)
            for each, said in (
                (altered.masks_shifted_by_one_key(problem), "these rows with other masks"),
                (self.bare(problem), "these rows without masks"),
            )
            if each is not None
        ]
        called = [*self.half, self.this, *self.wide, *self.longer, self.other, *masks, *self.half]
        called += [self.this._replace(mode=mode) for mode in self.modes[:-1]]
        for mode in self.modes[-1:]:  # of inference: lengths and values change in it as well
            again = (*self.half, self.this, self.other, *self.half)
            called += [step._replace(mode=mode) for step in again]
        return tuple(
            step
            for step in called
            if self.expected(step.problem) is not None
            and self.bound.switches(step.problem) == self.bound.switches(problem)
        )

    def bare(self, problem: Problem) -> Problem | None:
        """Return a problem without masks; None where it has none, or the constructor causes it."""
        bare = altered.all_keys_visible(problem, self.bound.offer)
        if bare is None or self.bound.switches(bare) != self.bound.switches(problem):
            return None
        return bare

    @cached_property
    def modes(self) -> tuple[Mode, ...]:
        """The modes that the object can be asked in besides the one that it was built in."""
        if self.bound.path is not None or self.this.problem.case.dtype not in MODES_DTYPES:
            return ()
        has_autograd = self.bound.library.name == "torch"
        return tuple(
            mode
            for mode in MODES
            if self._trains >= mode.evaluates and has_autograd >= mode.without_autograd
        )

    @cached_property
    def _trains(self) -> bool:
        """Whether new objects are in training, and can be switched."""
        layer = owner_of(self._call(self.this.problem).function)
        return has_modes(layer) and bool(getattr(layer, "training", False))

    @cached_property
    def can_train(self) -> bool:
        """Whether new objects are in evaluation, and can be put in training."""
        layer = owner_of(self._call(self.this.problem).function)
        return has_modes(layer) and getattr(layer, "training", None) is False

    def new(self) -> Any:
        """Return what is called of a new object built for the problem."""
        return self.bound.prepare(self.this.problem).function

    def _call(self, problem: Problem) -> Call:
        """Return the call of a problem, on arrays of its own, which no other call writes into."""
        if problem not in self._calls:
            self._calls[problem] = self.bound.prepare(problem)
        return self._calls[problem]

    def expected(self, problem: Problem) -> Answer | None:
        """Return what a new object answers in the mode it is built in; None where it raises."""
        if problem not in self._expected:
            self._expected[problem] = None
            try:
                call = self._call(problem)
                self._expected[problem] = copied(self.bound.answer(problem, call.make()))
            except CandidateError as error:
                self.refusals[problem] = error
        return self._expected[problem]

    def ask(self, function: Any, step: Step) -> Response:
        """Return what an object answers to a step."""
        return self.make(asked_of(self._call(step.problem), function), step)

    def make(self, call: Call, step: Step) -> Response:
        """Return the answer of a call made in the mode of a step."""
        try:
            self._switch(owner_of(call.function), step.mode)
            with autograd_state(off=step.mode.without_autograd):
                result = call.make()
            return Response(result, copied(self.bound.answer(step.problem, result)))
        except CandidateError as error:
            return Response(None, None, str(error).rstrip("."))

    def _switch(self, layer: Any, mode: Mode) -> None:
        """Switch only between modes: a layer may clear what it keeps each time."""
        trains = mode.trains or (self._trains and not mode.evaluates)
        if has_modes(layer) and getattr(layer, "training", trains) != trains:
            set_mode(layer, training=trains)

    def restore(self, function: Any) -> None:
        """Put an object back into the mode it was built in."""
        with contextlib.suppress(CandidateError):
            self._switch(owner_of(function), AS_BUILT)

    def after(self, earlier: Sequence[Step], step: Step) -> Response:
        """Return the response to a step of a new object that answered the earlier ones."""
        function = self.new()
        for each in earlier:
            self.ask(function, each)
        response = self.ask(function, step)
        self.restore(function)
        return response

    def tell_departure(
        self,
        earlier: Sequence[Step],
        step: Step,
        found: Response,
        check: str = "statelessness",
    ) -> None:
        """Tell the calls of one object, and that of a new one which answers the last otherwise."""
        answers = found.answer, self.expected(step.problem)
        output, expected = (None if each is None else each.output for each in answers)
        tell_compared(
            check,
            *(ComparedCall(f"an object is asked {each}", each.problem) for each in earlier),
            ComparedCall(
                f"{'then' if earlier else 'an object is asked'} {step}", step.problem, output
            ),
            ComparedCall(f"a new object is asked {step.said}", step.problem, expected),
        )

    def rewrite(self, call: Call, problem: Problem) -> bool:
        """Write the rows of another problem into the arrays of a call; return whether it could."""
        other = self._call(problem)
        pairs = zip(_arrays(call), _arrays(other), strict=True)
        # A tensor that may have a gradient, of Keras's too, is not written into otherwise.
        with autograd_state(off="torch" in sys.modules):
            for old, new in pairs:
                if isinstance(old, np.ndarray) and old.flags.writeable:
                    np.copyto(old, new)
                elif callable(getattr(old, "copy_", None)):
                    old.copy_(new)
        held = zip(call.given, other.given, strict=True)
        return all(np.array_equal(a, b, equal_nan=True) for (_, a), (_, b) in held)

    def departure(self, step: Step, response: Response) -> str:
        """Say how a response departs from what a new object answers; empty where it does not."""
        expected = self.expected(step.problem)
        if response.answer is None or expected is None:
            return f"an error ({response.error})"
        return differs(expected, response.answer)


def _arrays(call: Call) -> list[Any]:
    return [*call.args, *call.kwargs.values()]


@contextlib.contextmanager
def autograd_state(*, off: bool) -> Iterator[None]:
    """Switch torch's autograd off, where asked."""
    if not off:
        yield
        return
    import torch

    with torch.no_grad():
        yield


def copied(answer: Answer) -> Answer:
    """Return an answer that no later call can write into."""
    weights, summed = (
        None if array is None else array.copy() for array in (answer.weights, answer.log_sum_exp)
    )
    return dataclasses.replace(
        answer, output=answer.output.copy(), weights=weights, log_sum_exp=summed
    )


def differs(expected: Answer, actual: Answer) -> str:
    """Say how output or weights of two answers differ by more than rounding; empty if neither."""
    if not equal_up_to_rounding(expected.output, actual.output):
        return describe_difference(expected.output, actual.output)
    weights = expected.weights, actual.weights
    if weights[0] is None or weights[1] is None or equal_up_to_rounding(weights[0], weights[1]):
        return ""
    return f"{describe_difference(weights[0], weights[1])} (weights)"
