"""A case: a few numbers, a seed, and one readable id that replays it on any machine.

An id is words joined by dashes, the plain values left out:
``mha-N2-L5-S7-H3-D4-cross-bias-padding-floatmask3d-float32-peaky-s1234``.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from mha_parity.core.errors import UsageError
from mha_parity.core.features import AXES, PLAIN

if TYPE_CHECKING:
    from collections.abc import Mapping

# Axis -> value -> the word in the id; None: the plain value, left out. Words are unique overall.
ID_WORDS: Mapping[str, Mapping[str, str | None]] = MappingProxyType(
    {
        "form": {"mha": "mha", "qkv": "qkv"},
        "layout": {"batch_first": None, "sequence_first": "seqfirst", "unbatched": "unbatched"},
        "inputs": {"self": None, "cross": "cross", "distinct": "distinct"},
        "projection": {
            "packed": None,
            "separate": "separate",
            "by_head": "byhead",
            "shared": "sharedproj",
            "none": None,
            "one_array": "onearray",
        },
        "bias": {"no": None, "yes": "bias", "in": "inbias", "out": "outbias"},
        "bias_kv": {"no": None, "yes": "biaskv"},
        "zero_attn": {"no": None, "yes": "zeroattn"},
        "out_proj": {"identity": None, "general": "outproj"},
        "padding": {
            "none": None,
            "bool": "padding",
            "float": "floatpadding",
            "lengths": "lengths",
        },
        "attn": {
            "none": None,
            "bool2d": "boolmask",
            "float2d": "floatmask",
            "bool3d": "boolmask3d",
            "float3d": "floatmask3d",
            "causal": "causal",
        },
        "masked_rows": {"none": None, "some": "maskedrows"},
        "weights": {"none": None, "averaged": "avgweights", "per_head": "weights"},
        "scale": {"default": None, "given": "scaled"},
        "gradients": {"no": None, "yes": "grad"},
        "dtype": {name: name for name in AXES["dtype"]},
        "regime": {
            name: None if name == "normal" else name.replace("_", "") for name in AXES["regime"]
        },
        "memory": {name: None if name == "c" else name for name in AXES["memory"]},
    }
)
SIZES = MappingProxyType(
    {
        "N": "batch",
        "L": "queries",
        "S": "keys",
        "H": "heads_count",
        "D": "head_dim",
        "G": "kv_heads_count",
        "V": "v_head_dim",
        "Ek": "kdim",
        "Ev": "vdim",
        "s": "seed",
    }
)
BLOCK = 64  # queries or keys: longer problems have several tiles in most tiled kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One attention problem, described and not yet drawn.

    Sizes are N = ``batch``, L = ``queries``, S = ``keys``, H = ``heads_count``, D = ``head_dim``;
    0 for ``kv_heads_count``, ``v_head_dim``, ``kdim`` and ``vdim`` means: as the queries have it.
    """

    seed: int
    batch: int
    queries: int
    keys: int
    heads_count: int
    head_dim: int
    kv_heads_count: int = 0
    v_head_dim: int = 0
    kdim: int = 0
    vdim: int = 0
    form: str = "mha"
    layout: str = "batch_first"
    inputs: str = "self"
    projection: str = "packed"
    bias: str = "no"
    bias_kv: str = "no"
    zero_attn: str = "no"
    out_proj: str = "identity"
    padding: str = "none"
    attn: str = "none"
    masked_rows: str = "none"
    weights: str = "none"
    scale: str = "default"
    gradients: str = "no"
    dtype: str = "float64"
    regime: str = "normal"
    memory: str = "c"

    @property
    def embed_dim(self) -> int:
        """E = H D, the width of query and output."""
        return self.heads_count * self.head_dim

    @property
    def heads(self) -> str:
        """The feature: one head or several."""
        return "one" if self.heads_count == 1 else "many"

    @property
    def kv_heads(self) -> str:
        """The feature: as many key heads as query heads, or fewer (grouped queries)."""
        return "fewer" if 0 < self.kv_heads_count < self.heads_count else "equal"

    @property
    def v_dim(self) -> str:
        """The feature: value width equal to or unlike the key width."""
        return "other" if self.v_head_dim not in (0, self.head_dim) else "equal"

    @property
    def size(self) -> str:
        """The feature: which kind of sizes the case has."""
        numbers = (self.batch, self.queries, self.keys, self.heads_count, self.head_dim)
        if 0 in numbers:
            return "empty"
        one_sample = self.batch == 1 and self.layout != "unbatched"
        if one_sample or 1 in (self.queries, self.keys, self.head_dim):
            return "ones"
        if max(self.queries, self.keys) > BLOCK:
            return "medium"
        return "equal" if self.heads_count == self.head_dim else "small"

    def features(self) -> dict[str, str]:
        """Return the value of every feature axis."""
        return {axis: getattr(self, axis) for axis in AXES}

    @property
    def id(self) -> str:
        """The words that ``parse`` turns back into this very case."""
        sizes = {letter: getattr(self, name) for letter, name in SIZES.items()}
        words = [self.form]
        words += [f"{k}{n}" for k, n in sizes.items() if k != "s" and (n or k in "NLSHD")]
        for axis, table in ID_WORDS.items():
            word = table[getattr(self, axis)]
            if axis != "form" and word is not None:
                words.append(word)
        return "-".join([*words, f"s{self.seed}"])

    def replace(self, **changes: object) -> Case:
        """Return the case with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]  # fields vary in type

    def in_multiples(self, of: int) -> Case:
        """Return the case of lengths that are multiples of a number; unlike ones stay unlike."""
        queries, keys = (-(-length // of) * of for length in (self.queries, self.keys))
        if queries == keys and self.queries != self.keys:
            keys += of
        return self.replace(queries=queries, keys=keys)


_MEANING = {
    word: (axis, value) for axis, t in ID_WORDS.items() for value, word in t.items() if word
}


def parse(text: str) -> Case:
    """Return the case that an id names.

    Raises
    ------
    UsageError
        A word is unknown, a size is missing or given twice, or there is no head.

    """
    fields: dict[str, object] = {}
    for word in text.strip().split("-"):
        sized = re.fullmatch(r"([A-Za-z]+?)(\d+)", word)
        if word in _MEANING:
            name, value = _MEANING[word]
        elif sized and sized[1] in SIZES:
            name, value = SIZES[sized[1]], int(sized[2])  # type: ignore[assignment]  # int or word
        else:
            message = f"`{text}` is no case id: the word `{word}` is unknown; copy the id whole."
            raise UsageError(message)
        if name in fields:
            message = f"`{text}` is no case id: `{word}` says {name} twice; copy the id whole."
            raise UsageError(message)
        fields[name] = value
    missing = [k for k in "NLSHDs" if SIZES[k] not in fields]
    if missing or "form" not in fields:
        message = f"`{text}` is no case id: {', '.join(missing) or 'form'} missing; copy it whole."
        raise UsageError(message)
    if not (fields["heads_count"] and fields["head_dim"]):
        raise UsageError(f"`{text}` is no case id: H and D are 1 or more; copy the id whole.")
    if fields["form"] == "qkv":
        fields.setdefault("projection", "none")
    return Case(**fields)  # type: ignore[arg-type]  # the words above carry the field's own type


def plain_distance(case: Case) -> int:
    """Return how many axes of the case differ from the plain value."""
    return sum(getattr(case, axis) != plain for axis, plain in PLAIN.items())
