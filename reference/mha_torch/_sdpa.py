"""`torch.nn.functional.scaled_dot_product_attention` on one problem, with a named backend."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import torch
from torch.nn.functional import scaled_dot_product_attention as torch_sdpa

from mha_torch import _kernels
from mha_torch._arrays import Array, to_array, to_tensor
from mha_torch._threads import torch_in_one_thread

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

Backend: TypeAlias = Literal["math", "flash", "default"]

_KERNELS = {"math": _kernels.MATH, "flash": _kernels.FLASH}


def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    *,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    backend: Backend = "math",
    dtype: str = "float64",
) -> Array:
    r"""Return what `F.scaled_dot_product_attention` answers with `backend`, in `dtype`.

    .. math:: \mathrm{softmax}(s\, q k^\top + M)\, v, \qquad s = 1 / \sqrt{D} \text{ by default}

    Parameters
    ----------
    query, key, value
        (..., H, L, D), (..., H, S, D), (..., H, S, Dv).
    attn_mask
        Broadcastable to (..., H, L, S); True = KEEP (the opposite of the module's masks), or a
        float that is added. Not together with `is_causal`, as torch has it.
    is_causal
        Top-left: query i sees the keys j <= i.
    scale, enable_gqa
        As in torch.
    backend
        "math" (the composite of plain operators), "flash" (the blocked CPU kernel), or "default"
        (torch's own choice). torch 2.13 offers no others on a CPU.
    dtype
        As in `multihead_attention`.

    Returns
    -------
    (..., H, L, Dv). Rows that see no key are 0.

    Raises
    ------
    PathNotTakenError
        If the backend cannot compute this problem.
    ValueError
        On an unknown backend or dtype, and on inputs not representable in `dtype`.
    """
    query_, key_, value_ = (
        to_tensor(array, dtype, name)
        for array, name in ((query, "query"), (key, "key"), (value, "value"))
    )
    mask = None if attn_mask is None else to_tensor(attn_mask, dtype, "attn_mask")
    with torch.no_grad(), torch_in_one_thread(), kernel(backend):
        output = torch_sdpa(
            query_,
            key_,
            value_,
            attn_mask=mask,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
        )
    return to_array(output)


def kernel(backend: Backend) -> AbstractContextManager[None]:
    """Return the context in which torch uses this backend and no other."""
    if backend not in get_args(Backend):
        msg = f"`backend`={backend!r}, but should be one of {', '.join(get_args(Backend))}."
        raise ValueError(msg)
    return nullcontext() if backend == "default" else _kernels.forced(_KERNELS[backend])
