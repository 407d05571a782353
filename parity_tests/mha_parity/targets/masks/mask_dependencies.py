"""How switches and masks of one target depend on each other: which are passed together."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.core.parameters import Role
from mha_parity.targets.calls.error_origin import is_refusal
from mha_parity.targets.calls.mask_format import SWITCH, MaskContent
from mha_parity.targets.masks.hidden_keys import (
    MaskExperiment,
    is_causal,
    mask_problem,
    weights_shown,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.targets.calls.mask_format import MaskSearchResult
    from mha_parity.targets.convention_base.convention import Convention


def mask_switches(
    convention: Convention, layout: str, results: tuple[MaskSearchResult, ...]
) -> Iterator[tuple[str, str]]:
    """Yield the keys of switches that are on, hide nothing, and leave a mask unread where off.

    Each with the name of the mask. Called `mask_flag` or `masked`, they may be the causal rule.
    """
    experiment = MaskExperiment.of(convention, layout, square=True)
    idle = (each.parameter for each in results if not each.taken)
    on = [p for p in idle if p.role is Role.CAUSAL and p.default == "True"]
    masks = [each for each in results if each.taken and each.taken[0].axes]
    for switch, mask in itertools.product(on, masks):
        taken = mask.taken[0]
        hidden = MaskContent(experiment.hidden(taken.axes))
        value = taken.value(hidden, experiment.problem.dtype)
        given = {mask.parameter.key: value}
        try:
            off = experiment.weights({**given, switch.key: False})
            read = experiment.weights({**given, switch.key: True})
        except CandidateError:
            continue
        if np.array_equal(off, experiment.plain) and not np.array_equal(read, off):
            yield switch.key, mask.parameter.name


def exclusive_pairs(
    convention: Convention, by_layout: dict[str, tuple[MaskSearchResult, ...]]
) -> tuple[tuple[str, ...], ...]:
    """Return the keys of two parameters that are not passed together, and say why.

    One is a causal switch or a bias of the scores, the other a mask. Those of torch's
    scaled_dot_product_attention raise: one mask has to say all then. A switch that is on by default
    may hide the future where there is no mask alone, if the mask can hide it: with one of keys
    alone in its place no call hides both, which cases show.
    """
    found: dict[tuple[str, ...], str] = {}
    for layout, results in by_layout.items():
        problem = mask_problem(convention, layout, square=True, inputs=_inputs_of(results))
        nothing = MaskContent(np.zeros(problem.weights_shape, dtype=bool))
        for switch, mask in (*_switches_and_masks(results), *_biases_and_masks(results)):
            keys = (switch.parameter.key, mask.parameter.key)
            if keys in found:
                continue
            first = switch.taken[0]
            passed = first.hides if first.kind == SWITCH else first.value(nothing, problem.dtype)
            # torch's kernels answer to both in some shapes of the mask, and raise in others.
            values = (taken.value(nothing, problem.dtype) for taken in mask.taken)
            given = [{keys[0]: passed, keys[1]: value} for value in values]
            try:
                answers = [convention.answer_with(problem, each) for each in given]
            except CandidateError as error:
                if first.kind != SWITCH and not is_refusal(str(error)):
                    continue
                names = f"`{switch.parameter.name}` and `{mask.parameter.name}`"
                found[keys] = f"{names} are not passed together: that {error}."
                continue
            says_all = any("L" in taken.axes for taken in mask.taken)
            if says_all and first.kind == SWITCH and switch.parameter.default == str(passed):
                both = weights_shown(problem, answers[0].output)
                alone = MaskExperiment.of(convention, layout, square=True).plain
                if is_causal(alone) and not is_causal(both):
                    name, other = switch.parameter.name, mask.parameter.name
                    found[keys] = f"`{name}` hides nothing where `{other}` is passed."
    convention.remarks = (*convention.remarks, *found.values())
    return tuple(found)


def enabling_pairs(
    convention: Convention, by_layout: dict[str, tuple[MaskSearchResult, ...]]
) -> tuple[tuple[str, str], ...]:
    """Return the keys of a switch and of a mask that is read where the switch is on alone.

    With the mask, such a switch hides nothing by itself: it has the causal rule where no mask is.
    """
    found: list[tuple[str, str]] = []
    for layout, results in by_layout.items():
        experiment = MaskExperiment.of(convention, layout, square=True, inputs=_inputs_of(results))
        dtype = experiment.problem.dtype
        for switch, mask in _switches_and_masks(results):
            keys, taken, on = (
                (switch.parameter.key, mask.parameter.key),
                mask.taken[0],
                switch.taken[0],
            )
            hidden = experiment.hidden(taken.axes)
            values = [
                taken.value(MaskContent(each), dtype) for each in (np.zeros_like(hidden), hidden)
            ]
            if any(value is None for value in values):
                continue
            try:
                off, ignored, quiet = (
                    experiment.weights({keys[0]: causal, keys[1]: value})
                    for causal, value in (
                        (not on.hides, values[0]), (not on.hides, values[1]), (on.hides, values[0])
                    )
                )  # fmt: skip
            except CandidateError:
                continue
            if np.array_equal(off, ignored) and np.array_equal(off, quiet):
                found.append(keys)
    said = (f"`{m.split('.')[1]}` is read where `{s.split('.')[1]}` is on alone." for s, m in found)
    convention.remarks = (*convention.remarks, *dict.fromkeys(said))
    return tuple(dict.fromkeys(found))


def _inputs_of(results: tuple[MaskSearchResult, ...]) -> str:
    """Return "self" where a mask is read in self-attention alone, "" for any inputs."""
    return "self" if any(each.inputs == "self" for each in results) else ""


def _switches_and_masks(
    results: tuple[MaskSearchResult, ...],
) -> Iterator[tuple[MaskSearchResult, MaskSearchResult]]:
    """Yield each causal switch with each parameter that is a mask."""
    taken = [each for each in results if each.taken]
    switches = [each for each in taken if each.taken[0].kind == SWITCH]
    masks = [each for each in taken if each not in switches]
    yield from itertools.product(switches, masks)


def _biases_and_masks(
    results: tuple[MaskSearchResult, ...],
) -> Iterator[tuple[MaskSearchResult, MaskSearchResult]]:
    """Yield each bias of the scores with each parameter that is a mask."""
    taken = [each for each in results if each.taken]
    biases = [each for each in taken if each.parameter.role is Role.SCORE_BIAS]
    masks = [each for each in taken if each.parameter.role is Role.MASK]
    yield from itertools.product(biases, masks)
