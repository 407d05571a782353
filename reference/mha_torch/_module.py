"""`torch.nn.MultiheadAttention` holding the weights of one problem.

Constructing the module costs more than running it on a small problem, so one empty module per
configuration is kept (on torch's meta device: it holds no numbers) and each call lends it the
problem's weights through `torch.func.functional_call`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import nn

from mha_torch._identity import identity

if TYPE_CHECKING:
    from collections.abc import Mapping

Tensors: TypeAlias = "Mapping[str, torch.Tensor]"

STATE_NAMES = (
    "in_proj_weight",
    "q_proj_weight",
    "k_proj_weight",
    "v_proj_weight",
    "in_proj_bias",
    "bias_k",
    "bias_v",
    "out_proj.weight",
    "out_proj.bias",
)


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the constructor of `nn.MultiheadAttention` needs to know."""

    embed_dim: int
    num_heads: int
    kdim: int
    vdim: int
    bias: bool
    add_bias_kv: bool
    add_zero_attn: bool
    batch_first: bool
    training: bool

    @property
    def packed(self) -> bool:
        """Whether torch keeps one in_proj_weight rather than three."""
        return self.kdim == self.embed_dim == self.vdim


def module_for(configuration: Configuration) -> nn.MultiheadAttention:
    """Return the empty module of this configuration; each thread has its own."""
    return _module(configuration, threading.get_ident())


@lru_cache(maxsize=512)
def _module(configuration: Configuration, _thread: int) -> nn.MultiheadAttention:
    module = nn.MultiheadAttention(
        configuration.embed_dim,
        configuration.num_heads,
        dropout=0.0,
        bias=configuration.bias,
        add_zero_attn=configuration.add_zero_attn,
        kdim=configuration.kdim,
        vdim=configuration.vdim,
        batch_first=configuration.batch_first,
        device="meta",
    )
    if configuration.add_bias_kv:
        # As the constructor would, less the normal numbers: on the meta device those load the
        # compiler, which takes a second, and draw nothing.
        shape = (1, 1, configuration.embed_dim)
        module.bias_k, module.bias_v = (
            nn.Parameter(torch.empty(shape, device="meta")) for _ in range(2)
        )
    return module.train(configuration.training)


def parameters(
    state: Tensors, configuration: Configuration, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Return the module's parameters for `state`: absent weights are identities, biases zero."""
    width = configuration.embed_dim
    filled = {name: state[name] for name in ("bias_k", "bias_v") if name in state}
    filled |= _in_projection(state, configuration, dtype)
    filled["out_proj.weight"] = state.get("out_proj.weight", identity(width, 1, dtype))
    if configuration.bias:
        zeros = torch.zeros(3 * width, dtype=dtype)
        filled["in_proj_bias"] = state.get("in_proj_bias", zeros)
        filled["out_proj.bias"] = state.get("out_proj.bias", zeros[:width])
    return filled


def _in_projection(
    state: Tensors, configuration: Configuration, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Return in_proj_weight, or three weights where torch keeps them separate."""
    separate = {name: state[name] for name in STATE_NAMES[1:4] if name in state}
    if not configuration.packed:
        if len(separate) < len(STATE_NAMES[1:4]):
            msg = (
                f"`state` has {sorted(state)}, but kdim={configuration.kdim} and "
                f"vdim={configuration.vdim} need q_proj_weight, k_proj_weight and v_proj_weight."
            )
            raise ValueError(msg)
        return separate
    if separate:
        return {"in_proj_weight": torch.cat([state[name] for name in STATE_NAMES[1:4]])}
    packed_identity = identity(configuration.embed_dim, 3, dtype)
    return {"in_proj_weight": state.get("in_proj_weight", packed_identity)}
