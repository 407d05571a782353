"""Masks that act on rows of queries, where a mask of keys takes weight from columns.

A mask (N, S) of a layer of one input is meant for its keys, as lengths (N,) are: one that is
broadcast along the other axis hides none of them, and is judged as the mask of keys that it should
be. One that is called after queries, rows or outputs, or stands beside a context, has no
counterpart in torch's layer.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.core.parameters import Role
from mha_parity.targets.calls.mask_format import LENGTHS, VALUES, MaskContent, MaskFormat
from mha_parity.targets.masks.hidden_keys import SILENT

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.parameters import Parameter
    from mha_parity.targets.calls.mask_format import MaskSearchResult
    from mha_parity.targets.masks.hidden_keys import MaskExperiment

# What a name of a mask of queries has.
QUERIES = re.compile(r"(^|_)(q|query|queries)(_|$)(?!.*(^|_)(k|key|keys|kv)(_|$))")
_ROWS = re.compile(r"(^|_)(rows?|out(puts?)?|tgt|target|loss)(_|$)")
DROPS_QUERIES = "sets rows of queries to zero, which no mask of torch's layer does"
CHANGES_QUERIES = "changes rows of queries and hides no key, which no mask of torch's layer does"


class QueryRows(NamedTuple):
    """A mask of rows as it is passed, and whether the rows that it marks come to zero."""

    taken: MaskFormat
    zero: bool


def with_rows_of_queries(experiment: MaskExperiment, found: MaskSearchResult) -> MaskSearchResult:
    """Return the mask of rows that a parameter takes, where no mask of keys fits exactly.

    A target that has keys of another number than its queries reads such a mask by the queries'.
    """
    rows = acts_on_rows(experiment, found.parameter) if _may_be(found, experiment) else None
    if rows is None:
        return found
    name = found.parameter.name
    of_one_input = "cross" not in experiment.convention.offer["inputs"]
    named = QUERIES.search(name.lower()) or _ROWS.search(name.lower())
    if of_one_input and not named:
        return replace(found, taken=(rows.taken,), reason="")
    return replace(
        found, taken=(), reason=f"`{name}` {DROPS_QUERIES if rows.zero else CHANGES_QUERIES}"
    )


def _may_be(found: MaskSearchResult, experiment: MaskExperiment) -> bool:
    """Return whether a parameter is a mask or lengths, and there are as many rows as keys."""
    _, _, length, keys = experiment.shape
    return found.parameter.role in {Role.MASK, Role.LENGTHS} and length == keys


def acts_on_rows(experiment: MaskExperiment, parameter: Parameter) -> QueryRows | None:
    """Return how a parameter marks rows (N, L) of queries; None where it does not.

    All rows but the marked ones keep their weights; which value marks them is found by both.
    Lengths (N,) mark the rows behind them.
    """
    n, _, length, _ = experiment.shape
    each, row = np.arange(n)[:, None], np.arange(length)
    of_lengths = parameter.role is Role.LENGTHS
    marked = row > each % (length - 1) if of_lengths else (row + each) % 2 > 0  # as many as not
    for kind in (LENGTHS,) if of_lengths else VALUES:
        taken = MaskFormat(("N",) if of_lengths else ("N", "S"), kind)
        value = taken.value(MaskContent(marked[:, None, None, :]), experiment.problem.dtype)
        try:
            shown = experiment.weights({parameter.key: value})
        except CandidateError:
            continue
        changed = _changed_rows(experiment, shown)
        for hides in (True,) if of_lengths else (True, False):
            if np.array_equal(changed, marked == hides):
                rows = shown.swapaxes(1, 2)[changed]
                return QueryRows(replace(taken, hides=hides), not np.any(rows))
    return None


def _changed_rows(experiment: MaskExperiment, shown: Array) -> Array:
    """Return the rows (N, L) of which some head has other weights, or NaN."""
    with np.errstate(invalid="ignore"):
        kept = np.abs(shown - experiment.plain) < SILENT
    return np.asarray(~kept.all(axis=(1, 3)))
