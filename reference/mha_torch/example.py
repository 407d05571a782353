"""Random problems that break every symmetry, for the trial of torch and the tests of the oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_torch.plain import Array


@dataclass(frozen=True, slots=True)
class Example:
    """The inputs, weights and head count of one attention."""

    query: Array
    key: Array
    value: Array
    state: Mapping[str, Array]
    num_heads: int

    @property
    def arrays(self) -> tuple[Array, Array, Array, Mapping[str, Array]]:
        """The positional arguments of `multihead_attention`."""
        return self.query, self.key, self.value, self.state


def example(
    seed: int,
    *,
    samples: int = 2,
    queries: int = 5,
    keys: int = 11,
    heads: int = 3,
    head_dim: int = 7,
    kdim: int | None = None,
    vdim: int | None = None,
    bias: bool = True,
    bias_kv: bool = False,
    self_attention: bool = False,
) -> Example:
    """Return standard normal inputs and weights scaled so that logits and outputs are of order 1.

    With `self_attention` one array is query, key and value, and `keys`, `kdim` and `vdim` do not
    count. Biases are never zero.
    """
    rng = np.random.default_rng(seed)
    width = heads * head_dim
    kdim, vdim = kdim or width, vdim or width
    query = rng.standard_normal((samples, queries, width))
    key, value = query, query
    if not self_attention:
        key, value = (rng.standard_normal((samples, keys, size)) for size in (kdim, vdim))

    def weight(columns: int) -> Array:
        drawn: Array = rng.standard_normal((width, columns)) / np.sqrt(columns)
        return drawn

    state = {"out_proj.weight": weight(width)}
    if self_attention or kdim == width == vdim:
        state["in_proj_weight"] = np.concatenate([weight(width) for _ in range(3)])
    else:
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        state |= {n: weight(columns) for n, columns in zip(names, (width, kdim, vdim), strict=True)}
    if bias:
        state["in_proj_bias"] = rng.standard_normal(3 * width)
        state["out_proj.bias"] = rng.standard_normal(width)
    if bias_kv:
        state |= {name: rng.standard_normal((1, 1, width)) for name in ("bias_k", "bias_v")}
    return Example(query, key, value, state, heads)
