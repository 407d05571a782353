"""One head of a layer that is built with a width of the input and one of the head: E = 2 D.

Torch's layer of one head has E = D. It is a layer of wider inputs too: with zeros behind each row,
and weights that are 0 there. What a head divides by the root of is then D, and no longer E as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.targets.calls import problem_weights
from mha_parity.targets.layers import weights
from mha_parity.targets.layers.module_constants import globals_read

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.interpretations.interpretation import Interpretation

TIMES = 2  # widths of the head that the input has


def may_widen(how: Interpretation, kind: type) -> bool:
    """Return whether a layer of one head is built with both widths, and its rows are plain ones.

    That of the input may be a number of its module.
    """
    made = how.construction
    changed = how.around or how.residual or how.full_width or how.convolved
    if made is None or how.many_heads or changed or not how.parts or how.arrangement != "rows":
        return False
    of_input = made.has("width") or "width" in dict(globals_read(kind)).values()
    return of_input and made.has("head_dim") and not made.has("heads")


def wider_sizes(problem: Problem) -> dict[str, int]:
    """Return the sizes of heads, of the width of one, and of the input."""
    sizes = weights.sizes_of(problem)
    return sizes | {"e": TIMES * sizes["e"]}


def with_zeros(problem: Problem, rows: Array) -> Array:
    """Return inputs (..., E) with zeros up to the layer's width."""
    lacking = (TIMES - 1) * problem.query.shape[-1]
    return np.pad(rows, [*[(0, 0)] * (rows.ndim - 1), (0, lacking)])


def without_zeros(problem: Problem, output: Array) -> Array:
    """Return an output of an output projection (..., E) without the columns of those zeros."""
    width = problem.query.shape[-1]
    return output[..., :width] if output.shape[-1] == TIMES * width else output


def wider_arrays(problem: Problem, *, bias: bool) -> dict[str, Array]:
    """Return weights or biases by part, those of the input's further columns 0."""
    lacking = (TIMES - 1) * problem.query.shape[-1]
    found = {}
    for part, array in problem_weights.arrays_of(problem, bias=bias).items():
        further = [(0, 0)] * array.ndim
        if part == "out":
            further[0] = (0, lacking)
        elif not bias:
            further[-1] = (0, lacking)
        found[part] = np.pad(array, further)
    return found
