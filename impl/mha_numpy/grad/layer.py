"""One call of a layer and its backward pass: from the cotangents to every gradient.

output projection -> merge heads -> attend -> append keys -> split heads -> project, backwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_numpy.call import CallOptions, CheckedCall, check_call
from mha_numpy.dtypes import BOOL, Array, to_array
from mha_numpy.engines.dispatch import choose_engine
from mha_numpy.engines.threads import limit_blas_threads, product
from mha_numpy.engines.tiles import slices
from mha_numpy.grad.heads import attend_heads_vjp
from mha_numpy.grad.targets import HeadGradients, Pull, to_cotangent, zeros_for
from mha_numpy.multihead import as_given, heads_of
from mha_numpy.projections import Projections, joint_projections, project_heads, split_projections
from mha_numpy.validation import quiet

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from mha_numpy.call import Given
    from mha_numpy.engines.dispatch import Results

    Gradients = dict[str, Array]

RUN = 16
"""Rows that are added up in their own dtype."""


def layer_vjp(
    inputs: Given, parameters: Projections, options: CallOptions
) -> tuple[Results, Callable[..., Gradients]]:
    """Return what `MultiheadAttention.vjp` does, all inputs checked."""
    parameters = Projections.from_named(parameters.named_arrays())  # others may be assigned
    masks = _float_masks(options)
    if "attn_mask" in masks:
        # It has a gradient, so it is added as the array it is, even where it is the causal one.
        options = options._replace(is_causal=False)
    call = check_call(inputs, parameters, options)
    engine, out_proj = choose_engine(call.options, call.scores), call.parameters.out_proj
    with limit_blas_threads(engine):
        heads_out, held, pull_heads = attend_heads_vjp(heads_of(call), engine)
        output, merged = project_heads(heads_out, out_proj, call.options.batch_first)
        output, weights = _results(call, output, held)
    shape, of_weights = output.shape, None if weights is None else weights.shape

    @quiet
    def pull(output_cotangent: ArrayLike, weights_cotangent: ArrayLike | None = None) -> Gradients:
        d_output = to_cotangent(output_cotangent, "output_cotangent", "output", shape, call.dtype)
        d_weights = None
        if weights_cotangent is not None:
            if of_weights is None:
                raise ValueError(
                    "`weights_cotangent` is given, but no weights were returned that it could be "
                    "of; pass None, or ask for them with need_weights=True."
                )
            d_weights = to_cotangent(
                weights_cotangent, "weights_cotangent", "weights", of_weights, call.dtype
            )
        with limit_blas_threads(engine):
            return _gradients(call, masks, merged, pull_heads, d_output, d_weights)

    return (output, weights), pull


def _float_masks(options: CallOptions) -> dict[str, Array]:
    """Return the masks that have a gradient, in the order in which they are added."""
    given = {"attn_mask": options.attn_mask, "key_padding_mask": options.key_padding_mask}
    arrays = {name: to_array(mask, name) for name, mask in given.items() if mask is not None}
    return {name: mask for name, mask in arrays.items() if mask.dtype != BOOL}


def _results(call: CheckedCall, output: Array, held: Array | None) -> Results:
    """Return output and weights, copied or averaged, as the caller gets them: NaN as in torch."""
    if held is None or not call.options.need_weights:
        return as_given(call, output, None)
    *rows, keys = held.shape
    unseen = np.broadcast_to(call.masking.unseen(rows[-1], keys, held.dtype), rows)
    blank = np.logical_or.reduce(unseen, axis=1)
    average = call.options.average_attn_weights
    weights = np.mean(held, axis=1) if average else held.copy()
    weights[blank if average else unseen] = np.nan
    by_row = output if call.options.batch_first else output.swapaxes(0, 1)
    by_row[blank] = np.nan
    return as_given(call, output, weights)


def _gradients(
    call: CheckedCall,
    masks: dict[str, Array],
    merged: Array,
    pull_heads: Pull,
    d_output: Array,
    d_weights: Array | None,
) -> Gradients:
    """Return every gradient by name, in the dtype of what it belongs to.

    `masks` are the float masks as they were given, `merged` what the output projection read.
    """
    options, working = call.options, merged.dtype
    d_rows = d_output.astype(working, copy=False).reshape(-1, d_output.shape[-1])
    out_proj = call.parameters.out_proj
    d_merged = product(d_rows, out_proj.weight.T, None)
    (d_heads,) = split_projections(
        d_merged, merged.shape, 1, options.num_heads, options.batch_first
    )
    projected = ProjectedGradients(call)
    pull_heads(d_heads, _for_each_head(call, d_weights), projected.targets)
    found = projected.gradients()
    found["out_proj.weight"] = product(d_rows.T, merged.reshape(-1, merged.shape[-1]).T, None)
    if out_proj.bias is not None:
        found["out_proj.bias"] = column_sums(d_rows)
    if not call.batched:
        found |= {name: found[name][0] for name in ("query", "key", "value")}
    found = {name: array.astype(call.dtype, copy=False) for name, array in found.items()}
    return found | _mask_gradients(call, masks, projected.targets.bias)


def _for_each_head(call: CheckedCall, d_weights: Array | None) -> Array | None:
    """Return the cotangent of the weights, (N, H, L, S) or (N, 1, L, S), in the working dtype."""
    if d_weights is None:
        return None
    own = d_weights.astype(call.inputs[0].dtype, copy=False)
    own = own if call.batched else own[None]
    return own[:, None] / call.options.num_heads if call.options.average_attn_weights else own


def _mask_gradients(
    call: CheckedCall, masks: dict[str, Array], bias: tuple[Array, ...]
) -> dict[str, Array]:
    """Return the float masks' gradients, without the columns of the appended keys."""
    return {
        name: gradient[..., : gradient.shape[-1] - call.masking.appended]
        .reshape(mask.shape)
        .astype(mask.dtype, copy=False)
        for (name, mask), gradient in zip(masks.items(), bias, strict=True)
    }


class ProjectedGradients:
    """Memory for the gradients of the projected q, k and v, laid out as the projections wrote them.

    What one product projected lies side by side, so one product gives the gradient of its weights.
    `targets` has views of it, or memory of its own for keys with appended ones, to be written
    before `gradients` is called.
    """

    def __init__(self, call: CheckedCall) -> None:
        self._parameters, self._appended = call.parameters, call.masking.appended
        width = call.parameters.out_proj.weight.shape[1]
        self._sources = joint_projections(call.inputs, call.parameters)
        self._arrays = [
            np.empty((*x.shape[:2], parts * width), x.dtype) for x, _, parts in self._sources
        ]
        heads, batch_first = call.options.num_heads, call.options.batch_first
        self._heads: list[Array] = []
        for array, (_, _, parts) in zip(self._arrays, self._sources, strict=True):
            self._heads.extend(split_projections(array, array.shape, parts, heads, batch_first))
        q, k, v = self._heads
        if self._appended:
            longer = (*k.shape[:2], k.shape[2] + self._appended, k.shape[3])
            k, v = np.empty(longer, k.dtype), np.empty(longer, v.dtype)
        self.targets = HeadGradients(q, k, v, zeros_for(call.masking, q.dtype))

    def gradients(self) -> dict[str, Array]:
        """Return the gradients of query, key, value and of the input projections' parameters."""
        of_appended = self._take_appended() if self._appended else {}
        of_inputs, of_weights, of_biases = [], [], []
        for array, (x, (weight, _), parts) in zip(self._arrays, self._sources, strict=True):
            rows = array.reshape(-1, array.shape[2])
            of_weights.append(product(rows.T, x.reshape(-1, x.shape[2]).T, None))
            of_biases.append(column_sums(rows))
            for part in slices(0, len(weight), len(weight) // parts):
                d_x = product(rows[:, part], weight[part].T, None)
                of_inputs.append(d_x.reshape(x.shape))
        found = dict(zip(("query", "key", "value"), of_inputs, strict=True))
        if self._parameters.in_proj_weight is None:
            names = "q_proj_weight", "k_proj_weight", "v_proj_weight"
            found |= zip(names, of_weights, strict=True)
        else:
            found["in_proj_weight"] = _joined(of_weights)
        if self._parameters.in_proj_bias is not None:
            found["in_proj_bias"] = _joined(of_biases)
        return found | of_appended

    def _take_appended(self) -> dict[str, Array]:
        """Write the gradients of the keys that came in; return those of bias_k and bias_v."""
        _, k, v = self._heads
        keys, found = k.shape[2], {}
        for name, into, gradient in (("bias_k", k, self.targets.k), ("bias_v", v, self.targets.v)):
            into[...] = gradient[:, :, :keys]
            if self._parameters.bias_k is not None:
                found[name] = np.add.reduce(gradient[:, :, keys], axis=0).reshape(1, 1, -1)
        return found


def column_sums(rows: Array) -> Array:
    """Return the sums over axis 0, of runs of rows first and of these in float64.

    One sum row by row loses a digit that torch keeps; all in float64 takes four times as long.
    """
    whole = len(rows) - len(rows) % RUN
    runs = np.add.reduce(rows[:whole].reshape(-1, RUN, rows.shape[1]), axis=1)
    total: Array = np.add.reduce(runs, axis=0, dtype=np.float64)
    total += np.add.reduce(rows[whole:], axis=0)
    return total.astype(rows.dtype)


def _joined(arrays: list[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
