"""Arrays prepared for reports: attention weights, gradients, and one case in full."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.check_result import CheckResult, Place
    from mha_parity.core.problem import Problem


@dataclass(frozen=True, eq=False, kw_only=True)
class WeightsPicture:
    """Picture of one failing case on the page: the sample that holds the worst error.

    Weights are (H, L, S'), or (1, L, S') where only their average is known (``averaged``); NaN
    where the candidate's could not be had, which ``source`` explains. ``error_units`` is the
    output's error in units of the allowed error, (H, L), or (1, L) where the heads are mixed.
    """

    check: str
    case: Case
    sample: int
    averaged: bool
    source: str
    candidate_weights: Array | None
    reference_weights: Array
    error_units: Array


@dataclass(frozen=True, slots=True)
class CaseError:
    """The error of the output in one case, for the plots of a page.

    ``units`` is the error over the allowed one, ``bound`` the rounding-error bound over it.
    ``times_torch`` and ``bound`` are NaN where they were not measured.
    """

    dtype: str
    keys: int
    units: float
    times_torch: float
    fails: bool
    bound: float = math.nan


@dataclass(frozen=True, slots=True)
class MatrixAxis:
    """One side of a drawn matrix: what its numbers count, from ``first`` on, in which equal parts.

    ``blocks`` are the names of its parts, and each of these holds ``heads`` heads.
    """

    label: str
    blocks: tuple[str, ...] = ()
    heads: int = 1
    first: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class GradientMatrix:
    """A gradient of the candidate and the right one, both (rows, columns).

    ``first`` is the number of the first column in the whole array.
    """

    name: str
    candidate: Array
    reference: Array
    first: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class GradientPicture:
    """Picture of one failing gradient on the page, the plate with the worst error first.

    There is a plate per head where the heads' gradients are arrays of their own, else one. Of
    inputs and masks they are those of ``sample``, which holds the worst error; it is negative
    elsewhere.
    ``error_units`` is the largest error of each group in units of the allowed error, and
    ``unit_rows`` and ``unit_columns`` name its rows and columns.
    """

    check: str
    case: Case
    sample: int
    gradient_matrices: tuple[GradientMatrix, ...]
    rows: MatrixAxis
    columns: MatrixAxis
    error_units: Array
    unit_rows: tuple[str, ...]
    unit_columns: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """The target's and torch's matrix around the worst error, float64, of one shape.

    ``worst`` is the place of that error in the matrices, ``where`` its place in the whole arrays.
    """

    title: str
    actual: Array
    expected: Array
    worst: tuple[int, int]
    fails: bool
    where: Place

    @property
    def difference(self) -> Array:
        """Return target − torch."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.actual - self.expected)


@dataclass(frozen=True, eq=False, kw_only=True)
class CaseDetail:
    """One case as ``replay`` prints it.

    ``error_units`` are the output's errors over the allowed ones, (N, L, G, W) with G groups of
    heads; None where the answer has another shape. ``call`` is the target's call as Python,
    ``compared`` the names of failed checks, each with the calls that a finding of it compares.
    """

    case: Case
    check_results: tuple[CheckResult, ...]
    inconclusive: bool
    problem: Problem | None = None
    comparison: Comparison | None = None
    error_units: Array | None = None
    call: str = ""
    compared: tuple[tuple[str, str], ...] = ()
