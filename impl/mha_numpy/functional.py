"""torch.nn.functional.multi_head_attention_forward, in torch's argument names and order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_numpy.call import CallOptions
from mha_numpy.dtypes import Array, require_same, to_floating
from mha_numpy.multihead import multi_head_attention
from mha_numpy.projections import Projections, parameter_shapes
from mha_numpy.validation import check_options, check_shapes, check_sizes, quiet

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike


@quiet
def multi_head_attention_forward(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: ArrayLike | None,
    in_proj_bias: ArrayLike | None,
    bias_k: ArrayLike | None,
    bias_v: ArrayLike | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: ArrayLike,
    out_proj_bias: ArrayLike | None,
    training: bool = True,
    key_padding_mask: ArrayLike | None = None,
    need_weights: bool = True,
    attn_mask: ArrayLike | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: ArrayLike | None = None,
    k_proj_weight: ArrayLike | None = None,
    v_proj_weight: ArrayLike | None = None,
    static_k: ArrayLike | None = None,
    static_v: ArrayLike | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    *,
    rng: np.random.Generator | None = None,
    engine: str = "auto",
    precise: bool = False,
) -> tuple[Array, Array | None]:
    """Return (output, weights): multi-head attention from sequences and parameters, as in torch.

    Formula, masks, dtypes, `engine` and `precise`, and what is refused are those of
    `MultiheadAttention`, rows that see no key those of its `forward`.

    Shapes
        query (L, N, E), key (S, N, kdim), value (S, N, vdim), or all three without N.
        in_proj_weight (3E, E), or with `use_separate_proj_weight` q_proj_weight (E, E),
        k_proj_weight (E, kdim), v_proj_weight (E, vdim); in_proj_bias (3E,);
        bias_k, bias_v (1, 1, E); out_proj_weight (E_out, E), out_proj_bias (E_out,);
        static_k, static_v (N*H, S, D) stand in for the projected key and value.
        key_padding_mask (N, S), or (S,) without N; attn_mask (L, S) or (N*H, L, S).
        output (L, N, E_out); weights as in the layer's `forward`.

    `rng` is what dropout draws from, needed where `training` and `dropout_p` > 0. Raises TypeError
    for arrays that are not all of one dtype, ValueError for shapes that do not fit each other and
    options out of range. Source: torch.nn.functional.multi_head_attention_forward, torch 2.13.
    """
    check_options("dropout_p", dropout_p, rng, engine, drops=training)
    weights = {"in_proj_weight": in_proj_weight}
    if use_separate_proj_weight:
        weights = {
            "q_proj_weight": q_proj_weight,
            "k_proj_weight": k_proj_weight,
            "v_proj_weight": v_proj_weight,
        }
    parameters = weights | {
        "in_proj_bias": in_proj_bias,
        "bias_k": bias_k,
        "bias_v": bias_v,
        "out_proj_weight": out_proj_weight,
        "out_proj_bias": out_proj_bias,
    }
    masks = key_padding_mask, attn_mask, is_causal
    drawn = dropout_p if training else 0.0, rng
    asked = *masks, need_weights, average_attn_weights, *drawn, engine, precise
    static = _floating({"static_k": static_k, "static_v": static_v})
    kept = static.get("static_k"), static.get("static_v")
    options = CallOptions(num_heads, add_zero_attn, False, *asked, *kept)
    own = _parameters(parameters, embed_dim_to_check, num_heads)
    return multi_head_attention((query, key, value), own, options)


def _floating(given: dict[str, ArrayLike | None]) -> dict[str, Array]:
    """Return what is given as arrays, or raise TypeError where one is not floating."""
    return {name: to_floating(x, name) for name, x in given.items() if x is not None}


def _parameters(given: dict[str, ArrayLike | None], embed_dim: int, num_heads: int) -> Projections:
    """Return the parameters as a layer has them, or raise unless all fit each other."""
    check_sizes(embed_dim, num_heads, embed_dim, embed_dim)
    arrays, separate = _floating(given), "q_proj_weight" in given
    for name in (name for name in given if name.endswith("_weight")):
        if name not in arrays:
            raise ValueError(
                f"`{name}` is None, but use_separate_proj_weight={separate} needs it; pass the "
                "array, or the other kind of input projection."
            )
        if arrays[name].ndim != 2:
            raise ValueError(
                f"`{name}` has shape {arrays[name].shape}, but should be 2-D, (out, in); "
                "reshape it."
            )
    if ("bias_k" in arrays) != ("bias_v" in arrays):
        raise ValueError(
            "One of `bias_k` and `bias_v` is None and the other is not, but they go together; "
            "pass both or none."
        )
    kdim = arrays["k_proj_weight"].shape[1] if separate else embed_dim
    vdim = arrays["v_proj_weight"].shape[1] if separate else embed_dim
    shapes = parameter_shapes(embed_dim, kdim, vdim)
    out_rows = arrays["out_proj_weight"].shape[0]
    shapes |= {"out_proj_weight": (out_rows, embed_dim), "out_proj_bias": (out_rows,)}
    check_shapes(arrays, shapes)
    require_same(arrays["out_proj_weight"].dtype, "the dtype of `out_proj_weight`,", **arrays)
    return Projections.from_named(
        {name.replace("out_proj_", "out_proj."): array for name, array in arrays.items()}
    )
