"""How many digits are right, and at which stage the others are rounded away.

Rounding is repeated at one stage after the other; where the errors that follow are those seen, the
stage and its dtype are known. An error is one of rounding if a change of the inputs by as little as
itself leaves nothing of its pattern; an error of a formula keeps it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.rng import numpy_dtype
from mha_parity.catalogue import Attention
from mha_parity.diagnose.experiments.designs.calls import BITS, unmixed_problem
from mha_parity.diagnose.experiments.designs.shortest_rules import (
    EVERYWHERE,
    OffIndices,
    index_rule,
)

if TYPE_CHECKING:
    from mha_parity.catalogue.plain_attention import Triple
    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.diagnose.experiments.designs.calls import Caller, CallResult

ALIKE = 0.95  # correlation of two patterns of error that have one cause
SURELY = 0.999  # correlation that no error of a formula has with the rounding of one stage
MIN_STAGE_SHARE = 0.5  # of the error seen is what one stage gives, at least
MOSTLY = 0.6  # correlation with the largest of several causes
UNLIKE = 0.6  # correlation of errors of rounding after a change as small as they are
COARSE = 2.0**-5  # relative errors above are no rounding
UNITS = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
LEAST_SHARE = 2.0**-4  # of the largest error of a head: what heads of the same rounding err by
ROUNDINGS = 4.0  # by which a stage of a narrower dtype errs
SIZES = {"batch": 2, "queries": 9, "keys": 11, "head_dim": 6, "heads_count": 3}


@dataclass(frozen=True)
class ErrorAnalysis:
    """How large the error is relative to the output, in which heads, and where it comes from."""

    error: float
    heads: str
    rounding: bool
    right: bool = False
    stage: str = ""
    dtype: str = ""
    alike: float = 0.0

    @property
    def bits(self) -> float:
        """Return how many bits are right."""
        return -math.log2(self.error) if self.error > 0 else math.inf


def error_analysis(caller: Caller, case: Case | None = None) -> ErrorAnalysis | None:
    """Return what is known of the error on plain values, or those of a case; None if unanswered."""
    many = caller.base.heads_count > 1
    sizes = SIZES if many else SIZES | {"heads_count": 1}
    problem = unmixed_problem(case or caller.case(**sizes))
    trial = caller.ask_problems([problem])[0]
    if trial.found is None:
        return None
    error = _relative(trial)
    # In float32 a stage of 16 bits errs by less than what no rounding imitates.
    errs = trial.wrong or trial.largest_error > trial.allowed
    if not errs or error > COARSE or not math.isfinite(error):
        return ErrorAnalysis(error, "", rounding=not trial.wrong, right=not trial.wrong)
    alike, stage, dtype = _stage(trial)
    if not trial.wrong and alike < ALIKE:
        return ErrorAnalysis(error, "", rounding=True, right=True)
    heads = _heads(trial) if trial.wrong else ""
    # A row sum keeps its rounding where the inputs change by less than a unit of it.
    if trial.wrong and alike < SURELY and not _is_rounding(caller, trial, error):
        return ErrorAnalysis(error, heads, rounding=False)
    return ErrorAnalysis(
        error, heads, rounding=True, stage=stage, dtype=dtype or _dtype(error), alike=alike
    )


def narrower(caller: Caller, found: ErrorAnalysis | None) -> str:
    """Return the dtype, narrower than that of the problems, whose roundings are as large; or ""."""
    if found is None or found.right or not 0 < found.error <= COARSE:
        return ""
    offered = caller.candidate.offer["dtype"]
    fits = (n for n, unit in UNITS.items() if n in offered and found.error <= ROUNDINGS * unit)
    name = next(fits, "")
    return name if BITS.get(name, 53) < BITS[caller.base.dtype] else ""


def _relative(trial: CallResult) -> float:
    height = float(np.abs(trial.expected).max(initial=0))
    error = np.abs(trial.found - trial.expected) if trial.found is not None else np.inf
    return float(np.max(error, initial=0)) / max(height, 1e-300)


def _heads(trial: CallResult) -> str:
    """Return in which heads alone the errors are: those of the others are smaller by far.

    An element may err by less than what no rounding imitates where its head errs like the rest.
    """
    if trial.found is None or trial.off.shape[1] == 1:
        return ""
    errors = np.abs(trial.found - trial.expected).max(axis=(0, 2, 3))
    off = errors > LEAST_SHARE * errors.max()
    rule = index_rule("head", [OffIndices(len(off), frozenset(np.flatnonzero(off).tolist()))])
    return "" if rule in {None, EVERYWHERE} else str(rule)


def _dtype(error: float) -> str:
    return min(UNITS, key=lambda name: abs(math.log2(error / (2 * UNITS[name]))))


def _is_rounding(caller: Caller, trial: CallResult, error: float) -> bool:
    """Return whether the error's pattern is lost when the inputs change by as much as it is."""
    rng = np.random.default_rng(7)
    problem = trial.problem
    changed: dict[int, Array] = {}
    changes: dict[str, object] = {}
    for name in ("query", "key", "value"):
        array = getattr(problem, name)
        if id(array) not in changed:
            factor = 1 + 4 * error * rng.standard_normal(array.shape)
            changed[id(array)] = (array * factor).astype(array.dtype)
        changes[name] = changed[id(array)]
    other = caller.ask_problems([problem.replace(**changes)])[0]
    if other.found is None or trial.found is None:
        return False
    first, second = trial.found - trial.expected, other.found - other.expected
    return _correlation(first[trial.off], second[trial.off]) < UNLIKE


def _correlation(first: Array, second: Array) -> float:
    a, b = first.ravel(), second.ravel()
    size = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / size if size > 0 else 0.0


class Rounded(Attention):
    """The right attention with one stage rounded to a narrower dtype."""

    stage = ""
    narrow = "float32"

    def narrowed(self, name: str, array: Array) -> Array:
        """Return the array rounded if the stage is this one."""
        if name not in self.stage.split(" and "):
            return array
        return np.asarray(array.astype(numpy_dtype(self.narrow)).astype(self.work_dtype))

    def inputs(self) -> Triple:
        """Round query, key and value."""
        query, key, value = (self.narrowed("inputs", x) for x in super().inputs())
        return query, key, value

    def project(self) -> Triple:
        """Round q, k and v."""
        q, k, v = super().project()
        return (
            self.narrowed("q", q), self.narrowed("k", k), self.narrowed("v", v)
        )  # fmt: skip

    def scores(self, q: Array, k: Array) -> Array:
        """Round the products, then the scaled scores."""
        plain = self.narrowed("q k^T", np.asarray(q @ k.swapaxes(-1, -2)))
        return self.narrowed("scores", plain * self.scale())

    def softmax(self, scores: Array) -> Array:
        """Round the exponentials, then the weights."""
        top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
        powers = self.narrowed("exponentials", self.exp(scores - top))
        sums = self.narrowed("row sums", powers.sum(axis=-1, keepdims=True))
        return self.narrowed("weights", np.asarray(powers / sums))

    def exp(self, x: Array) -> Array:
        """Round what is exponentiated."""
        return super().exp(self.narrowed("scores less their maximum", x))

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Round the output of each head."""
        return self.narrowed("P V", super().apply_weights(weights, v))


class NumeratorAlone(Rounded):
    """Rounds the exponentials that are multiplied with V, and not those of the row sums."""

    def softmax(self, scores: Array) -> Array:
        """Divide rounded exponentials by the sum of the others."""
        powers = self.exp(scores - np.max(scores, axis=-1, keepdims=True, initial=-np.inf))
        total = powers.sum(axis=-1, keepdims=True)
        return np.asarray(self.narrowed(NUMERATOR, powers) / total)


class RoundedBeforeDivision(Rounded):
    """Rounds the sums over keys before they are divided by the row sum."""

    def softmax(self, scores: Array) -> Array:
        """Return the exponentials."""
        return self.exp(scores - np.max(scores, axis=-1, keepdims=True, initial=-np.inf))

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Round, then divide."""
        total = weights.sum(axis=-1, keepdims=True)
        return np.asarray(self.narrowed("accumulator of P V", weights @ v) / total)


class KeyByKey(Rounded):
    """Adds the weighted values key by key, and rounds every partial sum."""

    def apply_weights(self, weights: Array, v: Array) -> Array:
        """Accumulate."""
        narrow = numpy_dtype(self.narrow)
        total = np.zeros((*weights.shape[:-1], v.shape[-1]), dtype=narrow)
        for j in range(v.shape[-2]):
            part = weights[..., j, None] * v[..., None, j, :]
            total = (total + part.astype(narrow)).astype(narrow)
        return np.asarray(total.astype(self.work_dtype))


class OnGrid(Rounded):
    """Rounds to multiples of a step: the largest number of each sample, row or of all, / 127."""

    numbers = 127
    axes: tuple[int, ...] | None = None

    def narrowed(self, name: str, array: Array) -> Array:
        """Return the array on the grid if the stage is this one."""
        if name not in self.stage.split(" and "):
            return array
        axes = None if self.axes is None else tuple(a for a in self.axes if -a <= array.ndim)
        step = np.abs(array).max(axis=axes, keepdims=True) / self.numbers
        return np.asarray(np.rint(array / np.where(step > 0, step, 1)) * step)


GRIDS = {
    f"a grid of {2 * numbers + 1} numbers over {part}": {"numbers": numbers, "axes": axes}
    for numbers in (127, 128, 7)
    for part, axes in (("the array", None), ("each sample", (-3, -2, -1)), ("each row", (-1,)))
}
GRID_STAGES = ("q", "k", "v", "q and k", "k and v", "q and k and v", "inputs", "weights", "P V")
NUMERATOR = "exponentials that are multiplied with V, without those of the row sums"
SOFTMAX = "scores and scores less their maximum and exponentials and row sums and weights"
STAGES = (
    "scores", "q k^T", "scores less their maximum", "exponentials", "row sums", "weights", "P V",
    "inputs", "q and k and v", "q and k", "q", "k", "v", "scores and weights", "weights and v",
    "q and k and v and scores and weights and P V", "scores and weights and P V",
    "q and k and weights and v", "inputs and P V", SOFTMAX,
    "scores and scores less their maximum and exponentials",
)  # fmt: skip


def _stage(trial: CallResult) -> tuple[float, str, str]:
    """Return the stage and dtype whose rounding gives the errors seen, or nothing."""
    if trial.found is None:
        return 0.0, "", ""
    seen = trial.found - trial.expected
    best = (MOSTLY, "", "")
    for narrow in UNITS:
        for base, names in ((Rounded, STAGES), (NumeratorAlone, (NUMERATOR,)),
                                (RoundedBeforeDivision, ("accumulator of P V",)),
                                (KeyByKey, ("sum of P V over the keys",))):  # fmt: skip
            for name in names:
                kind = type("Rounding", (base,), {"stage": name, "narrow": narrow})
                best = max(best, (_likeness(kind, trial, seen), name, narrow))
    if best[0] < ALIKE:
        for text, grid in GRIDS.items():
            for name in GRID_STAGES:
                kind = type("OnItsGrid", (OnGrid,), {"stage": name, **grid})
                best = max(best, (_likeness(kind, trial, seen), name, text), key=lambda b: b[0])
    return best


def _likeness(kind: type[Attention], trial: CallResult, seen: Array) -> float:
    """Return how alike the errors of a kind are to those seen; 0 where their size is another."""
    error = _errors(kind, trial.problem, trial)
    off = trial.off if trial.wrong else np.ones_like(trial.off)
    size = float(np.abs(error[off]).sum() / np.abs(seen[off]).sum())
    alike = _correlation(seen[off], error[off])
    return alike if MIN_STAGE_SHARE < size < 1 / MIN_STAGE_SHARE else 0.0


def _errors(kind: type[Attention], problem: Problem, trial: CallResult) -> Array:
    with np.errstate(all="ignore"):
        attention = kind(problem)
        attention.answer()
    return np.asarray(trial.by_head(attention.stages["output"]) - trial.expected)
