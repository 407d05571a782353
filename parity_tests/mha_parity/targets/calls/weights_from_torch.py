"""A layer that takes over the weights of ``torch.nn.MultiheadAttention`` by a method of its own."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.targets.calls.problem_weights import arrays_of
from mha_parity.targets.calls.target_call import target_errors
from mha_parity.targets.static.signatures import ANY, signature

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mha_parity.core.problem import Problem
    from mha_parity.targets.backends.base import Library

    Take = Callable[[Any, Any, Mapping[str, Any]], None]

# Class methods that make a layer of torch's, and methods of a layer that take one over.
MAKERS = ("from_torch", "from_pytorch", "from_mha", "from_torch_mha")
LOADERS = (
    "load_torch", "load_from_torch", "copy_from_torch", "load_mha", "load_torch_weights",
    "load_weights", "set_weights",
)  # fmt: skip
MODULES = frozenset({"mha", "torch_mha", "module", "torch_module", "torch_layer"})
STATES = frozenset({"state_dict", "state", "torch_state", "sd"})
# What torch's layer keeps, by the names of arguments.
ARRAYS = {
    "in_proj_weight": "in_proj_weight", "in_proj_bias": "in_proj_bias",
    "out_proj_weight": "out_proj.weight", "out_proj_bias": "out_proj.bias",
}  # fmt: skip


def torch_taker(kind: Any) -> Take | None:
    """Return how a layer of a class takes over torch's by a method; None where it has none.

    The result is called with the layer, an ``nn.MultiheadAttention`` and that one's arrays.
    """
    for name in MAKERS:
        if isinstance(inspect.getattr_static(kind, name, None), classmethod | staticmethod):
            return partial(_copy, getattr(kind, name))
    for name in LOADERS:
        method = inspect.getattr_static(kind, name, None)
        known = (signature(method) if callable(method) else None) or ANY
        names = (*known.required, *known.optional)[1:]
        if len(names) == 1 and names[0] in MODULES | STATES and _speaks_of_torch(method):
            return partial(_load_whole, name, names[0])
        if {"in_proj_weight", "out_proj_weight"} <= {*names} <= {*ARRAYS}:
            return partial(_load_arrays, name, names)
    return None


def _speaks_of_torch(method: Any) -> bool:
    return "MultiheadAttention" in (inspect.getdoc(method) or "")


def _copy(make: Callable[[Any], Any], layer: Any, of_torch: Any, _state: Mapping[str, Any]) -> None:
    made = make(of_torch)
    if hasattr(made, "state_dict") and hasattr(layer, "load_state_dict"):
        layer.load_state_dict(made.state_dict())
    else:
        vars(layer).update(vars(made))


def _load_whole(
    method: str, parameter: str, layer: Any, of_torch: Any, _state: Mapping[str, Any]
) -> None:
    getattr(layer, method)(of_torch.state_dict() if parameter in STATES else of_torch)


def _load_arrays(
    method: str, names: tuple[str, ...], layer: Any, _of_torch: Any, state: Mapping[str, Any]
) -> None:
    getattr(layer, method)(*(state[ARRAYS[name]] for name in names))


def take_torch(take: Take, layer: Any, problem: Problem, library: Library) -> None:
    """Let a layer take over a layer of torch that has a problem's weights.

    Raises
    ------
    CandidateError
        The method raised.

    """
    import torch

    weights, biases = arrays_of(problem, bias=False), arrays_of(problem, bias=True)
    packed = {
        f"in_proj_{kind}": np.concatenate([of[part] for part in ("q", "k", "v")])
        for kind, of in (("weight", weights), ("bias", biases))
    }
    state = packed | {"out_proj.weight": weights["out"], "out_proj.bias": biases["out"]}
    kind, usual = getattr(torch, problem.case.dtype), torch.get_default_dtype()
    of_torch = torch.nn.MultiheadAttention(
        problem.query.shape[-1], problem.num_heads, batch_first=True, dtype=kind
    )
    # Every number of a narrower dtype is one of float64.
    held = {name: torch.from_numpy(a.astype(np.float64)).to(kind) for name, a in state.items()}
    of_torch.load_state_dict(held)
    arrays = {name: library.from_numpy(a.astype(problem.dtype)) for name, a in state.items()}
    torch.set_default_dtype(kind)  # a layer that is made there may copy into new Linears
    try:
        with target_errors():
            take(layer, of_torch.eval(), arrays)
    finally:
        torch.set_default_dtype(usual)
