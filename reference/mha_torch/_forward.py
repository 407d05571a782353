"""`torch.nn.MultiheadAttention` on one problem, along one named path."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import torch

from mha_torch import _kernels, _masks
from mha_torch._arrays import Array, equal, to_array, to_tensor
from mha_torch._identity import ExactIdentity, identity
from mha_torch._module import ModuleConfig, Tensors, holding, module_parameters
from mha_torch._paths import PINNED, Path, PathNotTakenError
from mha_torch._problem import (
    Layout,
    Tensored,
    aliased,
    checked,
    fast_path_obstacle,
    has_bias,
    samples,
)
from mha_torch._threads import torch_in_one_thread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Answer: TypeAlias = "tuple[torch.Tensor, torch.Tensor | None]"

_FORCED = {Path.SDPA_MATH: _kernels.MATH, Path.SDPA_FLASH: _kernels.FLASH}


def multihead_attention(
    query: Array,
    key: Array,
    value: Array,
    state: Mapping[str, Array],
    *,
    num_heads: int,
    add_zero_attn: bool = False,
    key_padding_mask: Array | None = None,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    layout: Layout = "batch_first",
    path: Path = PINNED,
    dtype: str = "float64",
) -> tuple[Array, Array | None]:
    r"""Return what `torch.nn.MultiheadAttention` answers on `path`, in `dtype`.

    .. math:: \mathrm{head}_h = \mathrm{softmax}(q_h k_h^\top / \sqrt{D} + M) v_h, \quad
              \mathrm{output} = [\mathrm{head}_1 \dots \mathrm{head}_H] W_o^\top + b_o

    Parameters
    ----------
    query, key, value
        (N, L, E), (N, S, kdim), (N, S, vdim), whatever the `layout`. Equal arrays are handed to
        torch as one tensor, as a caller of self-attention would.
    state
        torch's state dict. Without `out_proj.weight` the output projection is the identity,
        without any in-projection weight so is that one; biases that are absent are zero.
    num_heads, add_zero_attn
        As in torch's constructor.
    key_padding_mask
        (N, S), True = hidden, or a float that is added.
    attn_mask
        (L, S) or (N * H, L, S), True = hidden, or a float that is added.
    is_causal
        Without `attn_mask` the top-left causal mask is built here. The hint is handed on; torch
        ignores it where weights are wanted.
    layout
        How torch is called: "batch_first", "sequence_first", or "unbatched" (sample by sample).
    path
        See `Path`.
    dtype
        "float64", "float32", "float16" or "bfloat16"; the inputs must be representable in it.

    Returns
    -------
    output (N, L, E), and the weights of each head (N, H, L, S + appended keys) or None where the
    path does not give them. Fully masked rows are NaN on the pinned path, as torch has it.

    Raises
    ------
    PathNotTakenError
        If torch would silently compute this problem along another path.
    ValueError
        On unknown entries of `state`, dtypes, layouts, and inputs not representable in `dtype`.
    """
    checked(state, layout)
    tensors = {name: to_tensor(array, dtype, name) for name, array in state.items()}
    asked, given, values = _inputs(query, key, value, dtype)
    problem = Tensored(
        asked,
        given,
        values,
        tensors,
        num_heads,
        add_zero_attn,
        _optional(key_padding_mask, dtype, "key_padding_mask"),
        _optional(attn_mask, dtype, "attn_mask"),
        is_causal,
    )
    with torch.inference_mode() if path is Path.FAST else torch.no_grad(), torch_in_one_thread():
        output, weights = forward_answer(problem, layout, path)
    return to_array(output), None if weights is None else to_array(weights)


def _optional(mask: Array | None, dtype: str, name: str) -> torch.Tensor | None:
    return None if mask is None else to_tensor(mask, dtype, name)


def _inputs(
    query: Array, key: Array, value: Array, dtype: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the three inputs; equal ones are one tensor, as in a call f(x, x, x)."""
    asked = to_tensor(query, dtype, "query")
    given = asked if equal(query, key) else to_tensor(key, dtype, "key")
    values = given if equal(key, value) else to_tensor(value, dtype, "value")
    return asked, given, values


def forward_answer(problem: Tensored, layout: Layout, path: Path) -> Answer:
    """Return output (N, L, E) and weights (N, H, L, S') of the problem, canonical batch-first."""
    if path is Path.FAST:
        obstacle = fast_path_obstacle(problem, layout)
        if obstacle:
            msg = f"`path`='fast' is not taken by torch here: {obstacle}."
            raise PathNotTakenError(msg)
    if layout == "unbatched" and len(problem.query) == 0:
        msg = "`layout`='unbatched' got no samples, but should have at least one: use batch_first."
        raise ValueError(msg)
    with _settings(path):
        if layout != "unbatched":
            return _batched(problem, layout, path)
        outputs, weights = zip(
            *(_batched(sample, layout, path) for sample in samples(problem)), strict=True
        )
    return torch.stack(outputs), torch.stack(weights) if path.needs_weights else None


@contextmanager
def _settings(path: Path) -> Iterator[None]:
    """Set torch up for the path and leave it as it was found."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        if path in {Path.FAST, Path.EVAL} and not enabled:
            torch.backends.mha.set_fastpath_enabled(True)
            stack.callback(torch.backends.mha.set_fastpath_enabled, enabled)
        if path in _FORCED:
            stack.enter_context(_kernels.forced(_FORCED[path]))
        yield


def _batched(problem: Tensored, layout: Layout, path: Path) -> Answer:
    """Call the module once and bring its answer back to (N, L, E)."""
    if layout != "sequence_first":
        return _call(problem, layout, path)
    query, key, value = aliased(problem, lambda inputs: inputs.transpose(0, 1))
    output, weights = _call(replace(problem, query=query, key=key, value=value), layout, path)
    return output.transpose(0, 1), weights


def _call(problem: Tensored, layout: Layout, path: Path) -> Answer:
    """Call torch with its own shapes for this layout."""
    dtype = problem.query.dtype
    configuration = _configuration(problem, layout, path)
    lent = module_parameters(problem.state, configuration, dtype)
    arguments = (problem.query, problem.key, problem.value)
    options = _options(problem, layout, path)
    with holding(configuration, lent) as module:
        answer: Answer = module(*arguments, **options)
        identities = _identities(problem.state, configuration, dtype)
        if identities and path is not Path.FAST and not bool(answer[0].isfinite().all()):
            with ExactIdentity(identities):
                answer = module(*arguments, **options)
    return answer


def _configuration(problem: Tensored, layout: Layout, path: Path) -> ModuleConfig:
    return ModuleConfig(
        embed_dim=problem.query.shape[-1],
        num_heads=problem.num_heads,
        kdim=problem.key.shape[-1],
        vdim=problem.value.shape[-1],
        bias=has_bias(problem.state),
        add_bias_kv="bias_k" in problem.state,
        add_zero_attn=problem.add_zero_attn,
        batch_first=layout != "sequence_first",
        training=path.training,
    )


def _options(problem: Tensored, layout: Layout, path: Path) -> dict[str, object]:
    """Return the keyword arguments of the module's call."""
    mask = problem.attn_mask
    if problem.is_causal and mask is None:
        axis = 0 if layout == "sequence_first" else -2
        mask = _masks.causal(problem.query.shape[axis], problem.key.shape[axis])
    mask, padding = _masks.of_one_kind(mask, problem.key_padding_mask, problem.query.dtype)
    return {
        "key_padding_mask": padding,
        "need_weights": path.needs_weights,
        "attn_mask": mask,
        "average_attn_weights": False,
        "is_causal": problem.is_causal,
    }


def _identities(
    state: Tensors, configuration: ModuleConfig, dtype: torch.dtype
) -> list[torch.Tensor]:
    """Return the identity matrices that stand in for weights the problem does not have."""
    found = []
    if "out_proj.weight" not in state:
        found.append(identity(configuration.embed_dim, 1, dtype))
    if not any(name.endswith("_proj_weight") for name in state):
        found.append(identity(configuration.embed_dim, 3, dtype))
    return found
