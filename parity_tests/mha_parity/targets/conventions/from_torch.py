"""A layer that takes over the weights of ``torch.nn.MultiheadAttention`` by a method of its own."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.targets.conventions.calls import target_errors
from mha_parity.targets.problem_arrays import arrays_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.problem import Problem
    from mha_parity.targets.backends.base import Library

NAMES = ("from_torch", "from_pytorch", "from_mha", "from_torch_mha")


def converter(kind: Any) -> Callable[[Any], Any] | None:
    """Return the method of a class that makes a layer of torch's, None where it has none."""
    for name in NAMES:
        if isinstance(inspect.getattr_static(kind, name, None), classmethod | staticmethod):
            return getattr(kind, name)  # type: ignore[no-any-return]
    return None


def converted_state(
    load: Callable[[Any], Any], problem: Problem, library: Library
) -> dict[str, Any]:
    """Return the state of the layer that ``load`` makes of torch's with a problem's weights.

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
    of_torch.load_state_dict({name: library.from_numpy(a) for name, a in state.items()})
    torch.set_default_dtype(kind)  # a layer that is made there may copy into new Linears
    try:
        with target_errors():
            made: dict[str, Any] = load(of_torch.eval()).state_dict()
    finally:
        torch.set_default_dtype(usual)
    return made
