"""The parameters of a module of torch that its call does not read, as autograd shows."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.conventions.calls import target_errors
from mha_parity.targets.conventions.signatures import forward
from mha_parity.targets.fit.build import is_module
from mha_parity.targets.fit.roles import of_layer
from mha_parity.targets.parameters import modes_of, of_callable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.targets.fit.argument_meanings import LayerSizes

N, L = 2, 3  # samples and rows of the call


def unread_parameters(layer: Any, sizes: LayerSizes) -> frozenset[str]:
    """Return the paths of parameters that nothing returned depends on; none if each call raises."""
    if not is_module(layer):
        return frozenset()
    import torch

    named = of_callable(forward(layer))
    dtype = next((each.dtype for each in layer.parameters()), torch.float32)
    rows = torch.ones(N, L, sizes.width, dtype=dtype)
    case = sizes.case(N, L)
    for roles in of_layer(named):
        values: dict[str, Any] = {name: rows for name, _ in roles.inputs}
        values |= roles.without_effect(case, np.float32, lambda _, a: torch.as_tensor(a))
        values |= roles.of_lengths(L, L)
        values |= roles.sized(sizes)
        values |= modes_of(named, training=False)
        with suppress(CandidateError), target_errors():
            outcome = sum(each.sum() for each in _differentiable(layer(**values)))
            held = dict(layer.named_parameters())
            found: tuple[Any, ...] = torch.autograd.grad(
                outcome, [*held.values()], allow_unused=True
            )
            return frozenset(n for n, each in zip(held, found, strict=True) if each is None)
    return frozenset()


def _differentiable(result: Any) -> Iterator[Any]:
    """Yield the tensors in a result that have a gradient."""
    if isinstance(result, dict):
        result = tuple(result.values())
    if isinstance(result, tuple | list):
        for each in result:
            yield from _differentiable(each)
    elif getattr(result, "requires_grad", False):
        yield result
