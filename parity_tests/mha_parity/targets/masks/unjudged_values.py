"""Effect of masks of torch's names with the kind of values that they are not judged with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.calls.mask_format import ADDED, LENGTHS, MaskContent, MaskFormat
from mha_parity.targets.masks.demanded_meaning import TORCH_MASKS, by_torchs_name
from mha_parity.targets.masks.hidden_keys import SILENT, MaskExperiment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.targets.calls.mask_format import MaskSearchResult
    from mha_parity.targets.convention_base.convention import Convention


def answered_otherwise(
    convention: Convention, by_layout: Mapping[str, tuple[MaskSearchResult, ...]]
) -> Iterator[str]:
    """Say of masks of torch's name that floats are answered, and not added, or booleans added.

    torch adds floats to the scores, and hides where a boolean is True.
    """
    for layout, results in by_layout.items():
        for found in results:
            name, first = found.parameter.name, next(iter(found.taken), None)
            named = name in TORCH_MASKS and name not in convention.mask_meanings
            if first is None or not (named and first.axes) or first.attributes:
                continue
            kinds = {each.kind for each in found.taken}
            experiment = MaskExperiment.of(convention, layout, square=first.square)
            key = found.parameter.key
            if first.hides and not kinds & {ADDED, LENGTHS}:
                if _shown_with_floats(experiment, key, first) is not None:
                    yield (
                        f"`{name}`: floats are answered, and not added to the scores as torch "
                        "adds them."
                    )
            elif kinds == {ADDED} and by_torchs_name(convention, name).hides:
                hidden = experiment.hidden(first.axes)
                booleans = MaskFormat(first.axes, "bool")
                shown = _shown(experiment, key, booleans, MaskContent(hidden))
                if shown is not None and shown[np.broadcast_to(hidden, shown.shape)].max() > SILENT:
                    yield (
                        f"`{name}`: booleans are answered, and do not hide where they are True, as "
                        "torch's do; pass floats."
                    )


def _shown_with_floats(experiment: MaskExperiment, key: str, taken: MaskFormat) -> Array | None:
    """Return the weights with floats in the shape of a mask of booleans; None where they raise."""
    addends = experiment.addends(taken.axes)
    content = MaskContent(np.zeros(experiment.shape, dtype=bool), addends)
    return _shown(experiment, key, MaskFormat(taken.axes, ADDED), content)


def _shown(
    experiment: MaskExperiment, key: str, taken: MaskFormat, content: MaskContent
) -> Array | None:
    """Return the weights that the output shows with a mask; None where the call raises."""
    try:
        return experiment.weights({key: taken.value(content, experiment.problem.dtype)})
    except CandidateError:
        return None
