"""Whether the answers are right but for the order of the output's axes, or for those of size 1."""

from __future__ import annotations

import dataclasses
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue import Attention, catalogue
from mha_parity.core.compare import as_float64
from mha_parity.core.verdict import Diagnosis
from mha_parity.diagnose.evidence import TELLING, Observation
from mha_parity.oracle.error_bound import roundoff

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.core.arrays import Array

AXES = ("samples", "rows", "columns")
LONGEST, SHOWN = 64, 8  # rows of an answer that are compared, and of an order that are said
RIGHT, *ORDERS = permutations(range(len(AXES)))


def name_axis_order(seen: Sequence[Observation]) -> tuple[Diagnosis, ...]:
    """Return in which order the axes of the output come, where that alone is wrong everywhere."""
    wrong = [each for each in seen if each.failing and each.answer is not None]
    if not wrong or any(_is_right_in(each, RIGHT) for each in wrong):  # a matter of digits
        return ()
    # About rows that see no key torch disagrees with itself.
    if lost := _lost_axes([o for o in wrong if not o.problem.masked_rows().any()]):
        return (lost,)
    for order in ORDERS:
        if all(_is_right_in(each, order) for each in wrong):
            came = ", ".join(AXES[axis] for axis in order)
            return (
                Diagnosis(
                    bug=None,
                    title=f"the axes of the output are {came}, expected {', '.join(AXES)}",
                    remedy="put the axes of the output back in the order of the query's, on every "
                    "path that returns",
                    explains=1.0,
                    confident=True,
                    evidence=f"in this order all {len(wrong)} failing answers compared are right",
                ),
            )
    moved = _rows_in_another_order([o for o in wrong if not o.problem.masked_rows().any()])
    return (moved,) if moved else ()


def _rows_in_another_order(wrong: Sequence[Observation]) -> Diagnosis | None:
    """Return which rows of its sample the rows of an output are, where each is one of these.

    The shortest one of which each row is a single one is said: rows may be alike.
    """
    shorter = [each for each in wrong if each.problem.case.queries <= LONGEST]
    found = [_rows_answered(each) for each in shorter]
    if not found or any(alike is None for alike in found):
        return None
    single = [rows.argmax(axis=1) for rows in found if rows is not None and _is_order(rows)]
    orders = [order for order in single if order.tolist() != sorted(order)]
    if not orders:
        return None
    order = min(orders, key=len)
    came = f"{', '.join(map(str, order[:SHOWN]))}{', …' * (len(order) > SHOWN)}"
    return Diagnosis(
        bug=None,
        title=f"the rows of the output stand in another order: of {len(order)} come {came}, "
        "expected 0, 1, 2, and so on",
        remedy="put the rows of the output back in the order of the query's: look at reshapes that "
        "part the axis of rows, or exchange two axes that it was made of",
        explains=1.0,
        confident=True,
        evidence=f"each row of all {len(shorter)} failing answers compared is that of another row",
    )


def _rows_answered(each: Observation) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]] | None:
    """Return which rows of the right output each row of an answer is, in all samples alike.

    None where one is none of them, or stands for another in one sample alone.
    """
    expected = each.of(Attention).answer
    if each.answer is None or expected is None:
        return None
    found, right = as_float64(each.answer.output), as_float64(expected.output)
    if found.shape != right.shape or not (np.isfinite(found).all() and np.isfinite(right).all()):
        return None
    allowed = float(np.sqrt(roundoff(each.problem.dtype))) * np.abs(right).max(initial=0)
    by_row = (np.abs(row[:, None] - right).max(axis=-1, initial=0) for row in found.swapaxes(0, 1))
    alike = np.array([(differences <= allowed).all(axis=0) for differences in by_row])
    return alike if alike.any(axis=0).all() and alike.any(axis=1).all() else None


def _is_order(alike: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> bool:
    """Return whether each row is one other, and no two are the same."""
    return bool((alike.sum(axis=0) == 1).all() and (alike.sum(axis=1) == 1).all())


def _lost_axes(wrong: Sequence[Observation]) -> Diagnosis | None:
    """Return which axes every answer lacks where they have one element, if it is right else."""
    found = [_lacking(each) for each in wrong]
    if not found or not all(lost for _, lost in found):
        return None
    ones = [axes for axes, _ in found]
    whole = all(len(axes) == lost for axes, lost in found)  # each lacks all that it could
    axes = set.union(*ones) if whole else set.intersection(*ones)
    if not axes:
        return None
    known = catalogue()["squeeze-l1"]
    named = [AXES[axis] for axis in sorted(axes)]
    which = f"the axis of {' and that of '.join(named)}" if whole or len(axes) == 1 else (
        f"one axis of {' or '.join(named)}"
    )  # fmt: skip
    return Diagnosis(
        bug=known.id if whole else None,
        title=f"the output lacks {which} where it has one element",
        remedy=known.remedy,
        explains=1.0,
        confident=True,
        evidence=f"with the axes put back all {len(wrong)} failing answers compared are right",
    )


def _lacking(each: Observation) -> tuple[set[int], int]:
    """Return the axes of one element, and of how many of them an answer lacks.

    Of none where the answer is another one besides.
    """
    expected = each.of(Attention).answer
    if each.answer is None or expected is None:
        return set(), 0
    shape, right = each.answer.output.shape, expected.output.shape
    ones, lost = {axis for axis, size in enumerate(right) if size == 1}, len(right) - len(shape)
    longer = ([size for size in sizes if size != 1] for sizes in (shape, right))
    if not 0 < lost <= len(ones) or next(longer) != next(longer):
        return set(), 0
    answer = dataclasses.replace(each.answer, output=each.answer.output.reshape(right))
    whole = Observation(each.problem, answer, failing=True)
    return (ones, lost) if whole.error_in_tolerances <= TELLING else (set(), 0)


def _is_right_in(each: Observation, order: tuple[int, ...]) -> bool:
    """Return whether an answer is torch's with its axes in another order, up to rounding."""
    expected = each.of(Attention).answer
    if each.answer is None or expected is None:
        return False
    found = as_float64(each.answer.output)
    right = np.transpose(as_float64(expected.output), order)
    if found.shape != right.shape:
        return False
    return _differ_by_rounding(found, right, float(np.sqrt(roundoff(each.problem.dtype))))


def _differ_by_rounding(found: Array, right: Array, share: float) -> bool:
    """Return whether arrays are equal in the first half of the digits, NaN as NaN."""
    numbers = np.isfinite(right) & np.isfinite(found)
    largest = np.abs(right[numbers]).max(initial=0)
    with np.errstate(over="ignore"):  # numbers near the largest, of opposite signs
        error = np.abs(found[numbers] - right[numbers]).max(initial=0)
    return bool((np.isnan(found) == np.isnan(right)).all() and error <= share * largest)
