"""Calls with a window: which parameters take one, and what small calls show that it means.

A row that sees the keys of a window alone is a row of attention without a window to those keys: the
target's own answers to parts of a sequence, which are judged against torch's, say what each row
should be. A window whose rows are attention to no keys that a known rule has is not understood.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.cases.variants import plain_variant
from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import equal_up_to_float32
from mha_parity.core.features import SQUARE, UNLIKE_LENGTHS
from mha_parity.core.parameters import NO_ANSWER, Parameter, Role
from mha_parity.targets.caches.cached_calls import rows
from mha_parity.targets.calls.error_origin import attributed
from mha_parity.targets.static.call_parameters import OF_CONFIGURATION
from mha_parity.targets.static.window_arguments import PAIR_RULES, RULES, WindowUse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention

Size = int | tuple[int, int]
LENGTH, HEAD_DIM = 8, 10  # of small problems
SIZES: tuple[int, ...] = (2, 3, 4, 5)  # 2 and 4 divide the length
PAIRS: tuple[tuple[int, int], ...] = ((2, 1), (1, 3), (3, 2))
NO_RULE = "the rows that it answers with {} are attention within no window that is known"
CHANGE_NOTHING = "change nothing"
NO_EFFECT = f"{{}} {CHANGE_NOTHING}"
UNLIKE_RULE = "with the causal rule its rows do not follow the window that they do without it"
NOT_ASKED = "it is asked of self-attention of several lengths alone"


class WindowedSequence:
    """A plain problem of self-attention: its rows with a window, and those of parts without."""

    def __init__(self, bound: Convention, problem: Problem) -> None:
        self.bound, self.problem, self.length = bound, problem, problem.case.queries
        self.has_mask = not (problem.key_padding_mask is None is problem.attn_mask)
        self._parts: dict[tuple[int, int], Array] = {}

    def without_mask(self) -> WindowedSequence:
        """Return the same sequence without its mask."""
        plain = self.problem.case.replace(padding="none")
        plain = plain if plain.attn == "causal" else plain.replace(attn="none")
        bare = self.problem.replace(case=plain, key_padding_mask=None, attn_mask=None)
        return WindowedSequence(self.bound, bare)

    def part(self, first: int, end: int) -> Array:
        """Return the answer to these rows alone, without a window."""
        if (first, end) not in self._parts:
            self._parts[first, end] = self.bound(rows(self.problem, first, end)).output
        return self._parts[first, end]

    def row(self, row: int, first: int, end: int) -> Array:
        """Return what a row is that sees the keys from ``first`` on, ``end`` left out."""
        if self.problem.is_causal:  # one call gives all the rows from there on
            whole = self.part(first, self.length) if self.length <= LENGTH else None
            return (self.part(first, row + 1) if whole is None else whole)[:, row - first]
        return self.part(first, end)[:, row - first]

    def answer(self, use: WindowUse, size: Size) -> Array:
        """Return the output of the whole, asked with a window."""
        with in_window(self.bound, use, size):
            return self.bound(self.problem).output

    def answer_after(self, use: WindowUse, other: Size | None, size: Size) -> Array:
        """Return the same of an object that was asked with another window before, or with none."""
        with in_window(self.bound, use, other) if other is not None else nullcontext():
            before = self.bound.prepare(self.problem)
            before.make()
        with in_window(self.bound, use, size):
            call = replace(self.bound.prepare(self.problem), function=before.function, pull=None)
            return self.bound.answer(self.problem, call.make()).output

    def departs(
        self, use: WindowUse, size: Size, output: Array, asked: Iterable[int]
    ) -> int | None:
        """Return the first of the rows that is not attention within its window; None if all are.

        Rows in which a mask hides all keys of the window are left out.
        """
        for row in asked:
            if self.is_empty(row, *self.keys_of(use, row, size)):
                continue
            if not equal_up_to_float32(
                self.row(row, *self.keys_of(use, row, size)), output[:, row]
            ):
                return row
        return None

    def is_empty(self, row: int, first: int, end: int) -> bool:
        """Return whether a mask hides these keys from a row, of one sample or of all."""
        padding, hidden = self.problem.key_padding_mask, self.problem.attn_mask
        seen = np.ones((1, end - first), dtype=bool)
        if padding is not None:
            seen = seen & ~_hides(padding)[:, first:end]
        if hidden is not None:
            seen = seen & ~_hides(hidden)[row, first:end]
        return not seen.any(axis=-1).all()

    def keys_of(self, use: WindowUse, row: int, size: Size) -> tuple[int, int]:
        """Return the first key that a row should see, and the one behind the last."""
        first, end = use.keys_of(row, size, self.length)
        return first, min(end, row + 1) if self.problem.is_causal else end


def _hides(mask: Array) -> Array:
    """Return what a mask hides: True, or -inf."""
    return mask if mask.dtype == bool else np.isneginf(mask)


@contextmanager
def in_window(bound: Convention, use: WindowUse, size: Size) -> Iterator[None]:
    """Pass a window in all calls that are prepared."""
    bound.window_passed = {use.key: size, **dict.fromkeys(use.switches, True)}
    try:
        yield
    finally:
        bound.window_passed = {}


def use_windows_of(bound: Convention) -> None:
    """Let a convention keep how its target takes a window, and say it; or why it is not known."""
    named = [p for p in bound.parameters if p.role is Role.WINDOW and p.name not in bound.without]
    switches = tuple(p.key for p in named if is_switch(p))
    found = []
    for each in named:
        if each.key in switches:
            continue
        use, reason = find_window(bound, each, switches)
        if use is None and _is_bound(each, reason):
            bound.bounds |= {each.key}
            if _is_left_to_callers(each, reason):
                bound.remarks += (f"`{each.name}` of its configuration changes nothing.",)
        elif use is None:
            bound.untried[each.key] = reason
        elif use.causal == (False,) and "causal" in bound.offer["attn"]:
            bound.untried[each.key] = UNLIKE_RULE
        else:
            found.append(use)
            bound.meanings[each.key] = f"{use.meaning}{_where(bound, use)}"
    found += _of_itself(bound)
    if found:
        bound.meanings |= dict.fromkeys(switches, "True where a window is passed")
    elif len(switches) == len(named):  # none has a size: `use_window` alone is no mask
        bound.bounds |= {*switches}
    else:
        bound.untried |= dict.fromkeys(switches, "no window was understood")
    bound.windows = tuple(found)


def _of_itself(bound: Convention) -> Iterator[WindowUse]:
    """Yield the windows that a layer keeps as numbers of its own, where small calls show them."""
    layers: Any = bound  # what builds none has no such numbers
    for each in layers.own_windows() if hasattr(bound, "own_windows") else ():
        before = layers.windows_of_itself
        layers.windows_of_itself = before | {each.name}
        use, _ = find_window(bound, each, ())
        if use is None:
            layers.windows_of_itself = before
            continue
        bound.configured = (*bound.configured, each)
        bound.meanings[each.key] = f"{use.meaning}{_where(bound, use)}"
        yield use


def is_switch(parameter: Parameter) -> bool:
    """Return whether a parameter says whether there is a window, and not how long it is."""
    asks = re.match(r"(use|has|is|with|enable|do|apply)_", parameter.name.lower()) is not None
    return parameter.default in {"True", "False"} or (
        asks and parameter.default == OF_CONFIGURATION
    )


def _is_left_to_callers(parameter: Parameter, reason: str) -> bool:
    """Return whether a configuration's window changes nothing: callers may make a mask of it."""
    return parameter.default == OF_CONFIGURATION and reason.endswith(CHANGE_NOTHING)


def _is_bound(parameter: Parameter, reason: str) -> bool:
    """Return whether a constructor's window is a size: two equal ones, of a plane, or the largest.

    A layer that keeps a mask of that many rows raises where the sequence has more.
    """
    if _is_left_to_callers(parameter, reason):
        return True
    given = re.fullmatch(r"[(\[](\d+), (\d+)[)\]]", parameter.default)
    of_plane = given is not None and given[1] == given[2]
    raises = re.match(f"{NO_ANSWER} one: raised (Runtime|Value)Error", reason) is not None
    return parameter.of == "constructor" and (of_plane or raises)


def _where(bound: Convention, use: WindowUse) -> str:
    """Say where alone a window was asked for, if others are offered."""
    rule = use.causal == (True,) and not bound.hides_future
    unlike = "cross" in bound.offer["inputs"] and UNLIKE_LENGTHS not in bound.reasons
    return f"{', with the causal rule alone' * rule}{f', {SQUARE}' * unlike}"


def find_window(
    bound: Convention, parameter: Parameter, switches: tuple[str, ...]
) -> tuple[WindowUse | None, str]:
    """Return how a parameter takes a window, or None and why that is not known."""
    reason = NOT_ASKED
    for sequence in small_sequences(bound):
        for pair in _forms(parameter):
            first = WindowUse(parameter.key, RULES[0], pair, switches)
            with suppress(CandidateError), attributed(bound.subject):
                answers, raised = _answers(sequence, first)
                if use := _understood(sequence, first, answers):
                    return _with_causal_rule(bound, use, answers), ""
                if reason == NOT_ASKED or (answers and reason.startswith(NO_ANSWER)):
                    reason = _why_not(sequence, answers, raised)
    return None, reason


def _why_not(sequence: WindowedSequence, answers: Mapping[Size, Array], raised: str) -> str:
    """Say why no window was understood."""
    if not answers:
        return f"{NO_ANSWER} one: {raised}"
    return (NO_EFFECT if _idle(sequence, answers) else NO_RULE).format(_listed(answers))


def _idle(sequence: WindowedSequence, answers: Mapping[Size, Array]) -> bool:
    """Return whether windows change nothing: with the causal rule keys on the right do not."""
    whole = sequence.part(0, LENGTH)
    return all(equal_up_to_float32(whole, each) for each in answers.values())


def small_sequences(bound: Convention) -> Iterator[WindowedSequence]:
    """Yield small problems of self-attention: without the causal rule, then with it, if offered."""
    if bound.of_one_length or "self" not in bound.offer["inputs"]:
        return
    case = bound.plain_case().replace(inputs="self", gradients="no", weights="none")
    offer = {**bound.offer, "inputs": ("self",)}
    plain = plain_variant(case, offer, LENGTH, LENGTH, HEAD_DIM, square=True)
    if plain is None:
        return
    rules = [rule for rule in ("none", "causal") if rule in bound.offer["attn"]]
    for rule in rules:
        yield WindowedSequence(bound, make_problem(plain.replace(attn=rule)))


def _forms(parameter: Parameter) -> tuple[bool, ...]:
    """Return whether a parameter is asked as a pair: by its default, or where a number raises."""
    return (True,) if parameter.default.startswith(("(", "[")) else (False, True)


def _listed(sizes: Iterable[Size]) -> str:
    *most, last = map(str, sizes)
    return f"{', '.join(most)} and {last}" if most else last


def _answers(sequence: WindowedSequence, use: WindowUse) -> tuple[dict[Size, Array], str]:
    """Return the outputs with each window that is answered, and what the last other one raised."""
    answers: dict[Size, Array] = {}
    raised = ""
    for size in PAIRS if use.pair else SIZES:
        try:
            answers[size] = sequence.answer(use, size)
        except CandidateError as error:
            raised = str(error)
    return answers, raised


def _understood(
    sequence: WindowedSequence, use: WindowUse, answers: Mapping[Size, Array]
) -> WindowUse | None:
    """Return the way with the first rule that all rows of all answers follow."""
    if not answers or _idle(sequence, answers):
        return None
    every = PAIRS if use.pair else SIZES
    left_out = {size for size in every if size not in answers}
    whole = bool(left_out) and left_out == {n for n in SIZES if LENGTH % n}
    odd = bool(left_out) and left_out == {n for n in SIZES if n % 2 == 0}
    if left_out and not (whole or odd):
        return None
    for rule in PAIR_RULES if use.pair else RULES:
        causal = (sequence.problem.is_causal,)
        found = replace(use, rule=rule, whole=whole, odd=odd, causal=causal)
        departing = (
            sequence.departs(found, size, output, range(LENGTH)) for size, output in answers.items()
        )
        if all(row is None for row in departing):
            return found
    return None


def _with_causal_rule(
    bound: Convention, use: WindowUse, answers: Mapping[Size, Array]
) -> WindowUse:
    """Return the way for both kinds of problems, where one with the causal rule follows it too."""
    for sequence in small_sequences(bound):
        if sequence.problem.is_causal in use.causal:
            continue
        with suppress(CandidateError), attributed(bound.subject):
            departing = (
                sequence.departs(use, size, sequence.answer(use, size), range(LENGTH))
                for size in answers
            )
            if all(row is None for row in departing):
                return replace(use, causal=(*use.causal, sequence.problem.is_causal))
    return use
