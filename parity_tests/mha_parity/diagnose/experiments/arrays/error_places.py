"""Which samples, heads, rows and columns of an output are off, and what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.compare import absolute_difference
from mha_parity.diagnose.experiments.designs.calls import WRONG
from mha_parity.diagnose.experiments.designs.shortest_rules import (
    EVERYWHERE,
    OffIndices,
    index_rule,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.designs.calls import CallResult

SURELY = 100 * WRONG  # allowances: what is not wrong is then right to two digits more
AXES = ("sample", "head", "row", "column")


def places(trials: Sequence[CallResult]) -> tuple[str, ...]:
    """Return rules for the indices of wrong elements in all wrong trials; () if all are wrong.

    There are none where the largest errors are little more than rounding: the other elements may be
    wrong too, by less.
    """
    wrong = [each for each in trials if each.wrong and each.found is not None]
    surely = any((_errors(each) > SURELY * each.allowed).any() for each in wrong)
    return tuple(_rules(wrong)) if surely else ()


def _errors(trial: CallResult) -> Array:
    """Return the error of each element, infinite where one of both is no number."""
    assert trial.found is not None  # noqa: S101  (of trials with an output)
    return absolute_difference(trial.expected, trial.found)


def _rules(wrong: Sequence[CallResult]) -> Iterator[str]:
    for axis, word in enumerate(AXES):
        seen = [_along(trial.off, axis) for trial in wrong]
        if all(each.count == 1 for each in seen):
            continue
        rule = index_rule(word, [each for each in seen if each.count > 1])
        if rule is not None and rule != EVERYWHERE:
            yield rule


def _along(off: Array, axis: int) -> OffIndices:
    others = tuple(i for i in range(off.ndim) if i != axis)
    return OffIndices(off.shape[axis], frozenset(np.flatnonzero(off.any(axis=others)).tolist()))


def contents(trials: Sequence[CallResult]) -> str:
    """Return what stands at the elements that are off, where it is one thing: "0", "NaN"."""
    wrong = [each for each in trials if each.wrong and each.found is not None]
    kinds_seen = {_content(each) for each in wrong}
    return kinds_seen.pop() if len(kinds_seen) == 1 else ""


def _content(trial: CallResult) -> str:
    found = trial.found
    if found is None:
        return ""
    elements = found[trial.off]
    values = trial.right.stages["value heads"]
    mean = values.sum(axis=-2, keepdims=True) / max(values.shape[-2], 1)
    mean = np.broadcast_to(mean, found.shape)[trial.off]
    rows = np.flatnonzero(trial.off.any(axis=(0, 1, 3)))
    with np.errstate(invalid="ignore"):
        kinds = {
            "NaN": np.isnan(elements).all(),
            "0": (elements == 0).all(),
            "infinite": np.isinf(elements).all(),
            "the mean of V": np.abs(elements - mean).max() <= trial.allowed,
            "one row repeated": len(rows) > 1 and np.ptp(found[:, :, rows], axis=2).max() == 0,
        }
    return next((name for name, holds in kinds.items() if holds), "")
