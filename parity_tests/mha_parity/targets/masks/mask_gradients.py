"""Which shapes of a float mask the way to gradients takes: a backward pass may know one alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.calls.mask_format import ADDED, MaskArgument, MaskContent
from mha_parity.targets.masks.documented_shapes import documented_shapes
from mha_parity.targets.masks.hidden_keys import MaskExperiment

if TYPE_CHECKING:
    from mha_parity.targets.calls.mask_format import MaskFormat, MaskSearchResult
    from mha_parity.targets.convention_base.convention import Convention


def with_gradients_tried(
    convention: Convention, layout: str, found: MaskSearchResult
) -> MaskSearchResult:
    """Return what a parameter takes, marked where gradients raise and the call alone does not.

    And where shapes are documented, but not that one: a call broadcasts what its backward may not.
    """
    name = found.parameter.name
    said = documented_shapes(convention.subject, convention.entry(), name)

    def marked_one(taken: MaskFormat) -> MaskFormat:
        without = (said and taken.axes not in said) or not _differentiable(
            convention, layout, found, taken
        )
        return replace(taken, without_gradients=bool(without))

    marked = tuple(marked_one(taken) if taken.kind == ADDED else taken for taken in found.taken)
    # Where each shape raises the run says so.
    if all(each.without_gradients for each in marked):
        return found
    return replace(found, taken=marked)


def _differentiable(
    convention: Convention, layout: str, found: MaskSearchResult, taken: MaskFormat
) -> bool:
    """Return whether a small call with its gradients, that of the mask too, does not raise."""
    experiment = MaskExperiment.of(convention, layout, square=taken.square)
    problem = experiment.problem
    problem = problem.replace(case=problem.case.replace(gradients="yes"))
    content = MaskContent(np.zeros(experiment.shape, dtype=bool), experiment.addends(taken.axes))
    value = MaskArgument(taken.value(content, problem.dtype), taken.axes, ("attn_mask",))
    try:
        convention.answer_with(problem, {found.parameter.key: value})
    except CandidateError:
        return False
    return True
