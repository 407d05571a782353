"""`torch.nn.MultiheadAttention` holding the weights of one problem.

Constructing the module costs more than running it on a small problem, so one empty module is kept
for each structure (on torch's meta device: it holds no numbers), and each call lends it the
problem's sizes and weights. `torch.func.functional_call` would do the latter in 0.4 ms.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import nn

from mha_torch._identity import identity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
OUT = "out_proj."


@dataclass(frozen=True, slots=True)
class ModuleConfig:
    """Arguments of the constructor of `nn.MultiheadAttention`."""

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


@contextmanager
def holding(
    configuration: ModuleConfig, tensors: Mapping[str, torch.Tensor]
) -> Iterator[nn.MultiheadAttention]:
    """Yield a module of this configuration that has ``tensors`` for its parameters meanwhile."""
    vdim = 1 if configuration.packed else 2
    structure = replace(configuration, embed_dim=1, num_heads=1, kdim=1, vdim=vdim)
    module = _module(structure, threading.get_ident())
    # All that the forward pass reads of the sizes; the constructor's time goes into other things.
    module.embed_dim, module.num_heads = configuration.embed_dim, configuration.num_heads
    module.head_dim = configuration.embed_dim // configuration.num_heads
    module.kdim, module.vdim = configuration.kdim, configuration.vdim
    own, out = module._parameters, module.out_proj._parameters  # noqa: SLF001  (as functional_call does; attributes take nn.Parameter alone)
    empty = dict(own), dict(out)
    for name, tensor in tensors.items():
        held = out if name.startswith(OUT) else own
        held[name.removeprefix(OUT)] = tensor  # type: ignore[assignment]  # torch takes any tensor
    try:
        yield module
    finally:
        own.update(empty[0])
        out.update(empty[1])


@lru_cache(maxsize=128)
def _module(structure: ModuleConfig, _thread: int) -> nn.MultiheadAttention:
    """Return a module without numbers and with sizes of one; each thread has its own."""
    module = nn.MultiheadAttention(
        structure.embed_dim,
        structure.num_heads,
        dropout=0.0,
        bias=structure.bias,
        add_zero_attn=structure.add_zero_attn,
        kdim=structure.kdim,
        vdim=structure.vdim,
        batch_first=structure.batch_first,
        device="meta",
    )
    if structure.add_bias_kv:
        # As the constructor would, less the normal numbers: on the meta device those load the
        # compiler, which takes a second, and draw nothing.
        shape = (1, 1, structure.embed_dim)
        module.bias_k, module.bias_v = (
            nn.Parameter(torch.empty(shape, device="meta")) for _ in range(2)
        )
    return module.train(structure.training)


def module_parameters(
    state: Tensors, configuration: ModuleConfig, dtype: torch.dtype
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
    state: Tensors, configuration: ModuleConfig, dtype: torch.dtype
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
