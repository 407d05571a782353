"""Gradients of a candidate: by torch's autograd, or by what a layer offers itself.

A layer that is not torch's offers ``vjp(query, key, value, ...) -> (result, pull)``, where
``pull(cotangent)`` returns gradients by name, or ``backward(cotangent)``, which does after a call.
The cotangent is laid out as the output, and gradients as the arrays they belong to.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.adapters import to_numpy
from mha_parity.candidate import CandidateError
from mha_parity.conventions.base import blamed, canonical, lay_rows, split
from mha_parity.making import cotangent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mha_parity.conventions.base import Arguments, Call
    from mha_parity.problem import Problem
    from mha_parity.values import Array

ROWS = ("query", "key", "value")
NONE_OFFERED = (
    "no gradients are offered: it takes no tensors of torch, and has no `vjp` and no `backward`"
)


def of_layer(call: Call, layer: Any, arguments: Arguments) -> Call:
    """Return the call of a layer with the way to its gradients, where its case asks for them."""
    problem = arguments.problem
    if problem.case.gradients == "no":
        return call
    given = arguments.library.from_numpy(lay_rows(problem)(cotangent(problem)))
    named = partial(_canonical, problem)
    if arguments.library.name == "torch":
        leaves = arguments.leaves | dict(layer.named_parameters())
        return dataclasses.replace(call, pull=_arrays(_autograd(given, leaves), named))
    offered = _offered(layer, call.function, given)
    return dataclasses.replace(call, function=offered, pull=_arrays(offered.pulled, named))


def of_function(
    call: Call,
    arguments: Arguments,
    lay: Callable[[Array], Array],
    back: Callable[[dict[str, Array]], dict[str, Array]] | None = None,
) -> Call:
    """Return the call of a function of tensors with the way to the gradients of what it takes.

    ``lay`` turns the canonical output into the function's, ``back`` its gradients into canonical
    ones (default: as its rows are laid).
    """
    problem = arguments.problem
    if problem.case.gradients == "no":
        return call
    if arguments.library.name != "torch":
        raise CandidateError("structure", NONE_OFFERED)
    given = arguments.library.from_numpy(lay(cotangent(problem)))
    back = back or partial(_canonical, problem)
    return dataclasses.replace(call, pull=_arrays(_autograd(given, arguments.leaves), back))


def _autograd(given: Any, leaves: Mapping[str, Any]) -> Callable[[Any], dict[str, Any]]:
    """Return the function from a result to the gradients of tensors, which it marks for it."""
    import torch

    for leaf in leaves.values():
        leaf.requires_grad_()

    def pulled(result: Any) -> dict[str, Any]:
        output = split(result)[0]
        if not getattr(output, "requires_grad", False):
            message = "the output has no gradient, but should: it is cut off from its inputs."
            raise CandidateError("structure", message)
        # The sum makes a scalar of it: torch loads half a second of algebra for other cotangents.
        total = (output * given).sum()
        found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        return dict(zip(leaves, found, strict=True))

    return pulled


class _Vjp:
    """A layer called by its ``vjp``."""

    def __init__(self, vjp: Callable[..., Any], given: Any) -> None:
        self._vjp = vjp
        self._given = given

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        answer = self._vjp(*args, **kwargs)
        if not (isinstance(answer, tuple) and len(answer) == 2 and callable(answer[1])):
            raise CandidateError("structure", "`vjp` should return a result and a function.")
        result, self._pull = answer
        return result

    def pulled(self, result: Any) -> Any:
        del result
        return self._pull(self._given)


class _Backward:
    """A layer that has ``backward`` beside its call."""

    def __init__(
        self, call: Callable[..., Any], backward: Callable[[Any], Any], given: Any
    ) -> None:
        self._call = call
        self._backward = backward
        self._given = given

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def pulled(self, result: Any) -> Any:
        del result
        return self._backward(self._given)


def _offered(layer: Any, call: Callable[..., Any], given: Any) -> _Vjp | _Backward:
    for name in ("vjp", "backward"):
        method = getattr(layer, name, None)
        if callable(method):
            return _Vjp(method, given) if name == "vjp" else _Backward(call, method, given)
    raise CandidateError("structure", NONE_OFFERED)


def _arrays(
    pull: Callable[[Any], Any], back: Callable[[dict[str, Array]], dict[str, Array]]
) -> Callable[[Any], dict[str, Array]]:
    """Return ``pull`` with gradients as NumPy's arrays in canonical layout."""

    def pulled(result: Any) -> dict[str, Array]:
        with blamed():
            found = pull(result)
        if not isinstance(found, dict):
            got = type(found).__name__
            message = f"the gradients are of type {got}, but should be a dict of arrays by name."
            raise CandidateError("structure", message)
        given = {str(name): value for name, value in found.items() if value is not None}
        return back({name: to_numpy(v, f"the gradient of {name}") for name, v in given.items()})

    return pulled


def _canonical(problem: Problem, found: dict[str, Array]) -> dict[str, Array]:
    """Return gradients of arrays in the case's layout in canonical layout."""
    rows = {name: canonical(problem, found[name]) for name in ROWS if name in found}
    padding = found.get("key_padding_mask")
    if padding is not None and problem.case.layout == "unbatched" and padding.ndim == 1:
        rows["key_padding_mask"] = padding[None]
    return found | rows


def of_heads(problem: Problem, found: dict[str, Array]) -> dict[str, Array]:
    """Return the gradients of arrays with an axis of heads, and of all masks as one.

    Query, key and value are (N, H, L, D), or (H, L, D) where there is no batch.
    """
    named = dict(found)
    joined = named.pop("attn_mask", None)
    for name, array in named.items():
        whole = array[None] if array.ndim == 3 else array
        named[name] = whole.swapaxes(1, 2).reshape(getattr(problem, name).shape)
    if joined is None:
        return named
    whole = joined.reshape((1,) * (4 - joined.ndim) + joined.shape)
    wide = whole.astype(np.promote_types(np.float32, whole.dtype))
    masks = problem.mask_sums(wide)
    return named | {name: array.astype(whole.dtype) for name, array in masks.items()}
