"""The parameters of a module of torch that its call does not read, as autograd shows."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.calls.target_call import target_errors
from mha_parity.targets.interpretations.roles import of_layer
from mha_parity.targets.layers.build_layer import is_module
from mha_parity.targets.static.call_parameters import modes_of, of_callable
from mha_parity.targets.static.projection_names import parts
from mha_parity.targets.static.signatures import forward

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.targets.layers.layer_arrays import Leaf
    from mha_parity.targets.static.argument_meanings import LayerSizes

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


def spare_parameters(unread: frozenset[str], leaves: Sequence[Leaf]) -> frozenset[str]:
    """Return the unread parameters that are no projection's, or one that another is, too.

    A projection that is forgotten is none of them: the layer is wrong without it.
    """
    found = {leaf.path: set(parts(leaf.path)) for leaf in leaves}
    read = set[str]().union(*(each for path, each in found.items() if path not in unread))
    return frozenset(path for path in unread if found.get(path, set()) <= read)
