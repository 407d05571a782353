"""``jax.nn.dot_product_attention``: heads are the last axis but one, mask and bias are separate."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.targets.calls.canonical_layout import only_sample
from mha_parity.targets.convention_base.convention import PLAIN_CORE
from mha_parity.targets.conventions.sdpa import SDPA, joined_mask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem
    from mha_parity.targets.calls.target_call import Arguments

UNBATCHED = PLAIN_CORE.replace(layout="unbatched", batch=1, attn="bool2d")


class JaxAttention(SDPA):
    """``f(query, key, value, bias=, mask=, scale=, is_causal=)``, arrays (N, L, H, D).

    ``mask`` is boolean and True where a key takes part, ``bias`` is added to the logits; both are
    (N, H, L, S) or broadcast to it. Grouped heads need no keyword.
    """

    name = "jax-attention"
    own_masks = frozenset({"bias", "mask", "is_causal"})
    swaps = ()
    call = "f(query, key, value, bias=, mask=, scale=, is_causal=), (..., L, H, d) arrays"

    def claims(self) -> Offer:
        """Masks and biases of all kinds, grouped heads."""
        masks = ("none", "bool2d", "float2d", "bool3d", "float3d", "causal")
        return super().claims() | {
            "padding": ("none", "bool", "float", "lengths"),
            "attn": masks,
            "masked_rows": ("none", "some"),
            "kv_heads": ("equal", "fewer"),
        }

    def _gradients(self, problem: Problem, found: dict[str, Array]) -> dict[str, Array]:
        """Return the gradients of arrays (N, L, H, D), and of the bias as the masks in it."""
        named = {"attn_mask" if name == "bias" else name: each for name, each in found.items()}
        rows = {n: each.swapaxes(-3, -2) for n, each in named.items() if n != "attn_mask"}
        return super()._gradients(problem, named | rows)

    @cached_property
    def _takes_three_axes(self) -> bool:
        """Whether a mask of one sample has no axis of samples: False where only four are taken."""
        problem = make_problem(UNBATCHED)
        self._takes_three_axes = True
        try:
            return bool(self(problem).output.shape == problem.output_shape)
        except CandidateError:
            return False

    def _options(self, problem: Problem, arguments: Arguments) -> Iterator[tuple[str, Any]]:
        masked = problem.key_padding_mask is not None or problem.attn_mask is not None
        if problem.is_causal and not masked:
            yield "is_causal", True
        elif masked:
            mask = joined_mask(problem)
            mask = mask if mask.ndim == 4 else mask[None, None]
            if problem.case.layout == "unbatched" and self._takes_three_axes:
                mask = only_sample(mask)
            if mask.dtype == np.bool_:
                yield "mask", arguments.array("mask", ~mask)
            else:
                yield "bias", arguments.array("bias", mask)
        if problem.given_scale is not None:
            yield "scale", problem.given_scale
