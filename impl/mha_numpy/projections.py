"""The four projections of a layer, and the way from sequences to heads and back."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mha_numpy.engines.threads import product

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_numpy.dtypes import Array

    Three = tuple[Array, Array, Array]  # what belongs to query, key and value
    Parameters = tuple[Array, Array | None]  # a Linear, or parts of its arrays


class Linear(NamedTuple):
    """The parameters of y = x @ weight.T + bias, weight (out, in) as torch keeps it."""

    weight: Array
    bias: Array | None = None


@dataclass(eq=False)
class Projections:
    """All parameters of a layer, under torch's names.

    Either `in_proj_weight` (3E, E) holds the three input projections one under the other, or, for
    keys or values of another width, `q_proj_weight` (E, E), `k_proj_weight` (E, kdim) and
    `v_proj_weight` (E, vdim) hold one each. `in_proj_bias` is (3E,) in both cases, `bias_k` and
    `bias_v` are (1, 1, E).
    """

    in_proj_weight: Array | None
    q_proj_weight: Array | None
    k_proj_weight: Array | None
    v_proj_weight: Array | None
    in_proj_bias: Array | None
    bias_k: Array | None
    bias_v: Array | None
    out_proj: Linear

    @property
    def widths(self) -> tuple[int, int, int]:
        """Return the widths of query, key and value."""
        embed_dim, k, v = self.out_proj.weight.shape[1], self.k_proj_weight, self.v_proj_weight
        if k is None or v is None:
            return embed_dim, embed_dim, embed_dim
        return embed_dim, k.shape[1], v.shape[1]

    def named_arrays(self) -> dict[str, Array]:
        """Return the parameters that are there by torch's names, in torch's order."""
        named = {name: getattr(self, name) for name in _INPUT_NAMES}
        named |= {"out_proj.weight": self.out_proj.weight, "out_proj.bias": self.out_proj.bias}
        return {name: array for name, array in named.items() if array is not None}

    @classmethod
    def from_named(cls, named: Mapping[str, Array]) -> Projections:
        """Return the parameters that `named_arrays` names; what is not named is not there."""
        out_proj = Linear(named["out_proj.weight"], named.get("out_proj.bias"))
        return Projections(**{name: named.get(name) for name in _INPUT_NAMES}, out_proj=out_proj)

    def astype(self, dtype: np.dtype[Any]) -> Projections:
        """Return the parameters in another dtype."""
        named = self.named_arrays().items()
        return Projections.from_named({name: array.astype(dtype) for name, array in named})


_INPUT_NAMES = tuple(field.name for field in fields(Projections) if field.name != "out_proj")


def parameter_shapes(embed_dim: int, kdim: int, vdim: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter of a layer by torch's name, in torch's order."""
    return {
        "in_proj_weight": (3 * embed_dim, embed_dim),
        "q_proj_weight": (embed_dim, embed_dim),
        "k_proj_weight": (embed_dim, kdim),
        "v_proj_weight": (embed_dim, vdim),
        "in_proj_bias": (3 * embed_dim,),
        "bias_k": (1, 1, embed_dim),
        "bias_v": (1, 1, embed_dim),
        "out_proj.weight": (embed_dim, embed_dim),
        "out_proj.bias": (embed_dim,),
    }


def project_to_heads(
    inputs: Three, parameters: Projections, num_heads: int, *, batch_first: bool
) -> Three:
    """Return q (N, H, L, D), k and v (N, H, S, D): the projected inputs, as views of new arrays.

    Inputs are (N, L, E) where `batch_first`, else (L, N, E). Where the same array comes in
    as key and value, or as all three, one product projects it for all of them.
    """
    found: list[Array] = []
    for x, (weight, bias), parts in joint_projections(inputs, parameters):
        rows = product(x.reshape(-1, x.shape[-1]), weight, bias)
        heads = split_projections(rows, x.shape, parts, num_heads, batch_first)
        found.extend(map(heads.__getitem__, range(parts)))  # unpacking takes twice as long
    q, k, v = found
    return q, k, v


def joint_projections(
    inputs: Three, parameters: Projections
) -> list[tuple[Array, Parameters, int]]:
    """Return each input with its projection, and for how many of q, k, v it is, in their order."""
    query, key, value = inputs
    packed, bias = parameters.in_proj_weight, parameters.in_proj_bias
    if packed is not None and query is key is value:
        return [(query, (packed, bias), 3)]
    sources = [(query, 1), (key, 1), (value, 1)]
    if packed is not None and key is value:
        sources = [(query, 1), (key, 2)]
    weights = [parameters.q_proj_weight, parameters.k_proj_weight, parameters.v_proj_weight]
    found: list[tuple[Array, Parameters, int]] = []
    width, start = parameters.out_proj.weight.shape[1], 0
    for x, parts in sources:
        rows = slice(start, start + parts * width)
        weight = weights[len(found)] if packed is None else packed[rows]
        assert weight is not None  # noqa: S101 (either way there is one; this is for the type checker)
        found.append((x, (weight, None if bias is None else bias[rows]), parts))
        start = rows.stop
    return found


def split_projections(
    projected: Array, shape: tuple[int, ...], parts: int, num_heads: int, batch_first: bool
) -> Array:
    """Return (parts, N, H, L, D), a view of `projected`, (N*L, parts*H*D) or (L*N, parts*H*D).

    `shape` is that of the input, (N, L, .) where `batch_first`, else (L, N, .).
    """
    head_dim = projected.shape[-1] // (parts * num_heads)
    split = projected.reshape(shape[0], shape[1], parts, num_heads, head_dim)
    return split.transpose((2, 0, 3, 1, 4) if batch_first else (2, 1, 3, 0, 4))


def project_heads(heads_out: Array, out_proj: Linear, batch_first: bool) -> tuple[Array, Array]:
    """Return the output, new and contiguous, and the merged heads that it is projected from."""
    merged = merge_heads(heads_out, batch_first=batch_first)
    rows = product(merged.reshape(-1, merged.shape[2]), *out_proj)
    output = np.ascontiguousarray(rows).reshape(*merged.shape[:2], len(out_proj.weight))
    return output, merged


def merge_heads(heads_out: Array, *, batch_first: bool) -> Array:
    """Return (N, L, H*D), or (L, N, H*D), from (N, H, L, D)."""
    rows = heads_out.transpose((0, 2, 1, 3) if batch_first else (2, 0, 1, 3))
    first, second, heads, width = rows.shape
    return rows.reshape(first, second, heads * width)


def append_keys(heads: Array, bias: Array | None, appended: int) -> Array:
    """Return k or v (N, H, S + appended, D): first bias_k or bias_v, if any, then a key of zeros.

    The bias counts as projected already: it gets no in_proj_bias.
    """
    n, num_heads, keys, width = heads.shape
    longer = np.zeros((n, num_heads, keys + appended, width), heads.dtype)
    longer[:, :, :keys] = heads
    if bias is not None:
        longer[:, :, keys] = bias.reshape(num_heads, width)
    return longer
