"""The result of one reproducer of an inconsistency of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_torch.plain import Array


@dataclass(frozen=True, slots=True)
class Evidence:
    """Whether the inconsistency showed, and the numbers that say so."""

    differs: bool
    numbers: Mapping[str, float]


def nan_share(array: Array) -> float:
    """Return the share of NaN among the elements."""
    return float(np.isnan(array).mean())


def largest(array: Array) -> float:
    """Return the largest magnitude; NaN where there is one."""
    return float(np.abs(array).max())


def largest_difference(first: Array, second: Array) -> float:
    """Return the largest difference of two answers in float64."""
    return largest(np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64))
