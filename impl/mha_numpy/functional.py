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
    """Compute multi-head attention from sequences and parameters, as torch's function does.

    Formula
        heads_h = softmax(q_h k_h^T / sqrt(D) + masks) v_h, output = concat(heads) W_o^T + b_o,
        where q = query W_q^T + b_q and so on, head h takes columns h*D to (h+1)*D, D = E / H.

    Shapes
        query (L, N, E), key (S, N, kdim), value (S, N, vdim), or all three without N.
        in_proj_weight (3E, E), or with `use_separate_proj_weight` q_proj_weight (E, E),
        k_proj_weight (E, kdim), v_proj_weight (E, vdim); in_proj_bias (3E,);
        bias_k, bias_v (1, 1, E); out_proj_weight (E_out, E), out_proj_bias (E_out,);
        static_k, static_v (N*H, S, D) stand in for the projected key and value.
        key_padding_mask (N, S), or (S,) without N; attn_mask (L, S) or (N*H, L, S).
        Returns output (L, N, E_out) and, where `need_weights`, weights (N, L, S), the mean over
        the heads, or (N, H, L, S) without `average_attn_weights`; S then counts the keys
        appended by bias_k and `add_zero_attn` too.

    Masks
        Boolean: True = hidden. Float: added to the scaled logits. Both may be given.
        `is_causal` is a hint that attn_mask is the causal mask and needs it, as in torch; where
        the hint is wrong, the mask counts.

    Parameters
    ----------
    rng : numpy.random.Generator, optional
        What dropout draws from; needed where `training` and `dropout_p` > 0.
    engine, precise
        As in `MultiheadAttention`.

    Raises
    ------
    TypeError
        For arrays that are not all of one dtype among float64, float32, float16, bfloat16, and
        for masks that are neither boolean nor float32 nor of that dtype.
    ValueError
        For shapes that do not fit each other and options out of range.

    Notes
    -----
    Rows that see no key are NaN where `need_weights`, else 0 before the output projection, as in
    torch 2.13. float16 and bfloat16 are computed in float32 and rounded once.
    Source: torch.nn.functional.multi_head_attention_forward, torch 2.13.
    """
    check_options("dropout_p", dropout_p, rng, engine, drops=training)
    separate = use_separate_proj_weight
    given = {
        "in_proj_weight": None if separate else in_proj_weight,
        "q_proj_weight": q_proj_weight if separate else None,
        "k_proj_weight": k_proj_weight if separate else None,
        "v_proj_weight": v_proj_weight if separate else None,
        "in_proj_bias": in_proj_bias,
        "bias_k": bias_k,
        "bias_v": bias_v,
        "out_proj_weight": out_proj_weight,
        "out_proj_bias": out_proj_bias,
        "static_k": static_k,
        "static_v": static_v,
    }
    arrays = {name: to_floating(x, name) for name, x in given.items() if x is not None}
    options = CallOptions(
        num_heads=num_heads,
        add_zero_attn=add_zero_attn,
        key_padding_mask=key_padding_mask,
        attn_mask=attn_mask,
        is_causal=is_causal,
        need_weights=need_weights,
        average_attn_weights=average_attn_weights,
        dropout_p=dropout_p if training else 0.0,
        rng=rng,
        engine=engine,
        precise=precise,
        static_k=arrays.pop("static_k", None),
        static_v=arrays.pop("static_v", None),
    )
    parameters = _parameters(arrays, embed_dim_to_check, num_heads, separate=separate)
    return multi_head_attention(query, key, value, parameters, options)


def _parameters(
    arrays: dict[str, Array], embed_dim: int, num_heads: int, *, separate: bool
) -> Projections:
    """Return the parameters as a layer has them, or raise unless all fit each other."""
    check_sizes(embed_dim, num_heads, embed_dim, embed_dim)
    separately = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    for name in (*(separately if separate else ("in_proj_weight",)), "out_proj_weight"):
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
