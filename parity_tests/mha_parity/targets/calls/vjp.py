"""Gradients of a candidate: by torch's, JAX's or TensorFlow's, or by what a layer offers itself.

A layer that is not torch's offers ``vjp(query, key, value, ...) -> (result, pull)``, where
``pull(cotangent)`` returns gradients by name, or ``backward(cotangent)``, which does after a call.
The cotangent is laid out as the output, and gradients as the arrays they belong to.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import cotangent
from mha_parity.core.candidate import CandidateError
from mha_parity.core.problem import INPUTS, Problem
from mha_parity.targets.backends import to_numpy
from mha_parity.targets.calls.canonical_layout import canonical, lay_rows, split_result
from mha_parity.targets.calls.jax_vjp import JaxVJP
from mha_parity.targets.calls.tape_gradients import TapeGradients
from mha_parity.targets.calls.target_call import target_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mha_parity.core.arrays import Array
    from mha_parity.targets.backends.base import Library
    from mha_parity.targets.calls.target_call import Arguments, Call

NONE_OFFERED = (
    "it takes no arrays of torch, JAX, TensorFlow or Keras, and has no `vjp` or `backward`"
)
DIFFERENTIATE = frozenset({"torch", "jax", "tensorflow", "keras"})  # they follow a call back


def with_layer_gradients(call: Call, layer: Any, arguments: Arguments) -> Call:
    """Return the call of a layer with the way to its gradients, where its case asks for them."""
    problem = arguments.problem
    if problem.case.gradients == "no":
        return call
    given = arguments.library.from_numpy(lay_rows(problem)(cotangent(problem)))
    named = partial(_of_layer, problem)
    if arguments.library.name == "torch":
        leaves = arguments.leaves | dict(layer.named_parameters())
        return dataclasses.replace(call, pull=arrays_pulled(autograd(given, leaves), named))
    offered = _offered(layer, call.function, given)
    return dataclasses.replace(call, function=offered, pull=arrays_pulled(offered.pulled, named))


def with_function_gradients(
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
    given = arguments.library.from_numpy(lay(cotangent(problem)))
    back = back or partial(_canonical, problem)
    called, pull = differentiated(call, arguments, given, arguments.leaves)
    return dataclasses.replace(called, pull=arrays_pulled(pull, masks_first(arguments, back)))


def differentiated(
    call: Call,
    arguments: Arguments,
    given: Any,
    leaves: Mapping[str, Any],
    output_of: Callable[[Any], Any] = lambda result: split_result(result)[0],
) -> tuple[Call, Callable[[Any], dict[str, Any]]]:
    """Return a call that can be followed back, and the function from its result to gradients.

    Raises
    ------
    CandidateError
        The target takes arrays of a library that has no gradients.

    """
    library = _followed_by(arguments.library)
    if library == "torch":
        return call, autograd(given, leaves, output_of)
    if library not in DIFFERENTIATE:
        raise CandidateError("structure", NONE_OFFERED)
    kind = JaxVJP if library == "jax" else TapeGradients
    followed = kind(call.function, leaves, given, output_of)
    return dataclasses.replace(call, function=followed), followed.pulled


def _followed_by(library: Library) -> str:
    """Return the library that follows a call back: of Keras's tensors its backend."""
    return str(getattr(library, "backend", library.name))


def weight_gradients(problem: Problem, found: dict[str, Array]) -> dict[str, Array]:
    """Return gradients of weights applied as X @ W under torch's names and in torch's layout."""
    named = _canonical(problem, found)
    transposed = {
        part: named.pop(f"w_{part}").T for part in ("q", "k", "v", "out") if f"w_{part}" in named
    }
    biases = {part: named.pop(f"b_{part}") for part in transposed if f"b_{part}" in named}
    return named | as_state_dict(problem, transposed, biases)


def as_state_dict(
    problem: Problem, weights: Mapping[str, Array], biases: Mapping[str, Array]
) -> dict[str, Array]:
    """Return weights (out, in) and biases of q, k, v and out under the names of a state dict."""
    state: dict[str, Array] = {}
    rows = "qkv"
    if all(part in weights for part in rows):
        if problem.case.projection == "separate":
            state |= {f"{part}_proj_weight": weights[part] for part in rows}
        else:
            state["in_proj_weight"] = np.concatenate([weights[part] for part in rows])
    if "q" in biases and "v" in biases:
        # A key's bias adds the same to all scores of a row: one that is not there has gradient 0.
        of_keys = biases.get("k", np.zeros_like(biases["q"]))
        state["in_proj_bias"] = np.concatenate([biases["q"], of_keys, biases["v"]])
    state |= {"out_proj.weight": weights["out"]} if "out" in weights else {}
    return state | ({"out_proj.bias": biases["out"]} if "out" in biases else {})


def masks_first(
    arguments: Arguments, back: Callable[[dict[str, Array]], dict[str, Array]]
) -> Callable[[dict[str, Array]], dict[str, Array]]:
    """Return ``back`` after the gradients of masks are put under the names of the problem's."""

    def named(found: dict[str, Array]) -> dict[str, Array]:
        rest = {name: array for name, array in found.items() if name not in arguments.masks}
        masks: dict[str, Array] = {}
        for name, passed in arguments.masks.items():
            if name in found:
                gradient = _with_all_axes(arguments.problem, found[name], passed.axes)
                sums = arguments.problem.mask_sums(gradient).items()
                masks |= {k: a.astype(found[name].dtype) for k, a in sums if k in passed.masks}
        return back(rest) | masks

    return named


def _with_all_axes(problem: Problem, array: Array, axes: tuple[str, ...]) -> Array:
    """Return a mask's gradient, in float32 at least, as (N, H, L, S): 1 for an axis it lacks."""
    named = {"N", "H", *axes} if "NH" in axes else {*axes}
    sizes = zip("NHLS", problem.weights_shape, strict=True)
    precise = array.astype(np.promote_types(np.float32, array.dtype))
    return precise.reshape([size if axis in named else 1 for axis, size in sizes])


def autograd(
    given: Any,
    leaves: Mapping[str, Any],
    output_of: Callable[[Any], Any] = lambda result: split_result(result)[0],
) -> Callable[[Any], dict[str, Any]]:
    """Return the function from a result to the gradients of tensors, which it marks for it."""
    import torch

    for leaf in leaves.values():
        leaf.requires_grad_()

    def pulled(result: Any) -> dict[str, Any]:
        output = output_of(result)
        if not getattr(output, "requires_grad", False):
            if not all(array.numel() for array in (given, *leaves.values())):
                # A loop over no keys, or no rows, computes nothing that could have a gradient.
                return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
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
    """A layer called as usual, and then by its ``backward``."""

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


def arrays_pulled(
    pull: Callable[[Any], Any], back: Callable[[dict[str, Array]], dict[str, Array]]
) -> Callable[[Any], dict[str, Array]]:
    """Return ``pull`` with gradients as NumPy's arrays in canonical layout."""

    def pulled(result: Any) -> dict[str, Array]:
        with target_errors():
            found = pull(result)
        if not isinstance(found, dict):
            kind = type(found).__name__
            message = f"the gradients are of type {kind}, but should be a dict of arrays by name."
            raise CandidateError("structure", message)
        given = {str(name): value for name, value in found.items() if value is not None}
        return back({name: to_numpy(v, f"the gradient of {name}") for name, v in given.items()})

    return pulled


def _canonical(problem: Problem, found: dict[str, Array]) -> dict[str, Array]:
    """Return gradients of arrays in the case's layout in canonical layout."""
    rows = {name: canonical(problem, found[name]) for name in INPUTS if name in found}
    padding = found.get("key_padding_mask")
    if padding is not None and problem.case.layout == "unbatched" and padding.ndim == 1:
        rows["key_padding_mask"] = padding[None]
    return found | rows


def _of_layer(problem: Problem, found: dict[str, Array]) -> dict[str, Array]:
    """Return gradients of a layer like torch's in canonical layout, and under torch's names.

    The layer may have three matrices where torch's has one for inputs of equal widths.
    """
    named = _canonical(problem, found)
    separate = [f"{part}_proj_weight" for part in "qkv"]
    if problem.case.projection == "separate" or not named.keys() >= {*separate}:
        return named
    return named | {"in_proj_weight": np.concatenate([named.pop(name) for name in separate])}


def head_gradients(problem: Problem, found: dict[str, Array]) -> dict[str, Array]:
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
    masks = problem.mask_sums(whole.astype(np.promote_types(np.float32, whole.dtype)))
    return named | {name: array.astype(whole.dtype) for name, array in masks.items()}
