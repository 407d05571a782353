"""torch.nn.MultiheadAttention, in NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_numpy.call import CallOptions
from mha_numpy.dtypes import Array, require_same, resolve_dtype, to_floating
from mha_numpy.multihead import multi_head_attention
from mha_numpy.projections import Linear, Projections, parameter_shapes
from mha_numpy.state import IncompatibleKeys, check_state, initial_parameter
from mha_numpy.validation import check_options, check_shapes, check_sizes, quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from numpy.typing import ArrayLike, DTypeLike

    from mha_numpy.prepared import PreparedAttention

    Asked = tuple[ArrayLike | None, ArrayLike | None, bool, bool, bool]


class MultiheadAttention(Projections):
    """Multi-head attention with torch's names, shapes, mask polarity and state dict.

    Formula
        heads_h = softmax(q_h k_h^T / sqrt(D) + masks) v_h, output = concat(heads) W_o^T + b_o,
        where q = query W_q^T + b_q and so on, head h takes columns h*D to (h+1)*D, D = E / H.

    Parameters
    ----------
    embed_dim, num_heads : int
        Width E of queries and output, and number H of heads; H divides E.
    dropout : float
        Share of weights set to 0 in training, the others divided by 1 - dropout.
    bias : bool
        Whether the input and output projections have biases.
    add_bias_kv : bool
        Append a learned key and value, bias_k and bias_v, to every sequence.
    add_zero_attn : bool
        Append a key and value of zeros to every sequence.
    kdim, vdim : int, optional
        Widths of keys and values where they are unlike E.
    batch_first : bool
        Sequences are (N, L, E) and not (L, N, E).
    dtype : dtype-like
        float32, float64, float16 or "bfloat16" (needs ml_dtypes). The last two are computed in
        float32 and rounded once.
    rng : numpy.random.Generator, optional
        What the parameters and dropout are drawn from; a freshly seeded one where it is None.
    engine : {"auto", "plain", "flash"}
        How the heads are computed. "plain": all scores at once, as in the formula; "flash": by
        tiles that fit the cache, without holding the weights unless they are returned; "auto"
        takes flash for long sequences, and plain for dropout, which flash refuses.
    precise : bool
        Compute in float64 and round once, whatever the dtype.

    Notes
    -----
    Sizes that do not fit each other and options out of range raise TypeError or ValueError. A new
    layer is in training mode, as in torch; its sizes and dtype cannot be changed. Parameters are
    plain arrays under torch's names (`in_proj_weight`, `out_proj.weight`, ...): write into them, or
    assign others of their shape and dtype, those of the output together
    (`layer.out_proj = layer.out_proj._replace(weight=w)`).
    Where a call spreads its products over threads of its own, NumPy's BLAS is limited to one thread
    meanwhile, for the whole process, and has its own limit back when the last such call ends.
    Source: torch.nn.MultiheadAttention, torch 2.13.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        dtype: DTypeLike = np.float32,
        *,
        rng: np.random.Generator | None = None,
        engine: str = "auto",
        precise: bool = False,
    ) -> None:
        kdim = embed_dim if kdim is None else kdim
        vdim = embed_dim if vdim is None else vdim
        check_sizes(embed_dim, num_heads, kdim, vdim)
        check_options("dropout", dropout, rng, engine)
        self.embed_dim, self.num_heads, self.kdim, self.vdim = embed_dim, num_heads, kdim, vdim
        self.head_dim = embed_dim // num_heads
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        self.dtype = resolve_dtype(dtype)
        self.engine, self.precise = engine, precise
        self.rng = np.random.default_rng() if rng is None else rng
        self.training = True
        absent = {"q_proj_weight", "k_proj_weight", "v_proj_weight"}
        if (kdim, vdim) != (embed_dim, embed_dim):
            absent = {"in_proj_weight"}
        absent |= set() if bias else {"in_proj_bias", "out_proj.bias"}
        absent |= set() if add_bias_kv else {"bias_k", "bias_v"}
        self._shapes = parameter_shapes(embed_dim, kdim, vdim)
        drawn = {
            name: initial_parameter(name, shape, self.dtype, self.rng)
            for name, shape in self._shapes.items()
            if name not in absent
        }
        super().__init__(**vars(Projections.from_named(drawn)))

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute: sizes once, a parameter to an array of its own shape and dtype."""
        if name in _FIXED and name in vars(self):
            raise AttributeError(
                f"`{name}` is {vars(self)[name]} as the layer was made, and cannot be set to "
                f"{value!r}; make another layer."
            )
        if name == "engine":
            check_options("dropout", engine=value)
        elif name == "dropout":
            check_options(name, value)
        elif name == "out_proj":
            if not isinstance(value, Linear):
                raise TypeError(
                    f"`out_proj` is of type {type(value).__name__}, but should hold weight and "
                    "bias; assign `layer.out_proj._replace(weight=w)`."
                )
            own = vars(self).get("out_proj", value)
            self._check("out_proj.weight", value.weight, own.weight)
            self._check("out_proj.bias", value.bias, own.bias)
        elif name in _PARAMETERS:
            value = None if value is None else to_floating(value, name)
            self._check(name, value, vars(self).get(name, value))
        object.__setattr__(self, name, value)

    def _check(self, name: str, value: Array | None, own: Array | None) -> None:
        """Raise unless the layer has such a parameter and gets one that fits, or neither."""
        if (value is None) != (own is None):
            raise ValueError(
                f"`{name}` is {'None' if value is None else 'an array'}, but should be "
                f"{'None' if own is None else 'an array'} in this layer; make another layer."
            )
        check_shapes({name: value}, self._shapes)
        require_same(self.dtype, "the layer's dtype", **{name: value})

    @quiet
    def forward(
        self,
        query: ArrayLike,
        key: ArrayLike,
        value: ArrayLike,
        key_padding_mask: ArrayLike | None = None,
        need_weights: bool = True,
        attn_mask: ArrayLike | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Array, Array | None]:
        """Return (output, weights), weights None unless `need_weights`.

        Shapes
            query (L, N, E), key (S, N, kdim), value (S, N, vdim), with N first where
            `batch_first`, or all three without N. Output as query.
            key_padding_mask (N, S), or (S,) without N; attn_mask (L, S) or (N*H, L, S).
            weights (N, L, S), the mean over the heads, or (N, H, L, S) without
            `average_attn_weights`; S then counts the appended keys too.

        Masks
            Boolean: True = hidden. Float: added to the scaled logits. Both may be given, and one
            may be boolean and the other float. `is_causal` is a hint that attn_mask is the
            causal mask and needs it, as in torch; where the hint is wrong, the mask counts (torch
            follows one or the other, by path).

        Raises
        ------
        TypeError
            For inputs that have not the layer's dtype, and for masks that are neither boolean
            nor float32 nor of that dtype.
        ValueError
            For shapes that do not fit each other.

        Notes
        -----
        Rows that see no key are NaN where `need_weights`, else b_o alone, as in torch 2.13. In
        training with dropout the returned weights are the dropped ones, as in torch.
        """
        asked = key_padding_mask, attn_mask, is_causal, need_weights, average_attn_weights
        return multi_head_attention((query, key, value), self, self._options(asked))

    __call__ = forward

    @quiet
    def vjp(
        self,
        query: ArrayLike,
        key: ArrayLike,
        value: ArrayLike,
        key_padding_mask: ArrayLike | None = None,
        need_weights: bool = True,
        attn_mask: ArrayLike | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[tuple[Array, Array | None], Callable[..., dict[str, Array]]]:
        """Return ((output, weights), pull): what `forward` returns, and its backward pass.

        `pull(output_cotangent, weights_cotangent=None)` returns the gradients of
        sum(output_cotangent * output) + sum(weights_cotangent * weights) by name: "query", "key",
        "value", every parameter as in `state_dict()`, and "attn_mask" and "key_padding_mask" where
        those are of floating point. Each has the shape and dtype of what it belongs to. Where one
        array is query and key and value it still gets three gradients; its own is their sum.

        What is refused is that of `forward`. `pull` raises TypeError for a cotangent of another
        dtype than its result, ValueError for one of another shape or of weights not returned.

        Notes
        -----
        `pull` may be called any number of times; it reads the inputs and parameters of the call,
        which are to be left as they are until then (others may be assigned), and drops what the
        forward pass dropped. Without `need_weights` nothing of (L, S) is held of samples with more
        than 524,288 scores (H * L * S), and by engine="flash" of none. A row that sees no key adds
        0 to every gradient but that of out_proj.bias; in torch 2.13 it makes gradients of all other
        rows NaN where `need_weights` (pytorch#41508).
        """
        from mha_numpy.grad.layer import layer_vjp

        asked = key_padding_mask, attn_mask, is_causal, need_weights, average_attn_weights
        return layer_vjp((query, key, value), self, self._options(asked))

    def _options(self, asked: Asked) -> CallOptions:
        """Return the options of one call: those asked for, between the layer's own."""
        heads, zero, first = self.num_heads, self.add_zero_attn, self.batch_first
        drawn = self.dropout if self.training else 0.0, self.rng
        return CallOptions(heads, zero, first, *asked, *drawn, self.engine, self.precise)

    def prepare(self) -> PreparedAttention:
        """Return the layer's function for inference, with weights laid out once; see there.

        `prepared(query, key, value, key_padding_mask, attn_mask, is_causal)` returns the output
        alone, that of need_weights=False without dropout. It has copies: later changes to the
        layer's parameters do not reach it.
        """
        from mha_numpy.prepared import PreparedAttention

        return PreparedAttention(self, self._options((None, None, False, False, False)))

    def train(self, mode: bool = True) -> Self:
        """Switch dropout on (or off, with mode=False); returns the layer."""
        self.training = mode
        return self

    def eval(self) -> Self:
        """Switch dropout off; returns the layer."""
        return self.train(mode=False)

    def state_dict(self) -> dict[str, Array]:
        """Return copies of all parameters under torch's names, in torch's order."""
        return {name: array.copy() for name, array in self.named_arrays().items()}

    def load_state_dict(
        self, state_dict: Mapping[str, object], strict: bool = True
    ) -> IncompatibleKeys:
        """Copy parameters in from arrays or torch tensors, cast to the layer's dtype.

        Returns the missing and the unexpected keys, both empty where `strict`. Raises ValueError
        for entries that are missing, unexpected or misshaped, TypeError for entries that are not
        floating; the layer is then as it was before.
        """
        own = self.named_arrays()
        taken, left = check_state(state_dict, own, strict=strict)
        for name, array in taken.items():
            own[name][...] = array
        return left

    def __repr__(self) -> str:
        """Return the sizes and the dtype."""
        names = "embed_dim", "num_heads", "kdim", "vdim", "batch_first", "dtype"
        return f"MultiheadAttention({', '.join(f'{name}={getattr(self, name)}' for name in names)})"


_FIXED = frozenset({"embed_dim", "num_heads", "head_dim", "kdim", "vdim", "dtype"})
_PARAMETERS = frozenset(parameter_shapes(1, 1, 1))
