"""Facts known about a target besides its offer; none about a function of a problem."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mha_parity.core.features import ODD_HEADS, UNLIKE_LENGTHS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.core.own_weights import OwnWeights
    from mha_parity.core.parameters import Parameter


@dataclass(frozen=True, kw_only=True)
class TargetFacts:
    """Facts about a target that small calls and its source showed.

    ``reasons`` says why a feature that was tried is not offered. ``parameters`` are those of its
    constructor and call. ``answer_dtypes`` maps dtypes to the narrower ones that they are answered
    in. ``own_weights`` are those that it is judged with over all else. ``own_backward`` says what
    of it has a backward pass of its own, ``dropped`` which call of its code has no effect,
    ``not_installed`` which libraries it imports that are missing, ``compiles`` whether its library
    compiles each operation for each size, ``wider_input`` whether its input is twice as wide as its
    one head, and ``zero_rows`` whether its documentation promises 0 in rows that see no key.
    ``lost_trial`` says how a small call that should show how it is called ended its process.
    ``padding_left_out``: a run does not judge its rows of padded queries where they alone are off;
    ``without_mask_gradients``: none of its gradients are of masks. ``longest`` is the most rows and
    keys that gradients are asked of, 0 for any number. ``float32_masks``: torch's function gets
    masks of float32 beside queries of float64.
    """

    reasons: dict[tuple[str, str], str] = field(default_factory=dict)
    parameters: tuple[Parameter, ...] = ()
    answer_dtypes: dict[str, str] = field(default_factory=dict)
    own_weights: OwnWeights | None = None
    own_backward: str = ""
    dropped: str = ""
    not_installed: tuple[str, ...] = ()
    compiles: bool = False
    wider_input: bool = False
    zero_rows: bool = False
    lost_trial: str = ""
    padding_left_out: bool = False
    without_mask_gradients: bool = False
    longest: int = 0
    float32_masks: bool = False

    @property
    def one_length(self) -> bool:
        """Whether it takes as many keys as queries alone."""
        return takes_one_length(self.reasons)


NO_FACTS = TargetFacts()


def takes_one_length(reasons: Mapping[tuple[str, str], str]) -> bool:
    """Return whether a target takes keys of its own, and as many as queries alone."""
    return UNLIKE_LENGTHS in reasons


def takes_even_heads(reasons: Mapping[tuple[str, str], str]) -> bool:
    """Return whether a target is asked for heads of an even width alone."""
    return ODD_HEADS in reasons
