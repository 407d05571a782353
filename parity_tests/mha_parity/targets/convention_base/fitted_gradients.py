"""Gradients of a target that is called as experiments showed: back through its arrays' layouts."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import cotangent
from mha_parity.core.problem import INPUTS, Problem
from mha_parity.targets.calls import problem_weights
from mha_parity.targets.calls.backward_method import gradients_by_backward
from mha_parity.targets.calls.vjp import (
    DIFFERENTIATE,
    NONE_OFFERED,
    arrays_pulled,
    as_state_dict,
    differentiated,
    masks_first,
)
from mha_parity.targets.layers.weights import sizes_of, slot_array
from mha_parity.targets.static.documented_scale import UNSCALED_GRADIENTS, documents_unscaled
from mha_parity.targets.static.projection_names import ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.targets.backends.base import Library
    from mha_parity.targets.calls.target_call import Arguments, Call
    from mha_parity.targets.interpretations.interpretation import Interpretation
    from mha_parity.targets.interpretations.packed_inputs import PackedInput
    from mha_parity.targets.layers.weights import Slot

    Pull = Callable[[Any], dict[str, Any]]  # from what a call returned to gradients by name
    # Where an array's entries come from, and the tensor that was passed.
    WeightLeaf = tuple[Slot, Any]

RESIDUAL = "the input that is added to the output has gradients of its own"
WIDER = "its heads are wider than torch's"
NOT_CALLED = "no small call shows what its `{}` takes and returns"
CONVERTED = "a function of its own converts its weights"
FIRST_ROWS = "its first row alone is a query, and other rows were asked in samples of their own"
PARTIAL = "it has no weights of its own for some of q, k and v"


def no_gradients(
    subject: object, how: Interpretation, library: Library, *, converted: bool, beside: bool
) -> str:
    """Return why a target called so is not asked for gradients; "" where it is.

    ``converted``: a method of its own takes over torch's weights, it is unknown to where;
    ``beside``: a function beside it computes them.
    """
    own = getattr(library, "differentiates", callable(getattr(subject, "backward", None)))
    if library.name not in DIFFERENTIATE and not (own or beside):
        return NOT_CALLED.format("vjp") if hasattr(subject, "vjp") else NONE_OFFERED
    if converted:
        return CONVERTED
    others = {
        RESIDUAL: how.residual,
        UNSCALED_GRADIENTS: documents_unscaled(subject),
        WIDER: how.full_width,
        FIRST_ROWS: how.arrangement == "first_row",
        PARTIAL: bool(how.parts) and not how.parts >= set(ROWS),
    }
    return next((reason for reason, found in others.items() if found), "")


def with_fitted_gradients(
    call: Call,
    arguments: Arguments,
    weights: Iterable[WeightLeaf],
    lay: Callable[[Array], Array],
    canonical: Callable[[Array], Array],
    output_of: Callable[[Any], Any],
    packed: PackedInput | None = None,
    layer: Any = None,
    inputs: Sequence[str] = (),
    beside: Callable[[Call, Any], Pull] | None = None,
) -> Call:
    """Return a call with the way to its gradients, where its case asks for them.

    ``lay`` turns canonical rows into the target's and ``canonical`` turns them back; ``output_of``
    finds the output in what is returned. ``packed`` says how one array holds several inputs.
    ``layer`` may have a `backward` of its own, and ``inputs`` are those of the call in their order.
    ``beside`` returns, of a call and a cotangent, how a function beside the target computes them.
    """
    problem = arguments.problem
    if problem.case.gradients == "no":
        return call
    held = list(weights)
    leaves = {name: leaf for name, leaf in arguments.leaves.items() if not name.startswith("w_")}
    leaves |= {f"weight {place}": tensor for place, (_, tensor) in enumerate(held)}
    given = arguments.library.from_numpy(lay(cotangent(problem)))

    def back(found: dict[str, Array]) -> dict[str, Array]:
        rows = {name: canonical(found[name]) for name in INPUTS if name in found}
        if packed is not None and "packed" in found:
            rows |= packed.unpack(problem, found["packed"])
        named = {f"weight {place}": slot for place, (slot, _) in enumerate(held)}
        slots = [(slot, found[name]) for name, slot in named.items() if name in found]
        matrices, biases = (parts_of(problem, slots, bias=bias) for bias in (False, True))
        return rows | as_state_dict(problem, matrices, biases)

    if beside is not None:
        called, pull = call, beside(call, given)
    elif arguments.library.name in DIFFERENTIATE:
        called, pull = differentiated(call, arguments, given, leaves, output_of)
    else:
        paths = {f"weight {place}": slot.path for place, (slot, _) in enumerate(held)}
        alike = problem.query is problem.key is problem.value  # projected rows are three arrays
        called, pull = (
            call,
            gradients_by_backward(
                layer,
                given,
                paths,
                inputs,
                arguments.leaves,
                output_of,
                of_one_array=alike and len(inputs) > 1,
            ),
        )
    return dataclasses.replace(called, pull=arrays_pulled(pull, masks_first(arguments, back)))


def parts_of(
    problem: Problem, found: Iterable[tuple[Slot, Array]], *, bias: bool
) -> Mapping[str, Array]:
    """Return the gradients of q, k, v and out, (out, in) or (out,), from those of the arrays.

    An array holds each entry of its parts once: filled with the entries' numbers, it says which.
    """
    arrays = problem_weights.arrays_of(problem, bias=bias)
    starts = np.cumsum([0, *(array.size for array in arrays.values())])
    numbers = {
        part: np.arange(start, start + array.size).reshape(array.shape)
        for (part, array), start in zip(arrays.items(), starts, strict=False)
    }
    own = [(slot, gradient) for slot, gradient in found if slot.bias is bias]
    entries = np.zeros(int(starts[-1]), own[0][1].dtype if own else None)
    for slot, gradient in own:
        entries[slot_array(slot, problem, numbers, sizes_of(problem)).reshape(-1)] = (
            gradient.reshape(-1)
        )
    return {part: entries[numbers[part]] for slot, _ in own for part in slot.parts}
