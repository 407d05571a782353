"""Kernels that take all samples in one array of rows, and where each sample's begin."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import Answer, CandidateError
from mha_parity.core.features import make_offer
from mha_parity.core.parameters import Role
from mha_parity.core.problem import INPUTS, Problem
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.calls import vjp
from mha_parity.targets.calls.canonical_layout import split_result
from mha_parity.targets.calls.target_call import Arguments, Call, positional_and_keyword
from mha_parity.targets.convention_base.convention import PLAIN_CORE, Convention, FeatureProbe
from mha_parity.targets.convention_base.dropout_argument import with_dropout_passed
from mha_parity.targets.convention_base.grouped_heads import grouped, groups_heads
from mha_parity.targets.interpretations.try_interpretations import attention_in_float64, is_rounding
from mha_parity.targets.static import projection_names as names
from mha_parity.targets.static.argument_meanings import given_windows
from mha_parity.targets.static.call_parameters import role
from mha_parity.targets.static.documented_layout import documented_sentences, module_sentences
from mha_parity.targets.static.signatures import by_letter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer

# Of the starts of all samples, and of the longest one: `cu_seqlens_q`, `max_seqlen_q`, `cu_seq_k`.
# And of ragged arrays: `q_offsets`, `indptr`.
STARTS = re.compile(
    r"^cu_?seq|^cu_|cumulative"
    r"|^(([qk]|kv|quer(y|ies)|keys?|seq(uence)?s?|rows?)_?)?(offsets|indptr|row_ptr)(_?([qk]|kv))?$"
)
LONGEST = re.compile(r"^max_?(seq|len|[qk]$)")
LAST = "counts from the last key"  # how the causal rule is settled
ALIGNED_LAST = "the causal rule counts from the last key: sequences are cut so that it is torch's."
MOST_REPEATED = 4  # times the rows of a problem: repeated rows cost a mask over all their square
TOO_MANY = "not asked: each row past a sample's length would need a sequence of its own"
WINDOWED = "not asked: with a window, a sequence has as many rows as keys"
EMPTY = re.compile(
    r"\b(sequences?|samples?|segments?|documents?)\b[^.;]{0,30}\b(may|can) be (empty|of length 0)\b"
    r"|\bempty (sequences?|samples?|segments?|documents?)\b[^.;]{0,20}"
    r"\b(allowed|supported|handled|fine|give|return|yield)s?\b",
    re.IGNORECASE,
)
EMPTY_ASKED = "in one of 4 cases empty sequences stand between others, as documented."
WITH_EMPTY = 4  # one of 4 cases has empty sequences, by its seed: others show what else is wrong
PACKED = "packed"  # an array of several inputs
MIXES = "an infinite value of one sample makes the others NaN, 0 times infinity, as a mask over all"


@dataclass(frozen=True, slots=True)
class SampleRows:
    """Rows ``first`` to ``last`` of a sample, and how many of its keys they are asked with.

    ``before``: how often the first of them stands in front of it again, where a sequence has to
    have as many rows as keys; what is answered to these is left out.
    """

    sample: int
    first: int
    last: int
    keys: int
    before: int = 0

    @property
    def count(self) -> int:
        """How many rows the sequence has."""
        return self.before + self.last - self.first


class Varlen(Convention):
    """``f(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal=)``.

    Or ``f(q, kv, …)`` with (rows, 2, H, D), or ``f(qkv, cu_seqlens, …)`` with (rows, 3, H, D).

    Arrays are (rows, H, D), all samples one after the other. A sample's queries are cut into
    sequences of several lengths, each with the keys that it sees.
    """

    name = "varlen"
    call = "f(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k), (rows, H, D) arrays"
    aligned_last = False

    def claims(self) -> Offer:
        """Return what the names say."""
        self.own_masks = frozenset(self._starts) | {self._causal}
        both = len(self._starts) > 1
        return make_offer(
            form="qkv", projection="none", inputs=("self", "cross") if both else "self",
            size=("small", "medium", "equal", "ones"),
            padding=("none", "lengths"),
            attn=("none", "causal") if self._causal else "none",
            scale=("default", "given") if self._scale else "default",
            memory=self.library.memory,
        )  # fmt: skip

    @cached_property
    def _inputs(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The parameters before the starts, each with the inputs that it gets, packed or alone."""
        return packed_input_parameters([p.name for p in self._named[1]])

    @cached_property
    def _starts(self) -> tuple[str, ...]:
        return tuple(p.name for p in self._named[1] if STARTS.search(p.name))

    @cached_property
    def _may_be_empty(self) -> bool:
        """Whether the documentation says that sequences may have no row."""
        said = (*documented_sentences(self.subject), *module_sentences(self.subject))
        return any(map(EMPTY.search, said))

    @cached_property
    def _causal(self) -> str:
        return self._first(Role.CAUSAL)

    @cached_property
    def _scale(self) -> str:
        return self._first(Role.SCALE)

    def _first(self, wanted: Role) -> str:
        """Return the first parameter of a role, "" without one."""
        roles = ((p.name, role(p.name, "call", p.default)) for p in self._named[1])
        return next((name for name, each in roles if each is wanted), "")

    def plain_case(self) -> Case:
        """Two samples and two heads of width 3."""
        return PLAIN_CORE

    def probes(self) -> Iterator[FeatureProbe]:
        """Look where the causal rule counts from; wider values, gradients, fewer key heads."""
        case = self.trial_case()
        if self._causal and len(self._starts) > 1:
            self.aligned_last = self._counts_from_the_last_key(case)
            self.remarks = (ALIGNED_LAST,) * self.aligned_last
        self.remarks = (*self.remarks, *(EMPTY_ASKED,) * self._may_be_empty)
        if self._mixes_infinity(case):
            left = tuple(each for each in self.offer["regime"] if each != "infinite_value")
            self.offer = self.offer | {"regime": left}
            self.reasons["regime", "infinite_value"] = MIXES
        packed = max(len(roles) for _, roles in self._inputs)
        if packed == 1:
            yield FeatureProbe("v_dim", "other", (case.replace(v_head_dim=4),))
        yield FeatureProbe("gradients", "yes", (case.replace(gradients="yes"),))
        if packed < len(INPUTS) and groups_heads(self, case):
            yield FeatureProbe("kv_heads", "fewer", (grouped(case),))

    def _mixes_infinity(self, case: Case) -> bool:
        """Return whether an infinite value of one sample makes another NaN, as one mask does.

        Each row is multiplied with the values of all samples then, those of the others by 0.
        """
        problem = make_problem(case)
        value = problem.value.copy()
        value[0, 0] = np.inf
        with suppress(CandidateError):  # the trials say what it raised
            return bool(np.isnan(self(problem.replace(value=value)).output[1]).any())
        return False

    def _counts_from_the_last_key(self, case: Case) -> bool:
        """Return whether cuts for a rule that counts from the last key give torch's attention."""
        problem = make_problem(case.replace(attn="causal"))
        found = []
        for self.aligned_last in (False, True):
            try:
                output = self(problem).output
            except CandidateError:
                return False
            found.append(is_rounding(output, attention_in_float64(problem, causal=True)))
        # Uncut square samples are torch's by either rule: cut ones tell.
        return found[-1]

    def settled(self) -> tuple[tuple[str, str], ...]:
        """Return by which rule keys are counted, too."""
        return (*super().settled(), *[(LAST, "")] * self.aligned_last)

    def settle(self, found: tuple[tuple[str, str], ...]) -> None:
        """Take it from another process."""
        super().settle(found)
        self.aligned_last = (LAST, "") in found

    def sequences(self, problem: Problem) -> tuple[SampleRows, ...]:
        """Return how a problem is cut: rows see the same keys in their sequence as in the problem.

        By a rule that counts from the first key, rows stay together under it. By one that counts
        from the last, a sequence's last row is asked with the keys that it sees, and a row behind
        all keys alone. With a window samples stay whole. Empty sequences stand between others where
        the documentation says that they may.
        """
        case = problem.case
        lengths = problem.lengths if problem.lengths is not None else [case.keys] * case.batch
        whole = problem.is_causal and not self.aligned_last
        rng = np.random.default_rng(case.seed)
        found: list[SampleRows] = []
        for sample, keys in enumerate(map(int, lengths)):
            if len(self._starts) == 1:
                found += _of_equal_lengths(problem, sample, keys)
                continue
            cuts = {0, case.queries}
            if not (whole or self.window_passed):  # rows of a window are counted in their sequence
                cuts |= {int(rng.integers(case.queries + 1)) for _ in range(2)}
            if problem.is_causal and not whole:
                cuts |= set(range(keys, case.queries))
            places = sorted(cuts)
            if self._may_be_empty and case.seed % WITH_EMPTY == 1:
                found += [SampleRows(sample, 0, 0, 0)] * int(rng.integers(3))
            for first, last in pairwise(places):
                seen = min(keys, last) if problem.is_causal and not whole else keys
                found.append(SampleRows(sample, first, last, seen))
        return tuple(found)

    def prepare(self, problem: Problem) -> Call:
        """Pass packed rows, where each sequence begins, and the longest of both kinds."""
        arguments = Arguments(problem, self.library)
        cut = self.sequences(problem)
        if sum(each.count for each in cut) > MOST_REPEATED * problem.case.batch * max(
            problem.case.queries, 1
        ):
            raise CandidateError("inconclusive", TOO_MANY)
        if self.window_passed and any(each.keys != each.count for each in cut):
            raise CandidateError("inconclusive", WINDOWED)
        counts = [[each.count for each in cut], [each.keys for each in cut]]
        named = self._named[1]
        values: dict[str, Any] = {}
        for name, roles in self._inputs:
            rows = [self._packed(problem, role, cut) for role in roles]
            array = rows[0] if len(rows) == 1 else np.stack(rows, axis=1)
            values[name] = arguments.array(roles[0] if len(rows) == 1 else PACKED, array)
        for name, held in zip(self._starts, counts, strict=False):
            values[name] = arguments.array(name, np.cumsum([0, *held], dtype=np.int32))
        longest = [p.name for p in named if LONGEST.search(p.name)]
        values |= {n: max(held, default=0) for n, held in zip(longest, counts, strict=False)}
        if problem.is_causal:
            values[self._causal] = True
        if problem.given_scale is not None:
            values[self._scale] = problem.given_scale
        windows = {key.removeprefix("call."): size for key, size in self.window_passed.items()}
        values |= given_windows(named, problem.case) | windows
        args, kwargs = positional_and_keyword(named, values)
        call = Call(self.subject, args, kwargs, tuple(arguments.given))
        return vjp.with_function_gradients(
            call, arguments, lambda rows: _rows(rows, problem.num_heads, cut, repeated=False),
            lambda found: {n: self._unpacked(problem, n, a, cut) for n, a in self._each(found)},
        )  # fmt: skip

    def _each(self, found: dict[str, Array]) -> Iterator[tuple[str, Array]]:
        """Yield the gradients of query, key and value, those of several in one array one by one."""
        several = next((roles for _, roles in self._inputs if len(roles) > 1), ())
        for name, array in found.items():
            if name == PACKED:
                yield from ((role, array[:, place]) for place, role in enumerate(several))
            else:
                yield name, array

    def _packed(self, problem: Problem, name: str, cut: Sequence[SampleRows]) -> Array:
        """Return query, key or value as (rows, H, D), sequence after sequence."""
        array: Array = getattr(problem, name)
        if name == "query":
            return _rows(array, problem.num_heads, cut)
        split = array.reshape(*array.shape[:2], problem.num_kv_heads, -1)
        return np.concatenate([split[each.sample, : each.keys] for each in cut])

    def _unpacked(
        self, problem: Problem, name: str, array: Array, cut: Sequence[SampleRows]
    ) -> Array:
        """Return a gradient as (N, rows, E): of keys in several sequences it is the sum."""
        whole = np.zeros(getattr(problem, name).shape, np.promote_types(array.dtype, np.float32))
        flat = array.reshape(array.shape[0], -1)
        start = 0
        for each in cut:
            first, last = (each.first, each.last) if name == "query" else (0, each.keys)
            start += each.before if name == "query" else 0
            whole[each.sample, first:last] += flat[start : start + last - first]
            start += last - first
        return whole.astype(array.dtype)

    def answer(self, problem: Problem, result: Any) -> Answer:
        """Return the rows of all sequences, sample by sample; another shape as it came."""
        array = to_numpy(split_result(result)[0], "the output")
        case, cut = problem.case, self.sequences(problem)
        ends = np.cumsum([each.count for each in cut])
        if array.ndim != 3 or array.shape[0] != ends[-1]:
            return Answer(output=array)
        kept = [array[end - (each.last - each.first) : end]
                for each, end in zip(cut, ends, strict=True)]  # fmt: skip
        return Answer(output=np.concatenate(kept).reshape(case.batch, case.queries, -1))

    def with_dropout(self, problem: Problem, p: float) -> Callable[[bool], Call] | None:
        """Return what makes calls with the dropout probability, 0 in evaluation."""
        return with_dropout_passed(self, problem, p)


def packed_input_parameters(called: Sequence[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the parameters before the starts of the samples that get query, key and value.

    Three of them, `q` and `kv`, or `qkv` alone; () if they are others.
    """
    first = next((place for place, name in enumerate(called) if STARTS.search(name)), 0)
    if first >= len(INPUTS):
        order = by_letter(called[: len(INPUTS)])
        return tuple((name, (INPUTS[at],)) for name, at in zip(called, order, strict=False))
    letters = dict(zip(names.ROWS, INPUTS, strict=True))
    parts = [names.parts(name.removesuffix("packed").rstrip("_")) for name in called[:first]]
    found = tuple(
        (name, tuple(letters[part] for part in each if part in letters))
        for name, each in zip(called, parts, strict=False)
    )
    return found if tuple(role for _, roles in found for role in roles) == INPUTS else ()


def _of_equal_lengths(problem: Problem, sample: int, keys: int) -> Iterator[SampleRows]:
    """Yield the sequences of a sample, each of as many rows as keys, in the order of its rows.

    Those past its length see all of its keys: they are asked behind repeated rows, and one by one
    under the causal rule, by which the last row alone sees all.
    """
    rows = problem.case.queries
    yield SampleRows(sample, 0, min(keys, rows), keys)
    step = 1 if problem.is_causal else keys
    for first in range(keys, rows, step):
        last = min(first + step, rows)
        yield SampleRows(sample, first, last, keys, keys - (last - first))


def _rows(rows: Array, heads: int, cut: Sequence[SampleRows], *, repeated: bool = True) -> Array:
    """Return rows of queries (N, L, H D) as (rows, H, D), those repeated in front as 0 if asked."""
    split = rows.reshape(*rows.shape[:2], heads, rows.shape[2] // heads)
    found = []
    for each in cut:
        first = split[each.sample, each.first : each.first + 1] * repeated
        found += [first.repeat(each.before, axis=0), split[each.sample, each.first : each.last]]
    return np.concatenate(found)
