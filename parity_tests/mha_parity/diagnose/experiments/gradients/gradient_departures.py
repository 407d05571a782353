"""How the gradients of a call depart from the right ones: where, and by which factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue.gradients import with_gradients
from mha_parity.core.compare import as_float64
from mha_parity.diagnose.experiments.designs.shortest_rules import OffIndices
from mha_parity.oracle.eval_orders_vjp import VJP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem
    from mha_parity.diagnose.experiments.designs.calls import CallResult

# Gradients are sums over whole problems: half of the digits are left to their rounding.
RTOL = {"float64": 2.0**-26, "float32": 2.0**-11, "float16": 2.0**-5, "bfloat16": 2.0**-4}


@dataclass(frozen=True)
class Departure:
    """How one gradient of one call is off: where, by which factor, and what that leaves.

    ``residual`` is in units of what rounding leaves.
    """

    name: str
    off: tuple[OffIndices, ...]
    factor: float
    residual: float

    @property
    def scaled(self) -> bool:
        """Whether the factor leaves nothing but rounding."""
        return self.residual <= 1


def summed(problem: Problem, right: Answer, answer: Answer) -> dict[str, Array]:
    """Return the right gradients, with one sum where one array went in under several names."""
    expected, found = dict(right.gradients or {}), answer.gradients or {}
    for name in ("value", "key"):
        for first in ("query", "key"):
            same = getattr(problem, name) is getattr(problem, first)
            if same and first != name and name in expected and name not in found:
                with np.errstate(invalid="ignore"):  # inf - inf
                    expected[first] = expected[first] + expected.pop(name)
    return {name: problem.sum_shared_heads(name, array) for name, array in expected.items()}


def departures_of(trial: CallResult, kind: type[VJP] = VJP) -> dict[str, Departure | None]:
    """Return for each gradient how it is off from those of ``kind``; None where it is not."""
    departures: dict[str, Departure | None] = {}
    if trial.answer is None:
        return departures
    right, found = with_gradients(kind)()(trial.problem), trial.answer.gradients or {}
    for name, expected in summed(trial.problem, right, trial.answer).items():
        if name not in found or np.shape(found[name]) != expected.shape:
            departures[name] = Departure(name, (), np.nan, np.inf)
            continue
        rtol = RTOL[trial.problem.case.dtype]
        parts = zip(
            _parts(trial.problem, name, as_float64(found[name])),
            _parts(trial.problem, name, as_float64(expected)), strict=True,
        )  # fmt: skip
        for (part, one), (_, other) in parts:
            # What is 0 but for rounding has no factor: the bias of k cannot move a softmax.
            if max(np.abs(other).max(initial=0), np.abs(one).max(initial=0)) <= rtol:
                continue
            departures[part] = _departure(part, one, other, rtol)
    return departures


def _parts(problem: Problem, name: str, array: Array) -> Iterator[tuple[str, Array]]:
    """Yield arrays as (sample, head, row, column); those of in_proj are three."""
    heads = problem.num_heads
    if name.startswith("in_proj"):
        for letter, part in zip("qkv", np.split(array, 3), strict=True):
            yield f"{name}.{letter}", part.reshape(1, heads, part.shape[0] // heads, -1)
    elif name.endswith("_proj_weight"):
        yield name, array.reshape(1, heads, array.shape[0] // heads, -1)
    elif name in {"query", "key", "value"} and problem.case.form == "qkv":
        own = heads if name == "query" else problem.num_kv_heads
        yield name, array.reshape(*array.shape[:2], own, -1).swapaxes(1, 2)
    elif name == "out_proj.weight":
        yield name, array.reshape(1, len(array), heads, -1).swapaxes(1, 2)
    elif name == "attn_mask" and array.ndim == 3:
        yield name, array.reshape(-1, heads, *array.shape[1:])
    elif array.ndim == 3:
        yield name, array[:, None]
    else:
        yield name, array.reshape(1, 1, *np.atleast_2d(array).shape)


def _departure(name: str, found: Array, expected: Array, rtol: float) -> Departure | None:
    allowed = rtol * max(1.0, float(np.abs(expected).max(initial=0)))
    with np.errstate(invalid="ignore"):
        off = ~(np.abs(found - expected) <= allowed)
    if not off.any():
        return None
    spots = tuple(_along(off, axis) for axis in range(4))
    # A factor is one of the heads and samples that are off as wholes.
    whole = off.any(axis=(2, 3))
    one, other = found[whole], expected[whole]
    square = float((other * other).sum())
    factor = float((one * other).sum()) / square if square else 0.0
    residual = float(np.abs(one - factor * other).max()) if np.isfinite(factor) else np.inf
    return Departure(name, spots, factor, residual / allowed)


def _along(off: Array, axis: int) -> OffIndices:
    others = tuple(i for i in range(4) if i != axis)
    return OffIndices(off.shape[axis], frozenset(np.flatnonzero(off.any(axis=others)).tolist()))
