"""The axes along which attention problems differ, and the words in which reports speak of them.

A *feature* is one value on one axis (``attn=float3d``). A candidate *offers* some values of each
axis; cases are drawn from what is offered, and what is not offered is listed, never passed.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from mha_parity.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


AXES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "form": {
            "mha": "multi-head attention with projections",
            "qkv": "attention on projected Q, K, V",
        },
        "dtype": {
            "float64": "float64",
            "float32": "float32",
            "float16": "float16",
            "bfloat16": "bfloat16",
        },
        "heads": {"one": "one head", "many": "several heads"},
        "size": {
            "small": "sizes up to 64",
            "medium": "more than 64 queries or keys",
            "equal": "equal sizes (L = S, H = D)",
            "ones": "sizes of one",
            "empty": "an empty axis",
        },
        "layout": {
            "batch_first": "batch first",
            "sequence_first": "sequence first",
            "unbatched": "unbatched",
        },
        "inputs": {
            "self": "self-attention",
            "cross": "cross-attention, key is value",
            "distinct": "query, key and value projected from three inputs",
        },
        "projection": {
            "packed": "packed in_proj",
            "separate": "kdim or vdim unlike embed_dim",
            "by_head": "in_proj of each head from its own channels",
            "shared": "one in_proj for all heads, each from its own channels",
            "none": "no projections",
            "one_array": "one array as query, key and value, without projections",
        },
        "bias": {
            "no": "no in_proj bias",
            "yes": "in_proj bias",
            "in": "in_proj bias, and none of out_proj",
            "out": "bias of out_proj alone",
        },
        "bias_kv": {"no": "no bias_kv", "yes": "add_bias_kv"},
        "zero_attn": {"no": "no zero_attn", "yes": "add_zero_attn"},
        "out_proj": {"identity": "identity out_proj", "general": "out_proj with weight and bias"},
        "padding": {
            "none": "no key_padding_mask",
            "bool": "boolean key_padding_mask",
            "float": "float key_padding_mask",
            "lengths": "valid lengths per sample",
        },
        "attn": {
            "none": "no attn_mask",
            "bool2d": "boolean attn_mask (L, S)",
            "float2d": "float attn_mask (L, S)",
            "bool3d": "boolean attn_mask per sample and head",
            "float3d": "float attn_mask per sample and head",
            "causal": "causal",
        },
        "masked_rows": {"none": "every query sees a key", "some": "fully masked query rows"},
        "regime": {
            "normal": "normal values",
            "tiny": "tiny inputs",
            "peaky": "peaked softmax (logit sd 10)",
            "huge": "logits past the range of exp",
            "very_negative": "very negative logits",
            "wide_range": "wide range of logits",
            "large_head": "one large head (V x 10^4)",
            "offset": "values with a common offset",
            "ties": "tied keys",
            "constant": "constant key rows",
            "zeros": "rows of 0 and -0",
            "subnormal": "subnormal inputs and weights",
            "rising": "logits that rise from key to key",
            "falling": "logits that fall from key to key",
            "infinite_value": "an infinite number in the values",
            "largest_value": "the largest finite number in the values",
        },
        "memory": {
            "c": "contiguous arrays",
            "fortran": "Fortran-ordered arrays",
            "sliced": "sliced arrays",
            "negative": "negative strides",
            "readonly": "read-only arrays",
        },
        "weights": {
            "none": "output alone",
            "averaged": "averaged attention weights",
            "per_head": "attention weights per head",
        },
        "gradients": {"no": "no gradients", "yes": "gradients"},
        "scale": {"default": "scale 1/sqrt(head_dim)", "given": "scale given by the caller"},
        "kv_heads": {"equal": "as many key heads as query heads", "fewer": "grouped-query heads"},
        "v_dim": {"equal": "value width = key width", "other": "value width unlike key width"},
    }
)

# The plainest value of each axis: what shrinking goes towards, and what an id leaves out.
DTYPES = tuple(AXES["dtype"])  # the most exact first
PLAIN: Mapping[str, str] = MappingProxyType(
    {axis: next(iter(values)) for axis, values in AXES.items()}
    | {"dtype": "float64", "heads": "many", "memory": "c"}
)

# Regimes past which arithmetic leaves the finite numbers: right answers differ in where they have
# NaN, and rounding errors are as large as the number itself.
EXTREME_VALUES = ("infinite_value", "largest_value")

# Beside the features, in the reasons: why S is always L of what takes keys of its own.
UNLIKE_LENGTHS = ("lengths", "unlike")
ODD_HEADS = ("head_dim", "odd")  # likewise, why no heads of an odd width are asked
SQUARE = "at L = S alone"  # in the meaning of a mask that other lengths are not asked with
UNMASKED = "without masks"  # in the meaning of a cache that no mask is passed beside
# In that of a cache with which several new rows are not those of the whole.
ONE_ROW = "one new row at a time"
# In that of an optional mask that is never left out.
IN_EVERY_CALL = "in every call, as one without it raises"
AS_ALL_KEYS = "as all keys"  # in that of blocks of which no smaller ones are asked

Features = dict[str, str]  # axis -> value
Offer = dict[str, tuple[str, ...]]  # axis -> values


def make_offer(**axes: str | Iterable[str]) -> Offer:
    """Return what a candidate offers: the named values on the named axes, the plain one elsewhere.

    ``make_offer(inputs=("self", "cross"), bias=("no", "yes"))``. Axes that describe the data and
    not an ability (heads, size, regime, memory) are offered whole unless they are named.
    """
    whole = {"heads", "size", "regime", "memory"}
    result = {
        axis: tuple(values) if axis in whole else (PLAIN[axis],) for axis, values in AXES.items()
    }
    for axis, given in axes.items():
        wanted = (given,) if isinstance(given, str) else tuple(given)
        unknown = [value for value in wanted if value not in AXES.get(axis, {})]
        if unknown or axis not in AXES:
            known = ", ".join(AXES.get(axis, AXES))
            message = f"no feature {axis}={'/'.join(unknown) or wanted}; known here: {known}"
            raise UsageError(message)
        result[axis] = wanted
    return result


def has_one_kv_head(offer: Offer) -> bool:
    """Return whether a target has one head of keys and values for all heads of queries.

    One whose number of key heads may be set offers as many of them as query heads.
    """
    return offer["kv_heads"] == ("fewer",)


def label(axis: str, value: str) -> str:
    """Return the words a report uses for one feature."""
    return AXES[axis][value]


def feature_label(feature: str) -> str:
    """Return the words for a feature given as ``axis=value``, the text itself for any other."""
    axis, _, value = feature.partition("=")
    return label(axis, value) if value else feature
