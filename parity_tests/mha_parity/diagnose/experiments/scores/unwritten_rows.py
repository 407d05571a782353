"""Heads and rows of weights that are not written, or that are added more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.designs.shortest_rules import (
    OffIndices,
    index_rule,
    index_runs,
)

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.designs.weights_from_output import SampleWeights


def empty_heads(wrong: list[SampleWeights]) -> Effect | None:
    """Return which heads have no weights at all, where others have some."""
    for each in wrong:
        empty = [h for h in range(len(each.weights)) if not each.weights[h].any()]
        if empty and len(empty) < len(each.weights):
            heads, have = ("heads", "have") if len(empty) > 1 else ("head", "has")
            return Effect(
                f"{heads} {index_runs(empty)} of {len(each.weights)} {have} weights that are all 0",
                "compute every head: look at the bounds of the loop over heads",
            )
    return None


def empty_rows(wrong: list[SampleWeights]) -> Effect | None:
    """Return which rows have no weights at all, where all others are right."""
    seen = []
    for each in wrong:
        empty: Array = np.asarray(~each.weights.any(axis=(0, 2)))
        rest = np.abs(each.weights - each.expected)[:, ~empty]
        if not empty.any() or rest.max(initial=0) > 10 * each.noise:
            return None
        seen.append(OffIndices(len(empty), frozenset(np.flatnonzero(empty).tolist())))
    rule = index_rule("row", seen) or "some rows"
    return Effect(
        f"{rule} (here {index_runs(seen[-1].off)} of {seen[-1].count}) are 0 in all heads: "
        "their weights and outputs are not computed or not written",
        "let the loop over rows end with the last row",
    )


def repeated_rows(wrong: list[SampleWeights]) -> Effect | None:
    """Return which rows are the right ones several times over, where all others are right."""
    for each in wrong:
        times = np.rint(each.weights.sum(axis=-1))
        rest = np.abs(each.weights - times[..., None] * each.expected)
        rows = np.flatnonzero((times == times[0]).all(axis=0) & (times[0] > 1))
        if not rows.size or times.min() < 1 or rest.max() > 10 * each.noise * times.max():
            return None
    count = ", ".join(str(int(n)) for n in np.unique(times[0][rows]))
    return Effect(
        f"rows {index_runs(rows.tolist())} of {times.shape[-1]} "
        f"are added {count} times in all heads: their weights sum to {count}",
        "write each row of the output once: a slice that reaches back over rows that are done "
        "replaces them, and is not added to them",
    )
