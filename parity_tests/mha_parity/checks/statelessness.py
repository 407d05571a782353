"""Check that one object answers a sequence of calls as new objects do.

Where an answer departs, the earlier call that changes it is looked for, and what the answer has of
that call: both are named in the finding.
"""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.cases.variants import plain_variant
from mha_parity.checks import altered_problems as altered
from mha_parity.checks.call_sequence import (
    AS_BUILT,
    CallSequence,
    Response,
    Step,
    differs,
)
from mha_parity.checks.training_mode import after_training, in_training
from mha_parity.core.candidate import CandidateError
from mha_parity.core.features import PLAIN
from mha_parity.core.target_facts import takes_even_heads, takes_one_length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mha_parity.core.candidate import Answer
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention

SIZES, WIDTH = (6, 10), 3  # queries, keys; of heads; the first half of all is another problem
REPEATS = 32  # equal calls of one object
OVERWRITES = "a later call overwrites the {} of an earlier one"
# Clauses that end a finding -> the bug of the catalogue that they are of.
MASKS_KEPT = "it is right with the masks of that call"
MASKS_JOINED = "it is right with the masks of that call besides its own"
KEYS_KEPT = "it is right with the keys and values of that call"
KEYS_APPENDED = "it is right with the keys and values of that call before its own"
ANSWER_KEPT = "it is the answer to that call"
BY_IDENTITY = "written into the arrays of the call before"
FIRST_SHORTER = "the first of the two was shorter"
FIRST_LONGER = "the first of the two was longer"
LENGTH_KEPT = "something of the length of that call is kept, whatever its values are (as a mask is)"
VALUES_KEPT = "something of the values of that call is kept"
WIDTH_KEPT = "something of the head width of that call is kept"
COUNTED = "equal calls of one object"
OLD_WEIGHTS = "it is that by the weights loaded before"
CAUSES: Mapping[str, str] = MappingProxyType(
    {
        OVERWRITES.format("weights"): "weights-buffer-reused",
        OVERWRITES.format("output"): "output-buffer-reused",
        MASKS_JOINED: "stale-mask",
        MASKS_KEPT: "stale-mask",
        KEYS_APPENDED: "keys-appended",
        KEYS_KEPT: "keys-kept",
        ANSWER_KEPT: "cached-answer",
        BY_IDENTITY: "identity-keyed-cache",
        FIRST_SHORTER: "buffer-of-first-call",
        FIRST_LONGER: "tail-of-longer-call",
        VALUES_KEPT: "values-kept",
        COUNTED: "counts-calls",
    }
)
NEW_OBJECTS = "earlier new ones answered otherwise"
# What is asked to get such an answer: a function of the later and the earlier problem.
_EXPECTED_THEN: tuple[tuple[str, Callable[[Problem, Problem], Problem | None]], ...] = (
    (MASKS_KEPT, altered.with_masks_of),
    *((MASKS_KEPT, partial(altered.with_masks_of, names=(name,))) for name in altered.MASKS),
    (MASKS_JOINED, altered.with_masks_joined),
    (ANSWER_KEPT, lambda _, earlier: earlier),
    (KEYS_APPENDED, altered.after_keys_of),
    (KEYS_KEPT, altered.with_keys_of),
)


def check_statelessness(bound: Convention, problem: Problem, number: int) -> Iterator[str]:
    """Yield what an object answers otherwise than new ones do, or overwrites: one finding at most.

    ``number`` is that of the case among those for which this is asked. A layer that is given as it
    is answers the problem itself, any other a small one of its kind.
    """
    if bound.own_weights is None:
        small = small_problem(problem.case, bound, number)
    else:
        small = problem if _is_plain(problem) else None
    if small is None:
        return
    sequence = CallSequence(bound, small)
    if bound.own_weights is None:
        _raise_crash(sequence)
    # What a new object answers in two ways is not deterministic, which is another check.
    if sequence.departure(sequence.this, sequence.after((), sequence.this)):
        return
    checks = (
        in_sequence,
        _fewer_samples,
        in_training,
        after_training,
        rewritten_arrays,
        reloaded_weights,
        *([repeated_calls] if number % 3 == 1 else []),
    )
    sequence.mode = sequence.modes[-1] if number % 4 > 1 and sequence.modes else AS_BUILT
    yield from itertools.islice(itertools.chain(*(each(sequence) for each in checks)), 1)


def _raise_crash(sequence: CallSequence) -> None:
    """Raise the exception of a new object that is asked what any object answers: no mask, any size.

    A mask, or a size that given weights do not have, may be refused.
    """
    for step in (sequence.this, *sequence.half):
        case = step.problem.case
        error = None if sequence.expected(step.problem) else sequence.refusals[step.problem]
        masks = case.padding, case.attn
        if error is not None and error.severity == "crash" and masks == ("none", "none"):
            sizes = f"{case.queries} queries and {case.keys} keys"
            raise CandidateError(error.severity, f"{error} on {sizes}", error.detail)


def small_problem(case: Case, bound: Convention, number: int) -> Problem | None:
    """Return a small problem of the kind of a case, every second one with masks.

    Kinds of attn_mask and of key_padding_mask come in pairs, so that the first 12 have all of them.
    """
    width, square = WIDTH + takes_even_heads(bound.reasons), takes_one_length(bound.reasons)
    small = plain_variant(case, bound.offer, *SIZES, width, square=square)
    if small is None:
        return None
    kinds = [
        [{axis: kind} for kind in bound.offer[axis] if kind != "none"]
        for axis in ("attn", "padding")
    ]
    masks = [first | second for first, second in itertools.zip_longest(*kinds, fillvalue={})]
    if number % 2 and masks:
        small = small.replace(**masks[number // 2 % len(masks)])
        if bound.masks is not None and bound.masks.only_one_sample(small):
            small = small.replace(batch=1)
    return make_problem(small)


def _is_plain(problem: Problem) -> bool:
    case = problem.case
    return (case.regime, case.masked_rows) == (PLAIN["regime"], PLAIN["masked_rows"])


def in_sequence(sequence: CallSequence) -> Iterator[str]:
    """Yield what departs in the sequence of calls, or is overwritten in it."""
    function = sequence.new()
    responses: list[Response] = []
    try:
        for number, step in enumerate(sequence.steps):
            response = sequence.ask(function, step)
            responses.append(response)
            if sequence.departure(step, response):
                yield from _explained(sequence, number, response)
    finally:
        sequence.restore(function)
    for number, (step, response) in enumerate(zip(sequence.steps, responses, strict=True)):
        if part := _overwritten(sequence, step, response):
            later = _overwriting(sequence, step, sequence.steps[number + 1 :])
            yield f"output aliasing: {OVERWRITES.format(part)}: {later} after {step}."


def _fewer_samples(sequence: CallSequence) -> Iterator[str]:
    """Yield what is answered otherwise to one sample by an object that answered several."""
    for step in sequence.single:
        found = sequence.after((sequence.this,), step)
        if departure := sequence.departure(step, found):
            sequence.tell_departure((sequence.this,), step, found)
            cause = _cause(sequence, *_without_masks(sequence, sequence.this, step, found))
            yield f"statelessness: {_said(departure, step)} {sequence.this} before: {cause}."


def _explained(sequence: CallSequence, number: int, response: Response) -> Iterator[str]:
    """Yield the earlier call or mode that changes the answer.

    What a new object refuses in a mode is no state.
    """
    step = sequence.steps[number]
    alone = sequence.after((), step)
    departure = sequence.departure(step, alone)
    if departure and step.mode is not AS_BUILT:
        if alone.answer is not None:
            sequence.tell_departure((), step, alone)
            yield f"statelessness: {departure} in the answer{step.mode.said}."
        return
    if not departure:
        for earlier in dict.fromkeys(reversed(sequence.steps[:number])):
            found = sequence.after((earlier,), step)
            if departure := sequence.departure(step, found):
                sequence.tell_departure((earlier,), step, found)
                cause = _cause(sequence, *_without_masks(sequence, earlier, step, found))
                yield f"statelessness: {_said(departure, step)} {earlier} before: {cause}."
                return
    departure = sequence.departure(step, response)
    sequence.tell_departure(sequence.steps[:number], step, response)
    if number:
        yield f"statelessness: {_said(departure, step)} {number} other calls before."
    else:
        yield f"statelessness: {departure} in the answer to {step} by a new object: {NEW_OBJECTS}."


def _said(departure: str, step: Step) -> str:
    return f"{departure} in the answer to {step} by an object that answered"


def _without_masks(
    sequence: CallSequence, earlier: Step, step: Step, response: Response
) -> tuple[Step, Step, Answer | None]:
    """Return two calls and the later answer without masks, if it departs without them as well.

    An answer to more keys than a mask has is an error, which says nothing about the keys.
    """
    bare = [
        each._replace(problem=sequence.bare(each.problem) or each.problem)
        for each in (earlier, step)
    ]
    if bare[1].problem is not step.problem:
        found = sequence.after(bare[:1], bare[1])
        if sequence.departure(bare[1], found):
            return bare[0], bare[1], found.answer
    return earlier, step, response.answer


def _cause(sequence: CallSequence, earlier: Step, step: Step, answer: Answer | None) -> str:
    """Return the clause that says what an answer has of an earlier call."""
    if earlier.problem.head_dim != step.problem.head_dim:
        return WIDTH_KEPT
    if answer is not None:
        for clause, change in _EXPECTED_THEN:
            mixed = change(step.problem, earlier.problem)
            expected = None if mixed is None else sequence.expected(mixed)
            if expected is not None and not differs(_last_rows(expected, answer), answer):
                return clause
    keys = earlier.problem.case.keys, step.problem.case.keys
    if keys[0] == keys[1] or _depends_on_values(sequence, step):
        return VALUES_KEPT
    if keys[0] < keys[1]:
        return FIRST_SHORTER
    halved = earlier._replace(problem=altered.scaled_rows(earlier.problem, 0.5))
    then = sequence.after((halved,), step).answer
    alike = answer is not None and then is not None and not differs(answer, then)
    return LENGTH_KEPT if alike else FIRST_LONGER


def _last_rows(expected: Answer, answer: Answer) -> Answer:
    """Return as many of the last rows of an output as another has; weights of them have more keys.

    These are the rows of a call behind those of an earlier one.
    """
    rows = answer.output.shape[-2]
    if expected.output.shape[-2] == rows:
        return expected
    return dataclasses.replace(expected, output=expected.output[..., -rows:, :], weights=None)


def _depends_on_values(sequence: CallSequence, step: Step) -> bool:
    """Return whether a call of the same sizes with other values changes the answer to a step."""
    others = (
        step._replace(problem=altered.scaled_rows(step.problem, factor)) for factor in (0.5, 2)
    )
    return any(sequence.departure(step, sequence.after((other,), step)) != "" for other in others)


def _overwritten(sequence: CallSequence, step: Step, response: Response) -> str:
    """Return which part of an answer changed since the call; empty where none did."""
    if response.answer is None:
        return ""
    now = sequence.bound.answer(step.problem, response.result)
    pairs = {
        "output": (response.answer.output, now.output),
        "weights": (response.answer.weights, now.weights),
    }
    return next(
        (
            part
            for part, (first, second) in pairs.items()
            if first is not None
            and second is not None
            and not np.array_equal(first, second, equal_nan=True)
        ),
        "",
    )


def _overwriting(sequence: CallSequence, step: Step, others: Sequence[Step]) -> str:
    """Say by which other call the answer to a step is overwritten, where one alone does it."""
    for other in others:
        function = sequence.new()
        response = sequence.ask(function, step)
        sequence.ask(function, other)
        sequence.restore(function)
        if _overwritten(sequence, step, response):
            return str(other)
    return "several calls"


def rewritten_arrays(sequence: CallSequence) -> Iterator[str]:
    """Yield that an answer is kept by the identity of the arrays."""
    this, other = (each._replace(mode=sequence.mode) for each in (sequence.this, sequence.other))
    call = sequence.bound.prepare(this.problem)
    first = sequence.make(call, this)
    if first.answer is None or sequence.expected(other.problem) is None:
        return
    if sequence.rewrite(call, other.problem):
        second = sequence.make(call, other)
        departure = sequence.departure(other, second)
        if departure:
            sequence.tell_departure((this,), other, second)
            yield f"statelessness: {departure} in the answer to {other}, {BY_IDENTITY}."
    sequence.restore(call.function)


def repeated_calls(sequence: CallSequence) -> Iterator[str]:
    """Yield the number of the first of some equal calls that is answered otherwise."""
    step = sequence.this._replace(mode=sequence.mode)
    function = sequence.new()
    for number in range(1, REPEATS + 1):
        response = sequence.ask(function, step)
        if response.answer is None and number == 1:
            return
        if departure := sequence.departure(step, response):
            sequence.tell_departure((step,) * (number - 1), step, response)
            yield (
                f"statelessness: {departure} in the answer to call {number} of {REPEATS} "
                f"{COUNTED}, {step}."
            )
            break
    sequence.restore(function)


def reloaded_weights(sequence: CallSequence) -> Iterator[str]:
    """Yield that weights loaded after a call in a mode are not those that the next one has."""
    problem, step = sequence.this.problem, sequence.this._replace(mode=sequence.mode)
    if step.mode is AS_BUILT:
        return
    earlier = step._replace(problem=altered.other_problem(problem))
    call = sequence.bound.call_after_loading(
        problem, earlier.problem, lambda before: sequence.make(before, earlier)
    )
    if call is None:
        return
    response = sequence.make(call, step)
    if departure := sequence.departure(step, response):
        old = sequence.expected(altered.with_weights_of(problem, earlier.problem))
        same = old is not None and response.answer is not None and not differs(old, response.answer)
        sequence.tell_departure((earlier,), step, response, "weights reloaded")
        said = f"{step.mode.said}{f'; {OLD_WEIGHTS}' if same else ''}"
        yield f"weights reloaded: {departure} from a newly constructed layer{said}."
