"""Contents of the masks of a problem: what they hide and add, whatever format they are taken in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.targets.calls.mask_format import MaskContent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem


def mask_contents(problem: Problem, *, causal_inside: bool = False) -> list[MaskContent]:
    """Return what padding and attn of a problem hide and add, each (N, H, L, S)."""
    bare = problem.case.replace(attn="none") if causal_inside else problem.case
    found = []
    padding = problem.replace(attn_mask=None, case=bare.replace(attn="none"))
    if problem.key_padding_mask is not None:
        found.append(_content(padding, problem.key_padding_mask))
    attn = problem.replace(key_padding_mask=None, case=bare)
    if problem.attn_mask is not None or attn.is_causal:
        found.append(_content(attn, problem.attn_mask))
    return found


def _content(problem: Problem, mask: Array | None) -> MaskContent:
    keys = problem.key.shape[1]
    hidden = problem.hidden()[..., :keys]
    if mask is None or mask.dtype == np.bool_:
        return MaskContent(hidden)
    name = "attn_mask" if mask is problem.attn_mask else "key_padding_mask"
    added = problem.additive()[..., :keys]
    return MaskContent(hidden, np.where(hidden, -np.inf, added), (name,))


def together(parts: list[MaskContent]) -> Iterator[MaskContent]:
    """Yield the content of padding and of attn in one mask, where a problem has both."""
    if len(parts) == 2:
        yield parts[0].joined(parts[1])


def hides_nothing(problem: Problem) -> MaskContent:
    """Return the content of a mask that hides no key of a problem."""
    return MaskContent(np.zeros(problem.weights_shape, dtype=bool))
