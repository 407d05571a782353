"""One problem as tensors, and what can be said of it before torch is called."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import torch

from mha_torch._module import STATE_NAMES, Tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Layout: TypeAlias = Literal["batch_first", "sequence_first", "unbatched"]

_PER_HEAD = 3  # axes of a mask with one matrix for each sample and head


@dataclass(frozen=True, slots=True)
class Tensored:
    """One problem as tensors; inputs (N, L, E), (N, S, kdim), (N, S, vdim)."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    state: Tensors
    num_heads: int
    add_zero_attn: bool
    key_padding_mask: torch.Tensor | None
    attn_mask: torch.Tensor | None
    is_causal: bool


def checked(state: Iterable[str], layout: str) -> None:
    """Refuse names and layouts torch does not know."""
    unknown = sorted(set(state) - set(STATE_NAMES))
    if unknown:
        msg = f"`state` has {unknown}, but its names should be among {', '.join(STATE_NAMES)}."
        raise ValueError(msg)
    if layout not in get_args(Layout):
        msg = f"`layout`={layout!r}, but should be one of {', '.join(get_args(Layout))}."
        raise ValueError(msg)


def fast_path_obstacle(problem: Tensored, layout: Layout) -> str:
    """Return why torch's C++ fast path cannot compute this problem, or an empty string."""
    masks = (problem.attn_mask, problem.key_padding_mask)
    obstacles = {
        "query, key and value are not one tensor": not (
            problem.query is problem.key is problem.value
        ),
        "the number of heads is odd": problem.num_heads % 2 == 1,
        f"the layout is {layout}": layout != "batch_first",
        "a mask is of floating point": any(m is not None and m.is_floating_point() for m in masks),
        "bias_k and bias_v are set": "bias_k" in problem.state,
        "add_zero_attn is set": problem.add_zero_attn,
        "there is no bias": not has_bias(problem.state),
    }
    return next((reason for reason, present in obstacles.items() if present), "")


def has_bias(state: Tensors) -> bool:
    """Whether the module has biases: torch has both of its own or none."""
    return "in_proj_bias" in state or "out_proj.bias" in state


def samples(problem: Tensored) -> Iterator[Tensored]:
    """Split the batch into problems of one sample without batch axis."""
    padding = problem.key_padding_mask
    for n in range(problem.query.shape[0]):
        query, key, value = aliased(problem, partial(torch.select, dim=0, index=n))
        yield replace(
            problem,
            query=query,
            key=key,
            value=value,
            key_padding_mask=None if padding is None else padding[n],
            attn_mask=_mask_of_sample(problem, n),
        )


def _mask_of_sample(problem: Tensored, n: int) -> torch.Tensor | None:
    mask, heads = problem.attn_mask, problem.num_heads
    if mask is None or mask.dim() != _PER_HEAD:
        return mask
    return mask[n * heads : (n + 1) * heads]


def aliased(
    problem: Tensored, change: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Apply `change` to the inputs; what was one tensor before is one tensor after."""
    query = change(problem.query)
    key = query if problem.key is problem.query else change(problem.key)
    value = key if problem.value is problem.key else change(problem.value)
    return query, key, value
