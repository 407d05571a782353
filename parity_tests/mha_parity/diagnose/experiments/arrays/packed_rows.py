"""Sequences that lie behind one another in one array, whose rows are counted to others.

The samples of a problem are such sequences. Each rule of which sequence a row belongs to gives an
output of its own; where one gives all wrong outputs, it is the bug.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.arrays import softmax
from mha_parity.core.problem import INPUTS
from mha_parity.diagnose.experiments.designs.calls import WRONG

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.designs.calls import CallResult

REMEDY = (
    "number rows by the starts that are not beyond them: searchsorted(starts, row, right=True) - 1,"
    " or repeat_interleave by the lengths"
)
# What the number of a row's sequence may be, of the right numbers of all rows.
NUMBERS: Mapping[str, Callable[[Array], Array]] = {
    "the first row of each packed sequence but the first is counted to the one before": lambda n: n[
        np.maximum(np.arange(len(n)) - 1, 0)
    ],
    "the last row of each packed sequence but the last is counted to the next one": lambda n: n[
        np.minimum(np.arange(len(n)) + 1, len(n) - 1)
    ],
    "each row sees the keys of all samples": np.zeros_like,
}


def rows_of_others(trials: Sequence[CallResult]) -> str:
    """Return which rows are counted to other sequences in all wrong outputs; "" where none are."""
    if all(each.problem.case.batch < 2 for each in trials):
        return ""
    return next((text for text, by in NUMBERS.items() if all(_gives(by, t) for t in trials)), "")


def _gives(number: Callable[[Array], Array], trial: CallResult) -> bool:
    """Return whether the rows numbered so give the answer to a problem without masks."""
    stages, problem = trial.right.stages, trial.problem
    q, k, v = (_packed(stages[f"{name} heads"]) for name in INPUTS)
    if q.shape[0] != k.shape[0] or trial.found is None:
        return False
    samples, heads, length = stages["query heads"].shape[:3]
    queries = number(np.repeat(np.arange(samples), length))
    keys = number(np.repeat(np.arange(samples), k.shape[1] // samples))
    hidden = queries[:, None] != keys
    if problem.is_causal:
        hidden |= np.arange(len(queries))[:, None] < np.arange(len(keys))
    scores = np.where(hidden, -np.inf, problem.scale * q @ k.swapaxes(-1, -2))
    with np.errstate(invalid="ignore"):  # rows without a key
        output = softmax(scores) @ v
    output = output.reshape(heads, samples, length, -1).swapaxes(0, 1)
    return gives(output, trial)


def _packed(heads: Array) -> Array:
    """Return (N, H, T, D) as (H, N T, D) in float64."""
    rows = heads.astype(np.float64).swapaxes(0, 1)
    return rows.reshape(rows.shape[0], -1, rows.shape[-1])


def gives(output: Array, trial: CallResult) -> bool:
    """Return whether an output of the heads, (N, H, L, D), is the answer of a trial."""
    found = trial.found
    if found is None or found.shape != output.shape:
        return False
    height = max(1.0, float(np.abs(output).max(initial=0)))
    return bool((np.abs(output - found) <= WRONG * trial.allowed * height).all())
