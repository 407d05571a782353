"""Judge gradients by reference, order spread and bound, group by group.

The candidate gives the vector-Jacobian product with ``making.cotangent(problem)``: random numbers,
because ones make the gradient of V the same in all features and hide what permutes them.

A row that sees no key makes all of torch's gradients NaN on the pinned path (pytorch#41508). The
reference leaves such a row out, and a candidate that does as torch is named, not failed. Where its
output is the mean of the values there, or made of them otherwise, gradients flow through that: they
are not judged.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import cotangent
from mha_parity.core.check_result import CheckResult, Severity
from mha_parity.core.compare import in_unlike_digits
from mha_parity.core.features import EXTREME_VALUES
from mha_parity.core.problem import INPUTS, Problem
from mha_parity.judging.gradient_groups import gradient_place, group_rows, worst_index
from mha_parity.judging.nonfinite import OTHER, policies_of, reference_under
from mha_parity.judging.output import (
    DEFAULT_SETTINGS,
    INCONCLUSIVE_SHARE,
    ROUNDINGS,
    JudgeSettings,
)
from mha_parity.judging.output_groups import judged_array
from mha_parity.judging.shape_and_dtype import structure_error
from mha_parity.oracle.error_bound import error_model, roundoff, smallest_number
from mha_parity.oracle.eval_orders import EVAL_ORDERS, NARROW, Prepared
from mha_parity.oracle.eval_orders_vjp import pull_back
from mha_parity.oracle.reference import EXTENDED
from mha_parity.oracle.reference_gradients import ReferenceGradient, reference_gradients

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.options import Policy
    from mha_parity.oracle.eval_orders import EvalOrder
    from mha_parity.oracle.reference import Reference

CHECK = "gradient of "
MASKS = frozenset({"key_padding_mask", "attn_mask"})
PAST_RANGE = "rounding can carry a gradient past the range of the dtype: nothing is proved there."
POISONED = "NaN from rows that see no key, as torch has it (pytorch#41508)."


def judge_gradients(
    problem: Problem,
    reference: Reference,
    answer: Answer,
    settings: JudgeSettings = DEFAULT_SETTINGS,
) -> list[CheckResult]:
    """Return one check result for every gradient that the problem has; none for empty problems.

    Where one array is passed as query, key or value at once, its gradient may come under the first
    of its names, summed, as autograd has it. Those of masks may be left out where ``settings`` say.
    """
    if (
        not reference.output.size
        or not reference.weights.shape[-1]
        or _poisoned(problem, reference)
        or _spreads_masked_rows(problem, reference, answer)
    ):
        return []
    found = answer.gradients or {}
    order_spread = _OrderSpread(problem, _shared(problem, found))
    return [
        _GradientJudge(problem, name, each, order_spread, settings).judged(found.get(name))
        for name, each in expected_gradients(problem, reference, answer).items()
        if name in found or name not in MASKS or settings.mask_gradients
    ]


def _spreads_masked_rows(problem: Problem, reference: Reference, answer: Answer) -> bool:
    """Return whether rows that see no key may be made of values: of their mean, or of any.

    Their mean is no farther than zeros. They are neither where a large finite number that is added
    leaves some digits of the scores.
    """
    rows = np.asarray(problem.masked_rows().any(axis=1))
    if not rows.any() or answer.output.shape != reference.output.shape:
        return False
    judged = judged_array("output", problem, reference)
    if policies_of(problem, reference, judged, answer.output) == (OTHER,):
        return True
    found = answer.output.astype(reference.output.dtype)[rows]
    policies: tuple[Policy, ...] = ("uniform", "zero")
    uniform, zero = (
        float(np.abs(found - reference_under(problem, reference, each).output[rows]).max())
        for each in policies
    )
    return uniform <= zero


def gradient_units(
    problem: Problem, reference: Reference, answer: Answer, name: str, settings: JudgeSettings
) -> Array:
    """Return the largest error of one gradient in units of the allowed one, a number per group.

    Infinite where the answer alone is not finite. The groups are those of ``gradient_places``.
    """
    found = answer.gradients or {}
    order_spread = _OrderSpread(problem, _shared(problem, found))
    judge = _GradientJudge(
        problem, name, expected_gradients(problem, reference, answer)[name], order_spread, settings
    )
    return judge.units(found[name])


def expected_gradients(
    problem: Problem, reference: Reference, answer: Answer
) -> dict[str, ReferenceGradient]:
    """Return the reference gradients under the names by which an answer is to have them."""
    shared = _shared(problem, answer.gradients or {})
    right = _summed(problem, reference_gradients(problem, reference), shared)
    return {name: _of_shared_heads(problem, name, each) for name, each in right.items()}


def _of_shared_heads(problem: Problem, name: str, right: ReferenceGradient) -> ReferenceGradient:
    """Return the reference with the sum over the heads that share a key head's weights."""
    value = problem.sum_shared_heads(name, right.value)
    if value is right.value:
        return right
    reach = problem.sum_shared_heads(name, np.abs(right.value).astype(np.float64) + right.limit)
    heads = {"shared": problem.num_heads, "by_head": 1}.get(problem.case.projection)
    added = (heads or problem.num_heads // problem.case.kv_heads_count) - 1
    made = error_model(problem.dtype).error_factor(added, 1) * reach
    return ReferenceGradient(value, problem.sum_shared_heads(name, right.limit) + made)


def _poisoned(problem: Problem, reference: Reference) -> bool:
    """Return whether NaN or infinity went in, or came out of rows that see a key."""
    inputs = (getattr(problem, name).astype(float) for name in INPUTS)
    unseen = np.asarray(problem.masked_rows())
    if problem.case.regime in EXTREME_VALUES:  # dO V^T of the largest number passes the range
        return True
    heads = np.isfinite(reference.heads).all(axis=-1) | unseen
    return not (heads.all() and all(np.isfinite(array).all() for array in inputs))


def _shared(problem: Problem, found: Mapping[str, Array]) -> tuple[str, ...]:
    """Return the names under which one array went in, where its gradient came as one sum."""
    for first in ("query", "key"):
        array = getattr(problem, first)
        names = tuple(name for name in INPUTS if getattr(problem, name) is array)
        if len(names) > 1 and names[0] in found and not found.keys() & set(names[1:]):
            return names
    return ()


def _summed(
    problem: Problem, right: dict[str, ReferenceGradient], shared: tuple[str, ...]
) -> dict[str, ReferenceGradient]:
    """Return the reference with the sum of the shared gradients under the first of their names."""
    if not shared:
        return right
    parts = [right[name] for name in shared]
    reach = sum(np.abs(part.value).astype(np.float64) + part.limit for part in parts)
    made = error_model(problem.dtype).error_factor(len(parts) - 1, 1) * np.asarray(reach)
    limit = np.asarray(sum(part.limit for part in parts) + made)
    total = ReferenceGradient(np.asarray(sum(part.value for part in parts)), limit)
    kept = {name: each for name, each in right.items() if name not in shared}
    return {shared[0]: total} | kept


def is_zero_gradient(problem: Problem, scale: Array, limit: Array) -> Array:
    """Return where a gradient is 0 in exact arithmetic: its reference is rounding noise.

    The key bias has none, by the shift invariance of softmax. ``limit`` is in the problem's dtype.
    """
    precise = np.finfo(EXTENDED if problem.dtype == np.float64 else np.float64).eps
    return np.asarray(scale <= limit * float(precise / error_model(problem.dtype).sums))


class _OrderSpread:
    """The gradients in legitimate orders, computed as they are needed."""

    def __init__(self, problem: Problem, shared: tuple[str, ...]) -> None:
        self._prepared = Prepared(problem)
        self._given = cotangent(problem)
        self._shared = shared
        self._found: list[dict[str, Array]] = []

    def __iter__(self) -> Iterator[dict[str, Array]]:
        for index, order in enumerate(EVAL_ORDERS):
            if index == len(self._found):
                self._found.append(self._gradients(order))
            yield self._found[index]

    @cached_property
    def narrow(self) -> dict[str, Array]:
        """The gradients in an order that sums in 16 bits, as arrays of such a dtype do."""
        return self._gradients(NARROW)

    def _gradients(self, order: EvalOrder) -> dict[str, Array]:
        found = pull_back(self._prepared, order, self._given)
        if self._shared:
            found[self._shared[0]] = self._rounded(sum(found[n] for n in self._shared))
        problem = self._prepared.problem
        return {name: problem.sum_shared_heads(name, each) for name, each in found.items()}

    def _rounded(self, total: object) -> Array:
        return np.asarray(total).astype(self._prepared.problem.dtype)


class _GradientJudge:
    """One gradient before the judge."""

    def __init__(
        self,
        problem: Problem,
        name: str,
        right: ReferenceGradient,
        order_spread: _OrderSpread,
        settings: JudgeSettings,
    ) -> None:
        self.problem = problem
        self.name = name
        self.right = right
        self.order_spread = order_spread
        self.settings = settings
        self.scale = self._worst(right.value)
        self.zero = is_zero_gradient(problem, self.scale, self._worst(right.limit))
        self.rounding = roundoff(problem.dtype) * self.scale + smallest_number(problem.dtype)

    def judged(self, found: Array | None) -> CheckResult:
        """Judge structure, then NaN and infinity, then numbers."""
        flaw = structure_error(CHECK + self.name, self.right.value.shape, self.problem.dtype, found)
        if flaw or found is None:
            return self._check_result(Severity.STRUCTURE, detail=flaw)
        precise = found.astype(self.right.value.dtype)
        # Rows that are 0 by their documentation have gradients of 0, and no NaN of a 0 / 0.
        excused = np.asarray(self.problem.masked_rows()).any() and not self.settings.promised
        poisoned = np.isnan(precise) & excused
        overflown = self._overflown(precise)
        past = self._rounded_past_range(precise) & ~overflown
        excepted = poisoned | overflown | past
        lost = ~np.isfinite(precise) & ~excepted
        if lost.any():
            return self._no_number(precise, lost)
        check_result = self._numbers(np.where(excepted, self.right.value, precise))
        if check_result.severity.fails:
            return check_result
        if past.any():
            return replace(check_result, severity=Severity.INCONCLUSIVE, detail=PAST_RANGE)
        return replace(check_result, detail=POISONED) if poisoned.any() else check_result

    def units(self, found: Array) -> Array:
        """Return the error of each group over the allowed one."""
        precise = found.astype(self.right.value.dtype)
        with np.errstate(all="ignore"):
            error = self._worst(np.nan_to_num(precise - self.right.value, nan=np.inf))
            return np.asarray(error / self._allowed(error))

    def _overflown(self, found: Array) -> Array:
        """Return where a gradient is infinite because the right one is too large for the dtype."""
        with np.errstate(over="ignore"):
            stored = self.right.value.astype(self.problem.dtype).astype(np.float64)
        return np.asarray(np.isinf(stored) & (found == stored))

    def _rounded_past_range(self, found: Array) -> Array:
        """Return where a gradient is infinite, and rounding alone may have made it so."""
        with np.errstate(over="ignore", invalid="ignore"):
            reach = self.right.value.astype(np.float64) + np.sign(found) * self.right.limit
            farthest = reach.astype(self.problem.dtype).astype(np.float64)
        return np.asarray(np.isinf(found) & (farthest == found))

    def _no_number(self, found: Array, lost: Array) -> CheckResult:
        """Judge a gradient that has NaN or infinity where a number should be."""
        first = np.unravel_index(int(lost.argmax()), found.shape)
        index = tuple(int(i) for i in first)
        return self._check_result(
            Severity.WRONG,
            error=float("inf"),
            where=gradient_place(self.problem, self.name, index),
            detail=f"{self._found(found, index)}.",
        )

    def _numbers(self, found: Array) -> CheckResult:
        difference = np.abs(found - self.right.value).astype(np.float64)
        error = self._worst(difference)
        allowed = self._allowed(error)
        severity = self._severity(difference, error, allowed)
        if not difference.size:
            return self._check_result(severity)
        with np.errstate(over="ignore"):  # of a gradient of 0 next to nothing is allowed
            factor = error / allowed
        group = int(factor.argmax())
        index = worst_index(self.problem, self.name, group, difference)
        details = {
            Severity.WRONG: f"{self._found(found, index)}; no rounding explains it.",
            Severity.LESS_ACCURATE: (f"{factor[group]:.3g} times what is allowed as a match."),
            Severity.INCONCLUSIVE: (
                "an error of more than a tenth of the gradient can be rounding here."
            ),
        }
        return self._check_result(
            severity,
            error=float(error[group]),
            allowed=float(allowed[group]),
            where=gradient_place(self.problem, self.name, index),
            detail=details.get(severity, ""),
        )

    def _allowed(self, error: Array) -> Array:
        """Return what is allowed in each group, by as many orders as it takes.

        What is 0 in exact arithmetic is noise in every answer: all that rounding explains.
        """
        floor = ROUNDINGS * self.rounding
        if self.settings.brief:
            # No order errs by more than the bound, but for those that sum in 16 bits.
            with np.errstate(over="ignore"):  # of a bound near the largest number there is none
                limit = self.settings.k * self._worst(self.right.limit) + floor
            gross = (error > limit).any() and (error > self._by_narrow_sums(limit)).any()
            if gross:
                return np.asarray(limit)
        allowed, spread = floor, np.zeros(error.shape)
        for order in self.order_spread:
            spread = np.maximum(spread, self._off(order))
            allowed = self.settings.k * spread + floor
            allowed = np.where(
                self.zero, np.maximum(allowed, self._worst(self.right.limit)), allowed
            )
            if (error <= allowed).all():
                break
        return np.asarray(allowed)

    def _severity(self, difference: Array, error: Array, allowed: Array) -> Severity:
        void = bool(((error > INCONCLUSIVE_SHARE * self.scale) & ~self.zero).any())
        if (error <= allowed).all():
            return Severity.INCONCLUSIVE if void else Severity.MATCH
        beyond = self._worst(np.where(difference > self.right.limit, difference, 0))
        if (beyond > self._by_narrow_sums(allowed)).any():
            return Severity.WRONG
        return Severity.INCONCLUSIVE if void else Severity.LESS_ACCURATE

    def _by_narrow_sums(self, allowed: Array) -> Array:
        """Return what an order that sums in 16 bits allows in each group; 0 for wider dtypes."""
        if self.problem.dtype.itemsize > 2:
            return np.zeros(allowed.shape)
        off = self._off(self.order_spread.narrow)
        return np.asarray(np.maximum(allowed, self.settings.k * off + ROUNDINGS * self.rounding))

    def _off(self, order: Mapping[str, Array]) -> Array:
        """Return the largest error of an order in each group, where that is finite."""
        off = self._worst(
            np.abs(order[self.name].astype(self.right.value.dtype) - self.right.value)
        )
        return np.asarray(np.where(np.isfinite(off), off, 0))

    def _found(self, found: Array, index: tuple[int, ...]) -> str:
        """Say what was got and what should be."""
        shown, wanted = in_unlike_digits(float(found[index]), float(self.right.value[index]))
        place = gradient_place(self.problem, self.name, index)
        return f"gradient of {self.name} is {shown} at {place}, but should be {wanted}"

    def _check_result(self, severity: Severity, **rest: object) -> CheckResult:
        check = CHECK + self.name
        return CheckResult(case=self.problem.case, check=check, severity=severity, **rest)  # type: ignore[arg-type]  # fields vary in type

    def _worst(self, array: Array) -> Array:
        """Return the largest magnitude in each group."""
        rows = group_rows(self.problem, self.name, np.abs(array))
        return np.asarray(rows.max(axis=1, initial=0), dtype=np.float64)
