"""Which of the shapes that a mask is taken in are served: at all lengths, undisturbed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.calls.mask_format import ADDED, LENGTHS, SWITCH, VALUES, MaskContent
from mha_parity.targets.masks.hidden_keys import SILENT, is_causal

if TYPE_CHECKING:
    from mha_parity.core.parameters import Parameter
    from mha_parity.targets.calls.mask_format import Axes, MaskFormat, MaskSearchResult
    from mha_parity.targets.masks.hidden_keys import MaskExperiment

# (L, S) at which what raised at one of unequal lengths is called again.
UNEQUAL = ((4, 6), (4, 5), (3, 8), (4, 8), (6, 4), (5, 4), (8, 3), (8, 4))
LONG = (131, 137)  # (L, S) beyond what is done at once in tiles of 128
# Fewer queries and keys than heads and samples, so that a slice of the first L cuts those.
FEW, SAMPLES = 2, 3
GROUPED = {"heads_count": 6, "kv_heads_count": 2}


def undisturbed(
    experiment: MaskExperiment, found: MaskSearchResult, promised: tuple[Axes, ...]
) -> MaskSearchResult:
    """Return what is taken without shapes in which a mask that hides nothing changes the answer.

    An axis too many is broadcast to scores of more axes, whose heads are then merged amiss. A shape
    that is promised stays, and so do all where each changes the answer: the cases show it. But one
    with an axis of queries may stand in for the causal rule that a target has without it.
    """
    nothing = MaskContent(np.zeros(experiment.shape, dtype=bool))

    def keeps(taken: MaskFormat) -> bool:
        value = taken.value(nothing, experiment.problem.dtype)
        try:
            shown = experiment.weights({found.parameter.key: value})
        except CandidateError:
            return False
        return np.allclose(shown, experiment.plain, rtol=0, atol=SILENT, equal_nan=True)

    def changes(taken: MaskFormat) -> bool:
        # A shape in which True has the other meaning is for the judge.
        return not keeps(taken) and not keeps(replace(taken, hides=not taken.hides))

    masks = [each for each in found.taken if each.kind not in {SWITCH, LENGTHS}]
    changing = [each for each in masks if each.axes not in promised and changes(each)]
    if len(changing) == len(masks):
        replaces = [each for each in masks if _replaces_causal_rule(experiment, found, each)]
        return replace(found, taken=tuple(replaces), replaces_causal=True) if replaces else found
    return replace(found, taken=tuple(each for each in found.taken if each not in changing))


def _replaces_causal_rule(
    experiment: MaskExperiment, found: MaskSearchResult, taken: MaskFormat
) -> bool:
    """Return whether a mask that hides nothing lifts the target's own rule, and could have said it.

    A mask of padding alone cannot: that it lifts the rule is for the judge.
    """
    if "L" not in taken.axes or not is_causal(experiment.plain):
        return False
    nothing = MaskContent(np.zeros(experiment.shape, dtype=bool))
    value = taken.value(nothing, experiment.problem.dtype)
    try:
        shown = experiment.weights({found.parameter.key: value})
    except CandidateError:
        return False
    return not is_causal(shown)


def of_all_lengths(
    experiment: MaskExperiment, found: MaskSearchResult, promised: tuple[Axes, ...]
) -> MaskSearchResult:
    """Return what is taken without shapes that raise at a larger length, if others do not there.

    Parts of 64 queries, say, of a mask (N, 1, 1, S) are those of its one row in a short call alone.
    A shape that is promised stays, and so do all where each raises: the cases show it, unless
    another layout of the inputs is served. Lengths at which a call without masks raises as well say
    nothing of the mask.
    """
    parameter, cross = found.parameter, "cross" in experiment.convention.offer["inputs"]
    square = not cross or any(each.square for each in found.taken)
    lengths = [
        (queries, keys)
        for queries, keys in (((LONG[1], LONG[1]),) if square else (LONG, LONG[::-1]))
        if parameter.required or experiment.answers_without(queries=queries, keys=keys)
    ]
    short = [
        each
        for each in found.taken
        if each.axes not in promised
        and not all(
            experiment.answers(parameter, each, queries=queries, keys=keys)
            for queries, keys in lengths
        )
    ]
    if not short:
        return found
    if len(short) == len(found.taken):
        return replace(found, raises=True)
    kept = tuple(each for each in found.taken if each not in short)
    axes = tuple(dict.fromkeys(e.axes for e in short if all(e.axes != k.axes for k in kept)))
    return replace(found, taken=kept, short=axes)


def of_other_sizes(
    experiment: MaskExperiment, found: MaskSearchResult, promised: tuple[Axes, ...]
) -> MaskSearchResult:
    """Return what is taken without shapes that raise at other sizes, if others do not.

    Where L is below N and H: a target that cuts its mask by ``mask[:L, :L]`` takes (N, H, L, S)
    where L is no less than these, by chance. With grouped heads: one that puts the rows of a group
    behind each other repeats the axis of queries. A shape that is promised stays, and so do all
    where each raises.
    """
    case, offer = experiment.problem.case, experiment.convention.offer
    samples = 1 if case.layout == "unbatched" else SAMPLES
    sizes = [{"queries": FEW, "keys": FEW, "batch": samples}]
    if {"equal", "fewer"} <= {*offer["kv_heads"]}:
        sizes.append(GROUPED)
    kept = tuple(
        each
        for each in found.taken
        if each.axes in promised
        or all(experiment.answers(found.parameter, each, **other) for other in sizes)
    )
    return replace(found, taken=kept) if kept else found


def with_raising_documented(
    experiment: MaskExperiment, found: MaskSearchResult, documented: tuple[Axes, ...]
) -> MaskSearchResult:
    """Return what is taken with the documented shapes too in which every kind of mask raises.

    The cases show that they do. Several are documented in words for queries and for keys: they are
    asked for other keys than queries too, where another shape answers. That a shape is documented
    says nothing of another layout of the inputs, nor of masks of which numbers are added, or none
    is understood.
    """
    plain = experiment.convention.plain_case()
    first = next((each for each in found.taken if each.kind in VALUES), None)
    if first is None or experiment.problem.case.layout != plain.layout:
        return found
    further = _unequal(experiment, found.parameter, first) if len(documented) > 1 else {}
    raising = tuple(
        axes
        for axes in documented
        if all(each.axes != axes for each in found.taken)
        and any(
            _all_raise(experiment, found.parameter, replace(first, axes=axes), sizes)
            for sizes in ({}, further)
        )
    )
    more = (replace(first, axes=axes, fit=0.0) for axes in raising)
    return replace(found, taken=(*found.taken, *more), raising=raising)


def _unequal(experiment: MaskExperiment, parameter: Parameter, taken: MaskFormat) -> dict[str, int]:
    """Return sizes of other keys than queries at which a mask that is taken is answered, or {}."""
    if "cross" in experiment.convention.offer["inputs"] and not taken.square:
        for queries, keys in UNEQUAL:
            if experiment.answers(parameter, taken, queries=queries, keys=keys):
                return {"queries": queries, "keys": keys}
    return {}


def _all_raise(
    experiment: MaskExperiment, parameter: Parameter, taken: MaskFormat, sizes: dict[str, int]
) -> bool:
    """Return whether masks of every kind raise in one shape at these sizes."""
    kinds = (replace(taken, kind=kind) for kind in (*VALUES, ADDED))
    return not any(experiment.answers(parameter, each, **sizes) for each in kinds)


def serves_unequal(experiment: MaskExperiment, found: MaskSearchResult) -> bool:
    """Return whether a call of other keys than queries does not raise with what is taken."""
    by_axes = {each.axes: each for each in found.taken}.values()
    return any(
        experiment.answers(found.parameter, each, queries=queries, keys=keys)
        for queries, keys in UNEQUAL
        for each in by_axes
    )
