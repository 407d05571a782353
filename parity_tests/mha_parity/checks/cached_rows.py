"""Check that rows asked with a key/value cache are those of the whole sequence.

Two sequences are begun by one object and go on alternately, row by row, each with its own cache.
Where the object keeps the cache, and a call says where it begins or a method ends the first, a
shorter one follows.
The last row of a sequence sees all rows before it, with the causal rule as without: what a new
object answers to the whole is what each row should be. Where a row departs, it is asked again with
each row before it changed, which shows those that it sees.
"""

from __future__ import annotations

import contextlib
import itertools
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.checks.altered_problems import other_rows
from mha_parity.checks.compared_calls import ComparedCall, tell_compared
from mha_parity.checks.plain_problems import plain_sequence
from mha_parity.checks.step_methods import departing_step
from mha_parity.core.candidate import REMARK, CandidateError
from mha_parity.core.compare import describe_difference, equal_up_to_rounding
from mha_parity.core.features import has_one_kv_head
from mha_parity.core.problem import INPUTS
from mha_parity.targets.caches.cached_calls import (
    CachedCalls,
    causal_by_default,
    last_row,
    rows,
)
from mha_parity.targets.caches.reset_methods import forgetting_methods
from mha_parity.targets.calls.error_origin import REFUSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.calls.cache_arguments import CacheUse
    from mha_parity.targets.calls.mask_plan import MaskPlan
    from mha_parity.targets.convention_base.convention import Convention

NAME = "rows with a cache"
CHECKS = {NAME: "rows that are asked with a key/value cache are those of the whole sequence"}
LENGTH, HEAD_DIM = 6, 4
QUERY_HEADS, KEY_HEADS = 4, 2  # of grouped heads
SHORTER = 2  # rows fewer, of a sequence that follows another
GROUPED = f"with {QUERY_HEADS} query heads and {KEY_HEADS} key heads"
BEGINS = (2, 1, 3)  # rows of the first call, by the number of the case
TWICE = "it is right with its own key and value twice"
OTHER_SEQUENCE = "it is right with the rows of another sequence before it"
STALE = "it sees rows of the sequence before this one"
OTHER_SAMPLES = "it is right with the rows of other samples before it"
FORGETS = "it sees no row of the calls before the last one"
UNSEEN = "does not see row"
FORGOTTEN = "of a sequence, by an object that was made to forget the one before"
# Remarks without numbers: each is said once, in however many cases it is made.
ANEW = "Two new rows in one call begin a sequence of their own: pass one row at a time."
NOT_TOGETHER = (
    "Two new rows in one call with a cache are not those of the whole: pass one row at a time."
)
TOGETHER = "Two new rows in one call with a cache see each other: pass one row at a time."
OF_FLOAT32 = "A row that is asked with a cache has the digits of float32."
RULE = " and the causal rule switched on"
AFTERWARDS = "in the answer without a cache of an object that was called with one"
# Clauses that end a finding -> the bug of the catalogue that they are of.
CAUSES: Mapping[str, str] = MappingProxyType({
    TWICE: "cache-row-twice",
    FORGETS: "cache-forgets",
    OTHER_SEQUENCE: "cache-shared",
    OTHER_SAMPLES: "cache-samples-mixed",
})  # fmt: skip


def check_cached_rows(bound: Convention, problem: Problem, number: int) -> Iterator[str]:
    """Yield the findings on the rows of small sequences of the kind of a problem.

    ``number`` is that of the case among those for which this is asked. A layer that is given as it
    is answers rows of the problem itself.
    """
    if bound.cache is None:
        return
    masks, causal = _in_decoding(bound) if number % 2 else (bound.masks, bound.hides_future)
    with _masks(bound, masks):
        yield from list(_findings(bound, bound.cache, problem, number, causal=causal))


@contextlib.contextmanager
def _masks(bound: Convention, plan: MaskPlan | None) -> Iterator[None]:
    """Context: pass the masks of another plan."""
    own, bound.masks = bound.masks, plan
    try:
        yield
    finally:
        bound.masks = own


def _in_decoding(bound: Convention) -> tuple[MaskPlan | None, bool]:
    """Return what is passed of masks in every other case, and whether its rows are causal then.

    Callers with a cache leave out a mask that stands in the place of a causal rule: the rule may
    count the rows of the call alone then. They leave a switch of the call as it is by default, and
    a layer whose constructor switches the rule on has no other one to decode by.
    """
    plan, causal = bound.masks, bound.hides_future or bool(causal_by_default(bound))
    if plan is None or plan.replaces_causal:
        return None, causal
    built = None if causal else plan.of_constructor()
    small = bound.plain_case().replace(inputs="self", attn="causal", queries=LENGTH, keys=LENGTH)
    return (built, True) if built and built.passes(make_problem(small)) else (plan, causal)


def _findings(
    bound: Convention, use: CacheUse, problem: Problem, number: int, *, causal: bool
) -> Iterator[str]:
    whole = plain_sequence(bound, problem, LENGTH, HEAD_DIM, causal=causal)
    if whole is not None:
        yield NAME
        begin = BEGINS[number % len(BEGINS)]
        sequences = CachedSequences(bound, use, whole, begin)
        if found := list(sequences.rows_in_turn()):
            yield from found
        elif number % 2 and (grouped := _with_grouped_heads(bound, whole)):
            said = CachedSequences(bound, use, grouped, begin).rows_in_turn()
            yield from (each.replace(f"{NAME}: ", f"{NAME}: {GROUPED} ") for each in said)
        else:
            yield from itertools.chain(sequences.begun_anew(), sequences.rows_together())


def _with_grouped_heads(bound: Convention, whole: Problem) -> Problem | None:
    """Return a problem with fewer key heads, but several; None where the layer has none.

    A cache holds rows of these: repeated for one query head after another, or in tiles, they are
    the same with one key head, or as many as query heads.
    """
    offer = bound.offer
    if bound.own_weights is not None or "fewer" not in offer["kv_heads"] or has_one_kv_head(offer):
        return None
    return make_problem(whole.case.replace(heads_count=QUERY_HEADS, kv_heads_count=KEY_HEADS))


class CachedSequences:
    """Two sequences that one object is asked row by row; one where no other can be begun."""

    def __init__(self, bound: Convention, use: CacheUse, whole: Problem, begin: int) -> None:
        self.bound, self.use, self.begin = bound, use, begin
        self.forgets = use.kept_inside and not use.first_row and _can_forget(bound)
        several = not use.kept_inside or use.first_row or self.forgets
        self.sequences = [whole, other_rows(whole)] if several else [whole]
        self._switched = whole.is_causal and not bound.hides_future

    def _calls(self) -> CachedCalls:
        """Return calls of a new object.

        It is built for the whole where a switch may set the causal rule: one row alone needs none.
        """
        function = self.bound.prepare(self.sequences[0]).function if self._switched else None
        return CachedCalls(self.bound, self.use, function)

    def rows_in_turn(self) -> Iterator[str]:
        """Yield the first row that departs from the last one of the rows up to it.

        A cache that refuses further rows has no room for them.
        """
        calls = self._calls()
        try:
            for place, before, output in self._asked(calls, self.sequences, LENGTH):
                expected = last_row(self.bound, self.sequences[place], before + 1)
                if not equal_up_to_rounding(expected, output):
                    yield self._departure(place, before, expected, output)
                    return
        except CandidateError as error:
            if not isinstance(error.__context__, REFUSES):
                yield f"{NAME}: a call with the cache of the rows before it {error}."
            return
        with contextlib.suppress(CandidateError):
            whole = self.sequences[0]
            expected, after = self.bound(whole).output, calls.without_cache(whole)
            if not equal_up_to_rounding(expected, after):
                yield f"{NAME}: {describe_difference(expected, after)} {AFTERWARDS}."

    def _departure(self, place: int, before: int, expected: Array, output: Array) -> str:
        """Say how a row departs; a remark where no more than the digits of float32 are lost."""
        alike = expected.shape == output.shape
        fewer = (each.astype(np.float32) for each in (expected, output))
        if alike and equal_up_to_rounding(*fewer):
            return REMARK + OF_FLOAT32
        self._tell(place, before, expected, output)
        said = f"{describe_difference(expected, output)} in row {before}"
        cause = self._cause(place, before, output) if alike else ""
        rule = RULE * self._switched
        return f"{NAME}: {said}, asked with the cache of those before it{rule}{cause}."

    def _tell(self, place: int, before: int, expected: Array, output: Array) -> None:
        """Tell the calls of a sequence with its cache, and that of the whole up to the row."""
        whole = self.sequences[place]
        first = rows(whole, 0, self.begin)
        others = range(self.begin, before)
        also = ", the other sequence row by row with it" if len(self.sequences) > 1 else ""
        begin = "row 0 begins" if self.begin == 1 else f"rows 0 to {self.begin - 1} begin"
        tell_compared(
            NAME,
            ComparedCall(f"{begin} a cache{also}", first),
            *(ComparedCall(f"row {at}, with it", rows(whole, at, at + 1)) for at in others),
            ComparedCall(f"row {before}, with it", rows(whole, before, before + 1), output),
            ComparedCall(
                f"rows 0 to {before} without a cache, of which the last is compared",
                rows(whole, 0, before + 1),
                expected,
            ),
        )

    def begun_anew(self) -> Iterator[str]:
        """Yield that the first rows are answered otherwise by an object that forgot a sequence."""
        if not self.forgets:
            return
        one, other = self.sequences
        first = rows(other, 0, LENGTH - SHORTER)
        calls, new = self._calls(), self._calls()
        with contextlib.suppress(CandidateError):
            calls.begin(one)
            calls.forget()
            output, expected = calls.begin(first)[0].output, new.begin(first)[0].output
            if not equal_up_to_rounding(expected, output):
                tell_compared(
                    NAME,
                    ComparedCall("a sequence, which the object is made to forget", one),
                    ComparedCall("then the first rows of another one", first, output),
                    ComparedCall("these of a new object", first, expected),
                )
                said = describe_difference(expected, output)
                yield f"{NAME}: {said} in the first rows {FORGOTTEN}."

    def rows_together(self) -> Iterator[str]:
        """Yield that two rows of one call are answered otherwise than in the whole.

        That they see each other in a causal layer, or begin a sequence of their own, is a remark:
        many layers take one row alone with a cache. Rows of the cache that the first of them does
        not see are a finding.
        """
        causal = self.bound.hides_future or self.sequences[0].is_causal
        with contextlib.suppress(CandidateError):
            if self.use.method:
                yield from self._in_one_step()
                return
            whole = rows(self.sequences[0], 0, self.begin + 2)
            output, expected = self._together(whole), self.bound(whole).output[:, self.begin :]
            if equal_up_to_rounding(expected, output):
                return
            said = describe_difference(expected, output)
            new = rows(whole, self.begin, whole.case.queries)
            if equal_up_to_rounding(output, self.bound(new).output):
                yield REMARK + ANEW
                return
            first = output[:, :1]
            changed = ((row, self._together(_changed(whole, row))) for row in range(self.begin))
            unseen = [row for row, other in changed if equal_up_to_rounding(first, other[:, :1])]
            if unseen:
                before = f"row{'s' * (self.begin > 1)} before"
                tell_compared(
                    NAME,
                    ComparedCall(f"the {before}", rows(whole, 0, self.begin)),
                    ComparedCall("two new rows, with their cache", new, output),
                    ComparedCall("the whole, of which the last two rows", whole, expected),
                )
                yield (
                    f"{NAME}: {said} in two new rows of one call, asked with the cache of those "
                    f"before them: row {self.begin} {_unseen(unseen)}."
                )
                return
            other = self._together(_changed(whole, self.begin + 1))
            sees_next = not equal_up_to_rounding(first, other[:, :1])
            yield REMARK + (TOGETHER if sees_next and causal else NOT_TOGETHER)

    def _in_one_step(self) -> Iterator[str]:
        """Yield the rows of one call of a method that depart."""
        whole = self.sequences[0]
        if said := departing_step(self.bound, self.use, whole, self.bound(whole).output):
            yield f"{NAME}: {said}."

    def _together(self, whole: Problem) -> Array:
        """Return the answer to the last two rows in one call, with the cache of those before."""
        calls = self._calls()
        cache = calls.begin(rows(whole, 0, self.begin))[1]
        new = rows(whole, self.begin, whole.case.queries)
        return calls.go_on(new, self.begin, cache)[0].output

    def _asked(
        self, calls: CachedCalls, sequences: Sequence[Problem], end: int
    ) -> Iterator[tuple[int, int, Array]]:
        """Yield the place of a sequence, a row of it and the answer to that, the first ones not."""
        if self.use.kept_inside:
            for place, each in enumerate(sequences):
                if place and self.forgets:
                    calls.forget()
                yield from self._row_by_row(calls, {place: each}, end - place * SHORTER)
        else:
            yield from self._row_by_row(calls, dict(enumerate(sequences)), end)

    def _row_by_row(
        self, calls: CachedCalls, sequences: Mapping[int, Problem], end: int
    ) -> Iterator[tuple[int, int, Array]]:
        """Yield the answers to rows of sequences that go on alternately."""
        caches = {at: calls.begin(rows(each, 0, self.begin))[1] for at, each in sequences.items()}
        for before in range(self.begin, end):
            for place, each in sequences.items():
                one = rows(each, before, before + 1)
                answer, caches[place] = calls.go_on(one, before, caches[place])
                yield place, before, answer.output

    def _cause(self, place: int, before: int, output: Array) -> str:
        """Return the clause that says what a row has seen, where it is known."""
        whole = self.sequences[place]
        others = self.sequences[1 - place] if len(self.sequences) > 1 else None
        for clause, changed in _others(whole, others, before):
            with contextlib.suppress(CandidateError):
                if equal_up_to_rounding(self.bound(changed).output[:, -1:], output):
                    return f": {clause}"
        try:
            unseen = [row for row in range(before) if not self._sees(place, before, row, output)]
        except CandidateError:
            return ""
        if before > self.begin and unseen and unseen == list(range(before - 1)):
            return f": {FORGETS}"
        return f": it {_unseen(unseen)}" if unseen else ""

    def _sees(self, place: int, before: int, row: int, output: Array) -> bool:
        """Return whether another row before it changes the answer to a row."""
        sequences = list(self.sequences)
        sequences[place] = _changed(sequences[place], row)
        calls = self._calls()
        asked = self._asked(calls, sequences, LENGTH)
        again = next(found for at, number, found in asked if (at, number) == (place, before))
        return not equal_up_to_rounding(output, again)


def _can_forget(bound: Convention) -> bool:
    """Return whether the object has a method by which a sequence ends."""
    return isinstance(bound.subject, type) and any(forgetting_methods(bound.subject))


def _unseen(unseen: list[int]) -> str:
    listed = ", ".join(str(row) for row in unseen)
    return f"{UNSEEN}{'s' if len(unseen) > 1 else ''} {listed}"


def _others(whole: Problem, other: Problem | None, before: int) -> Iterator[tuple[str, Problem]]:
    """Yield the sequences of which a wrong row may be the last, each with what to say of it."""
    own = rows(whole, 0, before + 1)
    yield TWICE, _joined(own, (own, rows(whole, before, before + 1)))
    last = rows(whole, before, before + 1)
    if other is not None:
        yield OTHER_SEQUENCE, _joined(own, (rows(other, 0, before), last))
        stale = rows(other, before + 1, LENGTH)
        yield STALE, _joined(own, (rows(whole, 0, before), stale, last))
    if whole.case.batch > 1:
        first = rows(whole, 0, before)
        samples = _with_inputs(first, lambda array: array[::-1])
        yield OTHER_SAMPLES, _joined(own, (samples, last))


def _joined(problem: Problem, parts: Iterable[Problem]) -> Problem:
    """Return a problem with the rows of several after each other."""
    found = list(parts)
    length = sum(each.case.queries for each in found)
    joined = np.concatenate([each.query for each in found], axis=1)
    case = problem.case.replace(queries=length, keys=length)
    return problem.replace(case=case, **dict.fromkeys(INPUTS, joined))


def _changed(problem: Problem, row: int) -> Problem:
    """Return the problem with another row at one place."""

    def other(array: Array) -> Array:
        changed = array.copy()
        changed[:, row] = -changed[:, row]
        return changed

    return _with_inputs(problem, other)


def _with_inputs(problem: Problem, change: Any) -> Problem:
    """Return a problem of self-attention with its one array changed."""
    return problem.replace(**dict.fromkeys(INPUTS, change(problem.query)))
