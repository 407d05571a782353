"""The catalogue: wrong attentions, each one short change to a plain right one."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from mha_parity.catalogue import (
    appended_keys,
    batching,
    biases,
    block_softmax,
    causal,
    equivalents,
    gradients,
    head_layout,
    kept_state,
    layer_bugs,
    mask_values,
    masks,
    not_drawn,
    outputs,
    padded_rows,
    passed_cache,
    plain_layer,
    precision,
    projection,
    scaling,
    side_effects,
    softmax,
    state,
)
from mha_parity.catalogue.plain_attention import Attention, answer_of
from mha_parity.catalogue.registry import CATALOGUE, FAMILIES, Bug, whole_offer

if TYPE_CHECKING:
    from collections.abc import Mapping

# Loading a module of a family enters its bugs.
MODULES = (
    projection, biases, head_layout, scaling, softmax, block_softmax, masks, padded_rows,
    mask_values, causal,
    appended_keys, outputs, precision, batching, state, side_effects, kept_state, passed_cache,
    equivalents,
    gradients, layer_bugs, not_drawn,
)  # fmt: skip


def catalogue() -> Mapping[str, Bug]:
    """Return every bug by its id, family by family."""
    ordered = sorted(CATALOGUE.values(), key=lambda bug: bug.family)
    return MappingProxyType({bug.id: bug for bug in ordered})


__all__ = [
    "CATALOGUE",
    "FAMILIES",
    "MODULES",
    "Attention",
    "Bug",
    "answer_of",
    "appended_keys",
    "batching",
    "biases",
    "block_softmax",
    "catalogue",
    "causal",
    "equivalents",
    "gradients",
    "head_layout",
    "kept_state",
    "layer_bugs",
    "mask_values",
    "masks",
    "not_drawn",
    "outputs",
    "padded_rows",
    "passed_cache",
    "plain_layer",
    "precision",
    "projection",
    "scaling",
    "side_effects",
    "softmax",
    "state",
    "whole_offer",
]  # fmt: skip
