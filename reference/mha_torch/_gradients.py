"""Gradients of both torch functions, by autograd in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import scaled_dot_product_attention as torch_sdpa

from mha_torch._arrays import Array, to_array, to_tensor
from mha_torch._forward import forward_answer
from mha_torch._paths import PINNED, Path, PathNotTakenError
from mha_torch._problem import Layout, Tensored, checked
from mha_torch._sdpa import Backend, kernel
from mha_torch._threads import torch_in_one_thread

if TYPE_CHECKING:
    from collections.abc import Mapping

DTYPE = "float64"


def gradients(
    query: Array,
    key: Array,
    value: Array,
    state: Mapping[str, Array],
    cotangent: Array,
    *,
    num_heads: int,
    add_zero_attn: bool = False,
    key_padding_mask: Array | None = None,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    layout: Layout = "batch_first",
    path: Path = PINNED,
) -> dict[str, Array]:
    r"""Return the gradient of :math:`\langle cotangent, output \rangle` for everything real-valued.

    Arguments as in `multihead_attention`; `cotangent` is (N, L, E). The keys of the answer are
    "query", "key", "value", the entries of `state`, and "attn_mask" and "key_padding_mask" where
    those are of floating point. query, key and value are separate leaves even where they are the
    same array: the gradient of a self-attention is the sum of the three.

    Raises
    ------
    PathNotTakenError
        On the fast path, which torch leaves as soon as a gradient is wanted, and on EVAL, whose
        C++ operator is left likewise.
    """
    checked(state, layout)
    if not path.training:
        msg = f"`path`={str(path)!r} has no gradients: torch computes them along another path."
        raise PathNotTakenError(msg)
    leaves = _leaves({"query": query, "key": key, "value": value, **state})
    masks = _masks({"key_padding_mask": key_padding_mask, "attn_mask": attn_mask})
    problem = Tensored(
        leaves["query"],
        leaves["key"],
        leaves["value"],
        {name: leaves[name] for name in state},
        num_heads,
        add_zero_attn,
        masks.get("key_padding_mask"),
        masks.get("attn_mask"),
        is_causal,
    )
    with torch_in_one_thread():
        output, _ = forward_answer(problem, layout, path)
        return _pulled_back(output, cotangent, leaves | masks)


def sdpa_gradients(
    query: Array,
    key: Array,
    value: Array,
    cotangent: Array,
    *,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    backend: Backend = "math",
) -> dict[str, Array]:
    """Return the gradients for "query", "key", "value", and a float "attn_mask".

    Arguments as in `scaled_dot_product_attention`; `cotangent` is shaped as its output.
    """
    leaves = _leaves({"query": query, "key": key, "value": value})
    masks = _masks({"attn_mask": attn_mask})
    with torch_in_one_thread(), kernel(backend):
        output = torch_sdpa(
            leaves["query"],
            leaves["key"],
            leaves["value"],
            attn_mask=masks.get("attn_mask"),
            is_causal=is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
        )
        return _pulled_back(output, cotangent, leaves | masks)


def _leaves(arrays: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    return {name: to_tensor(array, DTYPE, name).requires_grad_() for name, array in arrays.items()}


def _masks(masks: Mapping[str, Array | None]) -> dict[str, torch.Tensor]:
    """Return the masks that are there; floats are leaves, booleans have no gradient."""
    given = {name: to_tensor(mask, DTYPE, name) for name, mask in masks.items() if mask is not None}
    return {name: mask.requires_grad_(mask.is_floating_point()) for name, mask in given.items()}


def _pulled_back(
    output: torch.Tensor, cotangent: Array, tensors: Mapping[str, torch.Tensor]
) -> dict[str, Array]:
    """Return cotangent^T d(output)/d(tensor) for every leaf; unused ones give 0."""
    leaves = {name: tensor for name, tensor in tensors.items() if tensor.requires_grad}
    # The sum makes a scalar of it: torch loads half a second of algebra to check other cotangents.
    found = torch.autograd.grad(
        (output * to_tensor(cotangent, DTYPE, "cotangent")).sum(),
        list(leaves.values()),
        materialize_grads=True,
        allow_unused=True,
    )
    return {name: to_array(gradient) for name, gradient in zip(leaves, found, strict=True)}
