"""The calling conventions by name."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from mha_parity.core.candidate import TargetError
from mha_parity.core.option_values import hint_of
from mha_parity.targets.adapters.adapted import Adapted
from mha_parity.targets.conventions.functions import (
    QKV,
    QKVHeads,
    XWeights,
    XWeightsHeads,
    XWeightsOutHeads,
)
from mha_parity.targets.conventions.jax_attention import JaxAttention
from mha_parity.targets.conventions.keras_layer import KerasLayer
from mha_parity.targets.conventions.projections import ProjectionFunction
from mha_parity.targets.conventions.sdpa import SDPA
from mha_parity.targets.conventions.torch_module import TorchModule
from mha_parity.targets.conventions.varlen import Varlen
from mha_parity.targets.conventions.weight_attribute_layers import ModuleMask, ModuleValidLens
from mha_parity.targets.onnx.attention import OnnxAttention
from mha_parity.targets.onnx.layer import OnnxLayer
from mha_parity.targets.programs.exec_protocol import ExecProtocol
from mha_parity.targets.trials.fitted_target import Fitted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.targets.convention_base.convention import Convention

_KINDS: tuple[type[Convention], ...] = (
    QKVHeads, XWeightsHeads, XWeightsOutHeads, QKV, XWeights, ProjectionFunction,
    ModuleValidLens, ModuleMask, TorchModule, SDPA, Varlen, JaxAttention, KerasLayer,
    Fitted, ExecProtocol, Adapted, OnnxAttention, OnnxLayer,
)  # fmt: skip
KNOWN: Mapping[str, type[Convention]] = MappingProxyType({kind.name: kind for kind in _KINDS})


def convention_named(name: str) -> type[Convention]:
    """Return the convention called ``name``.

    Raises
    ------
    TargetError
        There is none of that name.

    """
    if name in KNOWN:
        return KNOWN[name]
    hint = hint_of(name, KNOWN, f"known are {', '.join(KNOWN)}.", write=repr)
    raise TargetError(f"got the convention {name!r}, but there is no such one; {hint}")
