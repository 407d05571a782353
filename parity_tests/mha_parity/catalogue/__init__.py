"""The catalogue: wrong attentions, each one short change to a plain right one."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from mha_parity.wrong import (
    appended,
    batching,
    biases,
    causal,
    equivalents,
    gradients,
    kernels,
    layer,
    layers,
    layout,
    masks,
    maskvalues,
    outputs,
    precision,
    projection,
    scaling,
    softmax,
    state,
    unasked,
)
from mha_parity.wrong.bug import CATALOGUE, FAMILIES, Bug, whole_offer
from mha_parity.wrong.plain import Attention, attend

if TYPE_CHECKING:
    from collections.abc import Mapping

# Loading a module of a family enters its bugs.
MODULES = (
    projection, biases, layout, scaling, softmax, kernels, masks, maskvalues, causal, appended,
    outputs, precision, batching, state, equivalents,
    gradients, layers, unasked,
)  # fmt: skip


def catalogue() -> Mapping[str, Bug]:
    """Return every bug by its id, family by family."""
    ordered = sorted(CATALOGUE.values(), key=lambda bug: bug.family)
    return MappingProxyType({bug.id: bug for bug in ordered})


__all__ = [
    "CATALOGUE", "FAMILIES", "MODULES", "Attention", "Bug", "appended", "attend", "batching",
    "biases", "catalogue", "causal", "equivalents", "gradients", "kernels", "layer", "layers",
    "layout", "masks", "maskvalues", "outputs", "precision", "projection", "scaling", "softmax",
    "state", "unasked", "whole_offer",
]  # fmt: skip
