"""Backward pass through the input projections: from gradients of the heads to those of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_numpy.engines.parallel import product
from mha_numpy.projections import joint_projections, split_heads

if TYPE_CHECKING:
    from mha_numpy.call import CheckedCall
    from mha_numpy.dtypes import Array

RUN = 16
"""Rows that are added up in their own dtype."""


class ProjectedGradients:
    """Memory for the gradients of the projected q, k and v, laid out as the projections wrote them.

    What one product projected lies side by side, so one product gives the gradient of its weights.
    `heads` are views of it, (N, H, L, D) and twice (N, H, S, D), to be written before `gradients`
    is called.
    """

    def __init__(self, call: CheckedCall) -> None:
        self._call = call
        parameters = call.parameters
        width = parameters.out_proj.weight.shape[1]
        self._sources = joint_projections(*call.inputs, parameters)
        self._arrays = [
            np.empty((*x.shape[:2], parts * width), x.dtype) for x, _, parts in self._sources
        ]
        heads, batch_first = call.options.num_heads, call.options.batch_first
        self.heads: list[Array] = []
        for array, (_, _, parts) in zip(self._arrays, self._sources, strict=True):
            self.heads.extend(split_heads(array, array.shape, parts, heads, batch_first))

    def gradients(self) -> dict[str, Array]:
        """Return the gradients of query, key, value and of the input projections' parameters."""
        of_inputs, of_weights, of_biases = [], [], []
        for array, (x, (weight, _), parts) in zip(self._arrays, self._sources, strict=True):
            rows = array.reshape(-1, array.shape[2])
            of_weights.append(product(rows.T, x.reshape(-1, x.shape[2]).T, None))
            of_biases.append(column_sums(rows))
            for i in range(parts):
                part = slice(i * rows.shape[1] // parts, (i + 1) * rows.shape[1] // parts)
                d_x = product(rows[:, part], weight[part].T, None)
                of_inputs.append(d_x.reshape(x.shape))
        found = dict(zip(("query", "key", "value"), of_inputs, strict=True))
        parameters = self._call.parameters
        if parameters.in_proj_weight is None:
            names = "q_proj_weight", "k_proj_weight", "v_proj_weight"
            found.update(zip(names, of_weights, strict=True))
        else:
            found["in_proj_weight"] = _joined(of_weights)
        if parameters.in_proj_bias is not None:
            found["in_proj_bias"] = _joined(of_biases)
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
