"""The verdict on one answer: structure, then NaN and infinity, then numbers.

Numbers are judged per sample and head. Within k times what the worst legitimate order does to the
same problem, plus two roundings of the gold: a match. Beyond that, but within what rounding can do
to any right computation (``bound``): less accurate, by a factor that is said. Beyond the bound no
rounding explains the difference: wrong. Where an error of more than a tenth of the gold's own
scale can still be rounding, nothing can be said: inconclusive.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from mha_parity import accuracy, nonfinite
from mha_parity.bound import bound, machine
from mha_parity.judgement import Judgement, Severity
from mha_parity.quantity import Quantity, quantity
from mha_parity.yardstick import Yardstick

if TYPE_CHECKING:
    from mha_parity.candidate import Answer
    from mha_parity.gold import Gold
    from mha_parity.nonfinite import Policy
    from mha_parity.problem import Problem
    from mha_parity.values import Array

K = 4.0  # how much more than the worst order is allowed; see ``calibrate``
ROUNDINGS = 2
VOID = 0.1  # of the gold's scale: an error as large proves nothing, for or against


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the judge may be told: k, and two demands that go beyond being right."""

    k: float = K
    max_times_torch: float | None = None
    fully_masked: Policy | None = None


IN_FORCE = Settings()


def judge(
    problem: Problem,
    gold: Gold,
    answer: Answer,
    settings: Settings = IN_FORCE,
) -> list[Judgement]:
    """Return the judgements on output and weights, and on rows that see no key."""
    bench = _Bench(problem, gold, answer, settings)
    found = bench.judged("output", answer.output)
    wanted = problem.case.weights
    if wanted != "none":
        name = "weights" if wanted == "per_head" else "averaged"
        found += bench.judged(name, answer.weights)
    return found


class _Bench:
    """One answer before the judge; what both of its quantities need is computed once."""

    def __init__(self, problem: Problem, gold: Gold, answer: Answer, settings: Settings) -> None:
        self.problem = problem
        self.gold = gold
        self.answer = answer
        self.settings = settings
        self.yardstick = Yardstick.of(problem, gold)
        self.poisoned = not np.isfinite(gold.output).all() and nonfinite.poisoned(problem)

    def judged(self, name: str, found: Array | None) -> list[Judgement]:
        """Judge one quantity."""
        judged = quantity(name, self.problem, self.gold)
        check = "output" if name == "output" else "weights"
        flaw = structure(check, judged.gold.shape, self.problem.dtype, found)
        if flaw or found is None:
            return [self._judgement(check, Severity.STRUCTURE, detail=flaw)]
        if self.poisoned and nonfinite.sanitises(self.clean, judged, found):
            return self._sanitised(name, found)
        apart = nonfinite.masked_places(self.problem, judged)
        apart = apart | nonfinite.leaked(self.problem, judged, found)
        judgements = self._policies(check, judged, found)
        places = nonfinite.mismatch(judged, found, apart)
        if places.any():
            return [*judgements, self._misplaced(check, judged, found, places)]
        apart |= nonfinite.overflows(judged, found)
        judged = replace(judged, gold=np.where(apart, np.nan, judged.gold))
        return [*judgements, self._numbers(check, judged, found)]

    @cached_property
    def clean(self) -> tuple[Problem, Gold]:
        """The problem without NaN and infinity behind its masks, and its gold."""
        return nonfinite.sanitised(self.problem, self.gold)

    def _sanitised(self, name: str, found: Array) -> list[Judgement]:
        """Judge by the problem without the poison, and say so."""
        bench = _Bench(*self.clean, self.answer, self.settings)
        *judgements, last = bench.judged(name, found)
        return [*judgements, replace(last, detail=f"{last.detail} {_SANITISES}".lstrip())]

    def _judgement(self, check: str, severity: Severity, **rest: object) -> Judgement:
        return Judgement(case=self.problem.case, check=check, severity=severity, **rest)  # type: ignore[arg-type]  # fields vary in type

    def _policies(self, check: str, judged: Quantity, found: Array) -> list[Judgement]:
        """Name what the candidate has in rows that see no key, where there are any."""
        policy = nonfinite.policy_of(self.problem, self.gold, judged, found)
        if policy is None:
            return []
        wanted = self.settings.fully_masked
        fails = wanted is not None and policy != wanted
        but = f", but should be {wanted}" if fails else ""
        sentence = f"{check}: rows that see no key are {policy}{but}."
        severity = Severity.WRONG if fails else Severity.MATCH
        return [self._judgement("fully masked rows", severity, detail=sentence)]

    def _misplaced(self, check: str, judged: Quantity, found: Array, places: Array) -> Judgement:
        """Judge an answer whose NaN and infinity stand elsewhere than the gold's."""
        where = judged.place(places.astype(np.float64))
        index = np.unravel_index(int(places.argmax()), places.shape)
        sentence = (
            f"{check} is {float(found[index])} at {where}, but should be "
            f"{float(judged.gold[index]):.6g}; {int(places.sum())} such places."
        )
        lost = self.yardstick.lost(judged)
        severity = Severity.INCONCLUSIVE if not (places & ~lost).any() else Severity.WRONG
        return self._judgement(check, severity, error=float("inf"), where=where, detail=sentence)

    def _numbers(self, check: str, judged: Quantity, found: Array) -> Judgement:
        """Judge finite numbers; the gold is NaN where there is nothing to compare."""
        difference = np.abs(judged.difference(found))
        error = judged.worst(difference)
        allowed = ROUNDINGS * judged.rounding
        for yard in self.yardstick.errors(judged):
            allowed = self.settings.k * yard + ROUNDINGS * judged.rounding
            if (error <= allowed).all():
                break
        units = difference / judged.spread(allowed)
        numbers: dict[str, object] = {}
        if units.size:
            group = np.unravel_index(int((error / allowed).argmax()), error.shape)
            numbers = {
                "error": float(error[group]),
                "allowed": float(allowed[group]),
                "where": judged.place(units),
            }
        void = (error > VOID * judged.scale) & (judged.scale > 0)
        if (error <= allowed).all():
            severity = Severity.INCONCLUSIVE if void.any() else Severity.MATCH
            detail = _VOID if void.any() else ""
            return self._beside_torch(self._judgement(check, severity, detail=detail, **numbers))
        if (self._unexplained(judged, difference, error)).any():
            detail = f"{_found(judged, found, units)}; no rounding explains it."
            return self._judgement(check, Severity.WRONG, detail=detail, **numbers)
        if void.any():
            return self._judgement(check, Severity.INCONCLUSIVE, detail=_VOID, **numbers)
        return self._beside_torch(self._judgement(check, Severity.LESS_ACCURATE, **numbers))

    def _unexplained(self, judged: Quantity, difference: Array, error: Array) -> Array:
        """Return the groups with an error that no rounding explains."""
        limits = bound(self.problem, self.gold)
        limit = judged.of(limits.output, limits.weights)
        if judged.name == "averaged":
            limit = limit + machine(self.problem.dtype).factor(self.problem.num_heads, 1) * (
                judged.gold + limit
            )
        beyond = judged.worst(np.where(judged.finite & (difference > limit), 1.0, 0.0)) > 0
        narrow = self.yardstick.narrow(judged)
        return np.asarray(beyond & (error > self.settings.k * narrow + ROUNDINGS * judged.rounding))

    def _beside_torch(self, judgement: Judgement) -> Judgement:
        """Say the factor to torch's own error where it is asked for, or where it is the news."""
        most = self.settings.max_times_torch
        less = judgement.severity is Severity.LESS_ACCURATE
        if judgement.check != "output" or not (less or most is not None):
            if less:
                units = judgement.error / judgement.allowed
                return replace(judgement, detail=f"{units:.3g} times what is allowed as a match.")
            return judgement
        times = accuracy.times_torch(self.problem, self.gold, self.answer.output)
        detail = f"the error is {times:.3g} times torch's own."
        if most is not None and times > most:
            detail = f"the error is {times:.3g} times torch's own, but should be at most {most:g}."
            return replace(judgement, severity=Severity.WRONG, times_torch=times, detail=detail)
        return replace(judgement, times_torch=times, detail=detail if less else judgement.detail)


_SANITISES = "It sanitises NaN and infinity behind masks; torch does not."
_VOID = "an error of more than a tenth of the answer can be rounding here: nothing is proved."


def _found(judged: Quantity, found: Array, units: Array) -> str:
    """Say what was got and what should be at the worst place."""
    index = np.unravel_index(int(units.argmax()), units.shape)
    name = "output" if judged.name == "output" else "weights"
    return (
        f"{name} is {float(found[index]):.9g} at {judged.place(units)}, but should be "
        f"{float(judged.gold[index]):.9g}"
    )


def structure(
    check: str, shape: tuple[int, ...], dtype: np.dtype[np.generic], found: object
) -> str:
    """Return what is wrong with the kind of an answer, or an empty sentence."""
    if found is None:
        return f"{check} is missing, but an array of shape {shape} should be returned."
    if not isinstance(found, np.ndarray):
        return f"{check} is of type {type(found).__name__}, but should be an array."
    if found.shape != shape:
        return f"{check} has the shape {found.shape}, but should have {shape}."
    if found.dtype != dtype:
        return f"{check} has the dtype {found.dtype}, but should have {dtype} as the inputs do."
    return ""
