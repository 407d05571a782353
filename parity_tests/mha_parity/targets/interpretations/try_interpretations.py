"""Try interpretations of a target on a small problem, and take the one that computes attention.

An interpretation may only choose among what names leave open: a key's matrix is never tried as the
query's. What fits none is taken by the nearest, if names leave nothing open or it comes near.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby, islice
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.fixed_sizes import at_fixed_sizes
from mha_parity.cases.generate import make_problem
from mha_parity.core.arrays import softmax, split_heads
from mha_parity.core.candidate import CandidateError
from mha_parity.core.case import Case
from mha_parity.targets.interpretations.placeholder_arguments import FILLERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem
    from mha_parity.targets.interpretations.interpretation import Interpretation

    Ask = Callable[[Interpretation, Problem], Answer]

# Sizes that no two axes share: N 2, L 5, S 7, H 4, D 6.
SMALL = Case(seed=12, batch=2, queries=5, keys=7, heads_count=4, head_dim=6)
MIN_CORRELATION = 0.5  # correlation with attention from which on a guess is judged
RAISED, MISSHAPED, NOT_FINITE = -2.0, -1.5, -1.0  # in the place of a correlation, the worst first
UNMOVED = "heads are {} without their axis being moved"
WIDTH_FIRST = "heads are {} with the width before the head"
STEPS = (("merged",), ("split",), ("split", "merged"))
TRANSPOSED = "the output weights are used transposed, which the others are not"
UNAPPLIED = "the output weights are not applied"
EXCHANGED = "keys and values are exchanged"
SHARED = "{} is projected with the weights of {}"
TAKEN = "{} is taken in the place of {}"
SHARES = (("k", "q"), ("q", "k"), ("v", "q"), ("v", "k"))
OF_INPUT_AND_HEAD = 2  # widths that a constructor takes
WAYS_FIRST = 3  # to build a class
TRIALS_RAISED = 100  # of one way to build it
# What torch's functions say of an array of NumPy, and what all say of None.
FOREIGN_ARRAY = re.compile(r"tensor.*numpy\.ndarray|numpy\.ndarray.*tensor", re.IGNORECASE)
NOTHING = "NoneType"
TRIALS = 1300  # of interpretations: every function has fewer, and no load of the machine counts


@dataclass(frozen=True, eq=False)
class InterpretationResult:
    """Result of one interpretation: its correlation with attention, or the error raised."""

    interpretation: Interpretation
    correlation: float = RAISED
    exact: bool = False
    causal: bool = False
    missed: str = ""

    @property
    def raised(self) -> bool:
        """Whether the call raised: there is no answer that correlates."""
        return self.correlation == RAISED


@dataclass(eq=False)
class Search:
    """The trials of a target's interpretations."""

    ask: Ask
    dtype: str = "float64"
    base: Case = SMALL
    trials: list[InterpretationResult] = field(default_factory=list)

    def run(self, candidates: Iterable[Interpretation]) -> InterpretationResult | None:
        """Try candidates in order until one computes attention; return it, or else the nearest.

        At most TRIALS are tried: under a limit of time the verdict would depend on the machine.
        Of the first WAYS_FIRST ways to build a class, what follows TRIALS_RAISED calls that all
        raised comes behind the first calls of the others. A call of a layer that raises with its
        weights filled in one way does in all, and is made once.
        """
        raised: Counter[object] = Counter()
        calls_raised = set[object]()

        def in_order() -> Iterator[Interpretation]:
            put_off: list[Interpretation] = []
            for number, (built, alike) in enumerate(groupby(candidates, key=_built)):
                if number == WAYS_FIRST:
                    yield from put_off
                    put_off = []
                for each in alike:
                    if built and number < WAYS_FIRST and raised[built] >= TRIALS_RAISED:
                        put_off.append(each)
                    else:
                        yield each
            yield from put_off

        may_answer = (each for each in in_order() if _call_of_layer(each) not in calls_raised)
        in_turn = islice(may_answer, TRIALS)
        for candidate in in_turn:
            trial = self.tried(candidate)
            self.trials.append(trial)
            if trial.raised and candidate.construction is not None:
                calls_raised.add(_call_of_layer(candidate))
            raised[_built(candidate)] += 1 if trial.raised else -TRIALS
            if len(self.trials) == TRIALS_RAISED and self._has_foreign_arrays:
                break
            if trial.exact:
                plainer = self._of_whole_weights(trial) or self._of_several_heads(trial)
                plainer = plainer or self._of_narrow_heads(trial, in_turn)
                return plainer or self._seeing_all(trial)
        return max(self.trials, key=lambda each: round(each.correlation, 6), default=None)

    @property
    def _has_foreign_arrays(self) -> bool:
        """Whether all trials raised by arrays of another library than the target computes with."""
        foreign = [bool(FOREIGN_ARRAY.search(each.missed)) for each in self.trials]
        others = (each for each, said in zip(self.trials, foreign, strict=True) if not said)
        return any(foreign) and all(each.raised and NOTHING in each.missed for each in others)

    def _of_whole_weights(self, trial: InterpretationResult) -> InterpretationResult | None:
        """Return the trial by whole weights that one reshape explains, where those by head fit.

        `(x @ w).reshape(H, L, D)` is wrong of w (E, H D), and right of a list of H weights (E, D).
        """
        given = [each for _, each in trial.interpretation.roles.single_weights if not each.bias]
        if not any(each.container == "list" or "h" in each.axes for each in given):
            return None
        mistakes = {UNMOVED.format(" and ".join(each)) for each in STEPS}
        return next((each for each in self.trials if each.missed in mistakes), None)

    def _of_several_heads(self, trial: InterpretationResult) -> InterpretationResult | None:
        """Return the nearest of several heads, where one head alone is right.

        A constructor that takes their number promises several: what is wrong with them is judged.
        """
        how = trial.interpretation
        given = () if how.construction is None else how.construction.meanings
        if how.many_heads or "heads" not in dict(given).values():
            return None
        tried = [each for each in self.trials if each.interpretation.many_heads]
        near = [each for each in tried if each.correlation >= MIN_CORRELATION]
        several = (n for n in near if replace(n.interpretation, many_heads=False) == how)
        return max(several, key=lambda each: each.correlation, default=None)

    def _of_narrow_heads(
        self, trial: InterpretationResult, others: Iterable[Interpretation]
    ) -> InterpretationResult | None:
        """Return the nearest with torch's heads, where some as wide as the input are right.

        A constructor that takes two widths may give the heads another than the input's: one of them
        may be that of a head, which nothing but an answer shows.
        """
        how = trial.interpretation
        given = [] if how.construction is None else [m for _, m in how.construction.meanings]
        if not how.full_width or given.count("width") < OF_INPUT_AND_HEAD:
            return None
        called = (how.roles, how.layout, how.arrangement)
        narrow = [
            self.tried(each) for each in others
            if each.many_heads and not each.full_width
            and (each.roles, each.layout, each.arrangement) == called
        ]  # fmt: skip
        self.trials += narrow
        found = [each for each in narrow if each.correlation >= MIN_CORRELATION]
        return max(found, key=lambda each: (each.exact, each.correlation), default=None)

    def _seeing_all(self, trial: InterpretationResult) -> InterpretationResult:
        """Return the fit by a mask that hides nothing, where None for it hides the future.

        The mask stands in the place of the causal rule then, which another mask would take away.
        A switch of the rule belongs to the attention that the layer is built with: it is not set.
        """
        how = trial.interpretation
        inner = None if how.construction is None else how.construction.inner
        if inner is None or not trial.causal or not how.roles.none or how.roles.filler != "none":
            return trial
        for filler in FILLERS[1:]:
            other = self.tried(replace(how, roles=replace(how.roles, filler=filler)))
            self.trials.append(other)
            if other.exact and not other.causal:
                return other
        return trial

    def tried(self, candidate: Interpretation) -> InterpretationResult:
        """Return the better of the trials with keys of their own and with the queries as keys."""
        kinds = {1: ("self",), 2: ("cross", "self"), 3: ("distinct", "self")}
        packed = candidate.roles.packed
        square = packed is not None and packed.is_square
        asked = ("self",) if square else kinds[len(candidate.roles.rows)]
        found = [self.tried_with(candidate, inputs) for inputs in asked]
        best = max(found, key=lambda each: each.correlation)
        return next((each for each in found if each.exact), best)

    def tried_with(self, candidate: Interpretation, inputs: str) -> InterpretationResult:
        """Return the trial with one kind of inputs: "self", "cross" or "distinct"."""
        problem = trial_problem(candidate, inputs, self.dtype, self.base)
        try:
            answer = self.ask(candidate, problem)
        except CandidateError as error:
            return InterpretationResult(candidate, missed=str(error))
        if answer.output.shape != problem.output_shape:
            missed = f"the output has shape {answer.output.shape}, not {problem.output_shape}"
            return InterpretationResult(candidate, MISSHAPED, missed=missed)
        trials = [
            compared(
                candidate,
                answer.output,
                attention_in_float64(problem, causal=causal),
                causal=causal,
            )
            for causal in (False, True)
            if not causal or problem.case.queries == problem.case.keys
        ]
        best = max(trials, key=lambda each: (each.exact, each.correlation))
        return best if best.exact else _but_for_one_mistake(best, problem, answer.output)


def _call_of_layer(candidate: Interpretation) -> Interpretation:
    """Return an interpretation without the way in which its weights are filled."""
    return replace(candidate, slots=())


def _built(candidate: Interpretation) -> object:
    """Return what the constructor of a class gets; None of a function."""
    return candidate.construction and candidate.construction.meanings


def _but_for_one_mistake(
    best: InterpretationResult, problem: Problem, output: Array
) -> InterpretationResult:
    """Return a result as the nearest where one mistake after the weights explains the output.

    Output weights that are transposed or left out, exchanged keys and values, weights that two
    projections share, or heads whose axis is not moved, hide how all else is meant: no output is
    near the right one.
    """
    w_out, width = problem.w_out, problem.output_shape[-1]
    rules = (False, True)[: 1 + (problem.case.inputs == "self")]
    kinds: list[tuple[str, Problem, dict[str, str]]] = [
        (how.format(" and ".join(each)), problem, dict.fromkeys(each, how))
        for how in (UNMOVED, WIDTH_FIRST)
        for each in STEPS
        if problem.case.heads_count > 1
    ]
    if w_out is not None and w_out.shape == (width, width):
        kinds.append((TRANSPOSED, problem.replace(w_out=w_out.T), {}))
        kinds.append((UNAPPLIED, problem.replace(w_out=None, b_out=None), {}))
    if problem.key.shape == problem.value.shape:
        kinds.append((EXCHANGED, _exchanged(problem), {}))
    kinds += [(text, other, {}) for text, other in (*_sharing(problem), *_taken(problem))]
    for missed, other, wrongly in kinds:
        for causal in rules:
            if is_rounding(output, attention_in_float64(other, causal=causal, wrongly=wrongly)):
                return replace(best, correlation=1.0, causal=causal, missed=missed)
    return best


def _exchanged(problem: Problem) -> Problem:
    """Return a problem whose keys are the values of another, and its values the keys."""
    return problem.replace(
        key=problem.value, value=problem.key, w_k=problem.w_v, w_v=problem.w_k,
        b_k=problem.b_v, b_v=problem.b_k,
    )  # fmt: skip


def _sharing(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Yield the problems in which one projection has the weights and biases of another."""
    for part, other in SHARES:
        held = {
            n: (getattr(problem, f"{n}_{part}"), getattr(problem, f"{n}_{other}")) for n in "wb"
        }
        own, given = held["w"]
        if own is not None and given is not None and own.shape == given.shape:
            changed = {f"{n}_{part}": array for n, (_, array) in held.items()}
            yield SHARED.format(part, other), problem.replace(**changed)


def _taken(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Yield the problems in which keys are the values, or values the keys, without projections."""
    if problem.w_q is None and problem.key.shape == problem.value.shape:
        for part, other in (("value", "key"), ("key", "value")):
            yield TAKEN.format(other, part), problem.replace(**{part: getattr(problem, other)})


def small_case() -> Case:
    """Return the case of small problems, at the sizes that are fixed while one is tried."""
    return at_fixed_sizes(SMALL)


def trial_problem(
    candidate: Interpretation, inputs: str, dtype: str, base: Case = SMALL
) -> Problem:
    """Return the small problem that an interpretation is tried on."""
    case = base.replace(
        dtype=dtype,
        inputs=inputs,
        layout=candidate.layout,
        keys=base.queries if inputs == "self" else base.keys,
        batch=1 if candidate.layout == "unbatched" else SMALL.batch,
        kv_heads_count=int(candidate.one_kv_head),
        projection=candidate.projection,
        out_proj="general" if "out" in candidate.parts else "identity",
        bias="yes" if candidate.biased and candidate.biased == candidate.parts else "no",
    )
    if not candidate.parts:
        case = case.replace(
            form="qkv",
            projection=candidate.projection_of_case,
            inputs="cross" if inputs != "self" else "self",
        )
    if not candidate.many_heads:
        case = case.replace(heads_count=1, head_dim=SMALL.heads_count * SMALL.head_dim)
    return _made(at_fixed_sizes(case))


@lru_cache(maxsize=64)  # thousands of interpretations share some twenty problems
def _made(case: Case) -> Problem:
    return make_problem(case)


def attention_in_float64(
    problem: Problem, *, causal: bool, wrongly: Mapping[str, str] = MappingProxyType({})
) -> Array:
    """Return torch's attention on a problem without masks, computed in float64.

    ``wrongly``: how heads are "split" or "merged" otherwise: UNMOVED or WIDTH_FIRST.
    """
    case = problem.case

    def projected(rows: Array, weight: Array | None, bias: Array | None) -> Array:
        rows = rows.astype(np.float64)
        rows = rows if weight is None else rows @ weight.astype(np.float64).T
        return rows if bias is None else rows + bias.astype(np.float64)

    def heads(rows: Array) -> Array:
        if wrongly.get("split") == UNMOVED:
            return rows.reshape(case.batch, case.heads_count, -1, case.head_dim)
        if wrongly.get("split") == WIDTH_FIRST:
            split = rows.reshape(case.batch, -1, case.head_dim, case.heads_count)
            return split.transpose(0, 3, 1, 2)
        return split_heads(rows, case.heads_count)

    q = heads(projected(problem.query, problem.w_q, problem.b_q))
    k = heads(projected(problem.key, problem.w_k, problem.b_k))
    v = heads(projected(problem.value, problem.w_v, problem.b_v))
    scores = q @ k.swapaxes(-1, -2) * problem.scale
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -np.inf)
    mixed = softmax(scores) @ v
    axes = {UNMOVED: (0, 1, 2, 3), WIDTH_FIRST: (0, 2, 3, 1)}.get(
        wrongly.get("merged", ""), (0, 2, 1, 3)
    )
    merged = mixed.transpose(axes).reshape(problem.output_shape)
    return projected(merged, problem.w_out, problem.b_out)


def compared(
    candidate: Interpretation, actual: Array, expected: Array, *, causal: bool
) -> InterpretationResult:
    """Return how near an output is to attention: equal up to rounding, or how it correlates."""
    precise = actual.astype(np.float64)
    if not np.isfinite(precise).all():
        return InterpretationResult(
            candidate, NOT_FINITE, causal=causal, missed="the output is not finite"
        )
    exact = is_rounding(actual, expected)
    centred = precise - precise.mean(), expected - expected.mean()
    size = float(np.linalg.norm(centred[0]) * np.linalg.norm(centred[1]))
    correlation = float((centred[0] * centred[1]).sum()) / size if size else 0.0
    missed = f"the output correlates with attention by {correlation:.2f}"
    return InterpretationResult(candidate, correlation, exact, causal, "" if exact else missed)


def is_rounding(actual: Array, expected: Array) -> bool:
    """Return whether arrays differ in the last half of the digits at most.

    Other computations differ in the first digits, rounding in the last ones.
    """
    narrow = actual.dtype.kind == "f" and actual.dtype.itemsize < 4
    precision = np.finfo(actual.dtype if narrow else np.float32).eps  # of its constants, too
    difference = np.abs(actual.astype(np.float64) - expected)
    return bool(difference.max() <= np.sqrt(precision) * np.abs(expected).max())
