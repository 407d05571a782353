"""One checked call of a layer: inputs, parameters, masks and options, as the engines read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mha_numpy.dtypes import BOOL, Array, require_same, to_floating, to_mask, working_dtype
from mha_numpy.masks import NO_MASK, Masking, causal_hidden
from mha_numpy.validation import (
    check_attn_mask,
    check_key_padding_mask,
    check_sequences,
    check_shapes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from mha_numpy.projections import Projections, Three

    Given = tuple[ArrayLike, ArrayLike, ArrayLike]  # query, key and value as they came
    Scores = tuple[int, int, int, int]  # (N, H, L, S), the appended keys among S


class CallOptions(NamedTuple):
    """The options of one call, in torch's words; `dropout_p` is 0 outside training."""

    num_heads: int = 1
    add_zero_attn: bool = False
    batch_first: bool = False
    key_padding_mask: ArrayLike | None = None
    attn_mask: ArrayLike | None = None
    is_causal: bool = False
    need_weights: bool = True
    average_attn_weights: bool = True
    dropout_p: float = 0.0
    rng: np.random.Generator | None = None
    engine: str = "auto"
    precise: bool = False
    static_k: Array | None = None
    static_v: Array | None = None
    always_share: bool = False
    """Whether small batches are shared out too; see `engines.dispatch.cut_batch`."""


class Heads(NamedTuple):
    """One call of the attention itself: q (N, H, L, D), k (N, Hkv, S, D), v (N, Hkv, S, Dv).

    The first five are the first arguments of every engine, in their order.
    """

    q: Array
    k: Array
    v: Array
    masking: Masking
    scale: float
    options: CallOptions

    @property
    def scores(self) -> Scores:
        """Return the shape of the scores."""
        n, heads, queries, _ = self.q.shape
        return n, heads, queries, self.k.shape[2]


class CheckedCall(NamedTuple):
    """One call, checked: inputs batched, they and the parameters in the working dtype."""

    inputs: Three
    parameters: Projections
    masking: Masking
    options: CallOptions
    scores: Scores
    batched: bool
    """Whether the caller's arrays have a batch axis."""
    dtype: np.dtype[Any]
    """The dtype of the caller's arrays."""

    def of_samples(self, samples: slice) -> CheckedCall:
        """Return the call of some samples of the batch: views."""
        axis = slice(None), samples
        inputs = _to_each(lambda x, _: x[axis[self.options.batch_first :]], self.inputs)
        scores = (samples.stop - samples.start, *self.scores[1:])
        return self._replace(inputs=inputs, masking=self.masking.of_samples(samples), scores=scores)


def check_call(given: Given, parameters: Projections, options: CallOptions) -> CheckedCall:
    """Check all inputs and return them batched and in the working dtype."""
    dtype = parameters.out_proj.weight.dtype
    inputs = _to_each(_floating, given, dtype)
    batched = check_sequences(*inputs, parameters.widths, options.batch_first)
    if not batched:
        inputs = _to_each(lambda x, _: x[None], inputs)
        options = options._replace(batch_first=True)
    if options.static_k is not None or options.static_v is not None:
        _check_statics(inputs, parameters, options)
    appended = (parameters.bias_k is not None) + options.add_zero_attn
    batch, length = (0, 1) if options.batch_first else (1, 0)
    query_shape, key_shape = inputs[0].shape, inputs[1].shape
    keys = key_shape[length] if options.static_k is None else options.static_k.shape[1]
    scores = query_shape[batch], options.num_heads, query_shape[length], keys + appended
    masking = _masking(options, scores, appended, dtype, batched=batched)
    working = working_dtype(dtype, precise=options.precise)
    if working != dtype:
        inputs = _to_each(lambda x, _: x.astype(working), inputs)
        parameters = parameters.astype(working)
    return CheckedCall(inputs, parameters, masking, options, scores, batched, dtype)


def _check_statics(inputs: Three, parameters: Projections, options: CallOptions) -> None:
    """Raise unless static_k and static_v are (N*H, S, D) and nothing is to be appended to them."""
    batch, length = inputs[1].shape[:2] if options.batch_first else inputs[1].shape[1::-1]
    given = {"static_k": options.static_k, "static_v": options.static_v}
    if options.static_k is not None and options.static_v is not None:
        length = options.static_k.shape[1]
    head_dim = inputs[0].shape[-1] // options.num_heads
    shape = (batch * options.num_heads, length, head_dim)
    check_shapes(given, dict.fromkeys(given, shape))
    require_same(parameters.out_proj.weight.dtype, "the parameters' dtype", **given)
    if parameters.bias_k is not None:
        raise ValueError(
            "`bias_k` is given with `static_k` or `static_v`, but cannot be appended to them, as "
            "in torch; pass bias_k=None and bias_v=None."
        )


def _floating(value: ArrayLike, name: str, dtype: np.dtype[Any]) -> Array:
    """Return an input as an array of the parameters' dtype, or raise TypeError."""
    if type(value) is np.ndarray and value.dtype == dtype:
        return value
    array = to_floating(value, name)
    require_same(dtype, "the parameters' dtype", **{name: array})
    return array


def _to_each(change: Callable[..., Array], inputs: tuple[Any, Any, Any], *more: object) -> Three:
    """Apply `change` to the inputs and their names; one array stays one: it is projected once."""
    query, key, value = inputs
    new_query = change(query, "query", *more)
    new_key = new_query if key is query else change(key, "key", *more)
    return new_query, new_key, new_key if value is key else change(value, "value", *more)


def _masking(
    options: CallOptions, scores: Scores, appended: int, dtype: np.dtype[Any], *, batched: bool
) -> Masking:
    """Check both masks and return them in the one form that the engines read.

    `is_causal` says that attn_mask is the causal one. Where that is true the rule stands in for
    the array, which saves the flash engine half of the work; where it is not, the mask counts.
    """
    attn_mask, key_padding_mask = options.attn_mask, options.key_padding_mask
    if attn_mask is None:
        if options.is_causal:
            raise ValueError(
                "`is_causal` is True and `attn_mask` is None, but it is a hint about a mask that "
                "must be there too, as in torch; pass "
                "`attn_mask=np.triu(np.ones((L, S), bool), 1)`."
            )
        if key_padding_mask is None:
            return Masking(appended=appended) if appended else NO_MASK
    batch, heads, queries, keys = *scores[:3], scores[3] - appended
    masks, causal = [], False
    if key_padding_mask is not None:
        pad = to_mask(key_padding_mask, "key_padding_mask", dtype)
        masks = [check_key_padding_mask(pad, batch, keys, batched)]
    if attn_mask is not None:
        attn = to_mask(attn_mask, "attn_mask", dtype)
        check_attn_mask(attn, batch, heads, queries, keys)
        causal = options.is_causal and _is_the_causal_mask(attn)
        if not causal:
            lead = (1, 1) if attn.ndim == 2 else (batch, heads)
            masks.insert(0, attn.reshape(*lead, queries, keys))
    return Masking.of(masks, causal=causal, appended=appended)


def _is_the_causal_mask(mask: Array) -> bool:
    """Whether a mask hides exactly what the causal rule hides, and adds nothing."""
    if mask.ndim != 2:
        return False
    hidden = causal_hidden(*mask.shape)
    return np.array_equal(mask, hidden if mask.dtype == BOOL else np.where(hidden, -np.inf, 0))
