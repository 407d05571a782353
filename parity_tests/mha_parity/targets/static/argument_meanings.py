"""Meanings that the name of a constructor's argument may have, and the values passed for each."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import numpy as np

from mha_parity.core.case import Case
from mha_parity.targets.static import weight_dictionary
from mha_parity.targets.static.projection_names import (
    PART_OF_HEADS,
    WINDOW,
    is_weight,
    parts,
    snake_case,
)

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Mapping, Sequence

LENGTH = 128  # for which layers that keep a mask are built at least
MOST_SAMPLES = 64  # for which layers that keep a cache have room at least
PROBABILITY = re.compile(r"drop|(?<!^[wW])_p$|_prob")  # `proj_p`: of dropout behind a projection
# Words of the switches that give the projections biases.
_OF_PROJECTIONS = (
    "bias(es)?|use|has|have|with|add|enabled?|include|is|needs?|apply|q|k|v|w|o|c|in|out|proj"
    "|projections?|lin|linears?|fc|dense|conv|attn|attention|self|mha|layers?|input|output|query"
    "|keys?|values?|queries|to|hidden|model|all|params?|encoder|decoder"
)
_POSITIONS = "abs(olute)?|rel(ative)?|rot(ary)?|rope|alibi|sin(usoidal)?"
_POSITIONS_SWITCHED = (
    rf"^(use|with|has|is|add|apply|enable)_({_POSITIONS})(_|$)"
    rf"|^({_POSITIONS})_?(pos\w*_?)?(emb|enc)"
)
# The first pattern found in a name (lower case) says what the argument may mean, likeliest first.
_MEANINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"drop|^p$|^p_|_p$|_prob", ("dropout",)),
    ((r"^(rng|generator|random_state)$|^((rnd|rng|prng|random|init|jax)_?)?key$"),
     ("random", "width")),
    (r"^rngs$", ("rngs",)),
    (r"^optimi[sz]er(_\w+)?$|_optimi[sz]er$", ("stand_in",)),  # of training, which nothing asks
    (r"^(param_?)?dtype$", ("dtype", "torch_dtype")),
    (r"idx|index|axis|^start_?pos(ition)?$", ("zero",)),
    ((r"temperature|^temp$|^((sm|softmax|attn|attention|qk|score)_?)?scal(e|ing)(_factor)?$"
      r"|^norm_fact(or)?$"), ("root", "inverse_root")),
    (r"rel.*bias|pos.*bias|^add_bias", ()),
    (r"^((\w+_)?(kernel|bias|weights?|w|b|dense|linear)_init|initiali[sz]er)$", ("initializer",)),
    (rf"^(?=.*bias)(({_OF_PROJECTIONS})_?)+$", ("bias",)),
    (r"bias", ("off",)),  # `proximal_bias`: one of the scores
    # A size of parts of the computation: one with a default stays as it is.
    (rf"slice|chunk|tile|bucket|{PART_OF_HEADS.pattern}", ("part", "one_row")),
    # Of keys that are fewer than the rows they are made of: 1 leaves them all.
    (r"^(\w+_)?reduction(_ratio)?$|^sr_ratio$", ("one_row",)),
    # Switches of positions, which torch's layer does not know, are no widths of embeddings.
    (rf"flash|{_POSITIONS_SWITCHED}", ("off",)),
    (r"head_?size|size_?(per_)?head|^d_head$", ("head_dim", "heads")),
    (r"causal|is_decoder|autoregressive|(do|is|use|apply)_mask(ed|ing)?$|^mask(ed)?$", ("off",)),
    (r"(^|_)sinks?(_|$)", ("zero",)),  # first keys that each row sees besides its window
    (r"head.*(dim|width|chan|feat|emb|_ch$)|(dim|width|d)_?(per_)?head", ("head_dim",)),
    (r"^depth$|^d_qkv$", ("head_dim",)),
    (r"^key_dim$", ("head_dim", "width")),  # Keras's is that of a head
    (r"^kv_channels$", ("head_dim", "width")),  # Megatron's too
    (r"^(d|dim)_?([kqv]|key|query|value)$|^[kqv]_dim$", ("head_dim", "width")),
    (r"^(max|maximum)_?batch(_?size)?$|^batch(_?size)?_?max$", ("most_samples",)),
    (r"^((n|num)_?)?batch(_?size)?$|^(n_)?bsz?$", ("samples", "width")),
    (r"^(query|key|qk|query_key|value)_?(size|dim)$", ("width", "head_dim")),
    # Query heads that share a key head.
    (r"(g[a-z]a|kv|group(ed)?)_?(ratio|factor)$|^n_?rep(eat)?s?$|heads?_per_(kv|key|group)",
     ("heads_per_kv",)),
    (r"(kv|key_value|group|k_v).*head|(kv|query|num|^n)_groups|n_?kv|kv_h", ("kv_heads",)),
    (r"^group_size$", ("kv_heads", "one_row")),  # in code it is the number of groups as often
    (r"^h$", ("heads", "width")),  # of BERT's H and A, H is the width
    (r"head|^n?h$|^nh(?!id)|^(n|num)_?q$", ("heads",)),
    (r"^n$", ("width", "heads")),
    (r"^(emb\w*|model|hidden|feat\w*|vec\w*)_len(gth)?$", ("width",)),
    (r"^(attn|attention)_dim$", ("width", "axis")),
    (r"^(ctx|context)_?(dim|width|channels?|features?|emb\w*)$", ("width",)),
    # Of a sequence, or of the rows that keys and values are made of.
    (r"^(ctx|context)_?size$", ("length", "width")),
    (WINDOW.pattern, ("odd_window", "window", "length")),
    ((r"len|^max_|max_?(seq|pos|context)|ctx|context_(size|window)|block_?size|n_?pos|position_emb|window"
      r"|seq|^t$|^(n|num|nb)_?(patch|token)(es|s)?$"), ("length",)),
    (r"^context$", ("length", "width")),
    (r"^(d|dim|size)_?o(ut)?$|^o_dim$|out(put)?_?(dim|size|feat)", ("width", "head_dim")),
    (r"cond|context|cross|encoder|kdim|vdim|kv_dim|memory|source", ("width",)),
    ((r"dim|emb|model|hid|width|channel|feat|size|state|units|inner|^(d|e|c|n)(_?in|_?out)?$"
      r"|^in(?!it)|^out"), ("width",)),
    (r"^(n|num|nb|number_of)_?(\w+_)?layers?$", ("one_row", "zero")),  # a scale may depend on it
    (r"layer", ("zero",)),
    (r"^(weight_?)?init(iali[sz]er)?_?(std|stddev|range|scale|gain)$", ("one",)),
    (r"device", ("device",)),
)  # fmt: skip
PACKED = ("packed_columns", "packed_rows")
SIZES_OF_HEADS = {
    "heads": re.compile(
        r"(n|num|nb|number_of)_?(attention_|attn_)?heads?|heads?_?(num|count)|nh|h"
    ),
    "head_dim": re.compile(
        r"(d|dim|size)_?(per_)?heads?|heads?_?(dim|size|width|channels|emb(d|ed)?)"
    ),
}


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """Sizes that a layer is built for."""

    width: int
    heads: int
    bias: bool = True
    dropout: float = 0.0
    length: int = LENGTH
    kv_heads: int = 0  # 0: as many as heads
    samples: int = 1

    def case(self, batch: int, length: int) -> Case:
        """Return a case of self-attention of these sizes, as arrays without effect have them."""
        return Case(
            seed=0, batch=batch, queries=length, keys=length, heads_count=self.heads,
            head_dim=self.width // self.heads,
        )  # fmt: skip

    def value(self, meaning: str) -> Any:
        """Return what an argument of this meaning gets; a string stands for itself in quotes."""
        if meaning.startswith("'"):
            return meaning[1:-1]
        if meaning in _MADE:
            return _MADE[meaning]()
        if meaning == "torch_dtype":
            return getattr(sys.modules.get("torch"), "float32", None)
        width, packed = self.width, 3 * self.width
        shapes = {
            "matrix": (width, width), "vector": (width,), "packed_rows": (packed, width),
            "packed_columns": (width, packed), "packed_vector": (packed,),
        }  # fmt: skip
        if meaning in shapes:
            return np.zeros(shapes[meaning])
        return {
            "width": width, "heads": self.heads, "head_dim": width // self.heads,
            "kv_heads": self.kv_heads or self.heads,
            "heads_per_kv": self.heads // (self.kv_heads or self.heads),
            "length": self.length, "bias": self.bias,
            # Half of it may lie on either side of a row, which it counts or not.
            "window": 2 * self.length, "odd_window": 2 * self.length + 1,
            "samples": self.samples, "most_samples": max(MOST_SAMPLES, self.samples),
            "root": math.sqrt(width / self.heads),
            "inverse_root": 1 / math.sqrt(width / self.heads),
            "off": False, "on": True, "dropout": self.dropout, "zero": 0, "one": 1.0,
            weight_dictionary.MEANING: weight_dictionary.WeightsByName(width),
            "device": "cpu", "none": None, "axis": -2,  # that of rows
            "dtype": np.float32,
            "part": 2, "one_row": 1,  # shorter than what is judged: several parts, and a rest
        }[meaning]  # fmt: skip


def identity(rows: Any, *others: Any, **_: Any) -> Any:
    """Return the rows as they are: the first argument, and others that have as many axes.

    What a layer calls for the positions of queries, or of queries and keys, is left out.
    """
    axes = len(np.shape(rows))
    alike = [each for each in others if len(getattr(each, "shape", ())) == axes]
    return (rows, *alike) if alike else rows


def zeros_drawn(*arguments: Any, **_: Any) -> Any:
    """Return zeros of the shape among the arguments; without one, the array that is to be filled.

    Weights are replaced. JAX and flax pass a key, a shape and a dtype, haiku the last two, and
    torch an array.
    """
    place = next((i for i, each in enumerate(arguments) if isinstance(each, tuple | list)), None)
    if place is None:
        return arguments[0]
    numpy: Any = getattr(sys.modules.get("jax"), "numpy", np)
    return numpy.zeros(tuple(arguments[place]), *arguments[place + 1 : place + 2])


def random_source(*, streams: bool = False) -> Any:
    """Return what random weights are drawn from: a key of JAX where it is in use, or NumPy's.

    ``streams``: those of flax.nnx, where it is in use.
    """
    nnx = sys.modules.get("flax.nnx")
    if streams and nnx is not None:
        return nnx.Rngs(0)
    jax = sys.modules.get("jax")
    return np.random.default_rng(0) if jax is None else jax.random.PRNGKey(0)


_MADE: dict[str, Callable[[], Any]] = {
    "random": random_source,
    "rngs": lambda: random_source(streams=True),
    "identity": lambda: identity,
    "initializer": lambda: zeros_drawn,
    "stand_in": MagicMock,  # whatever is read of it or called
}


@cache
def size_of_heads(name: str) -> str:
    """Return "heads" or "head_dim" for a whole name of their number or width, "" for another."""
    found = (said for said, known in SIZES_OF_HEADS.items() if known.fullmatch(name.lower()))
    return next(found, "")


@cache
def meanings(name: str) -> tuple[str, ...]:
    """Return what an argument of this name may mean; () if nothing is known."""
    if is_weight(name) and parts(name) and not PROBABILITY.search(name):
        packed = PACKED[::-1] if name == "in_proj_weight" else PACKED  # torch's is (3E, E)
        return ("matrix",) if len(parts(name)) == 1 else packed
    if name.lower() in {"kernel", "weight", "w"}:
        return PACKED
    if name == "A":  # beside BERT's H
        return ("heads",)
    plain = snake_case(name)
    return next((found for pattern, found in _MEANINGS if re.search(pattern, plain)), ())


def counts_kv_heads(name: str) -> bool:
    """Return whether an argument of this name is the number of key and value heads."""
    return meanings(name)[:1] == ("kv_heads",)


def is_of_groups(name: str) -> bool:
    """Return whether an argument is the number of key heads, or of query heads for each of them."""
    return meanings(name)[:1] in {("kv_heads",), ("heads_per_kv",)}


def alike_heads(
    named: Sequence[inspect.Parameter], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> frozenset[str]:
    """Return the arguments of key or value heads that get what those of query heads get.

    They are the number of key heads, and the width of value heads where heads have a width too.
    """
    given = dict(zip((each.name for each in named), args, strict=False)) | dict(kwargs)
    heads = [value for name, value in given.items() if meanings(name)[:1] == ("heads",)]
    widths = [name for name in given if meanings(name)[:1] == ("head_dim",)]
    of_queries = [given[name] for name in widths if not is_of_values(name)]
    alike = {name for name in widths if is_of_values(name) and given[name] in of_queries}
    fewer = {n for n, value in given.items() if counts_kv_heads(n) and value in heads}
    return frozenset(alike | fewer)


def switches_positions(name: str) -> bool:
    """Return whether a name is that of a switch of positions."""
    return re.search(_POSITIONS_SWITCHED, snake_case(name)) is not None


def is_of_values(name: str) -> bool:
    """Return whether a width is one of values by its name."""
    return "value" in name.lower() or "v" in name.lower().split("_")


def whole_windows(named: Sequence[inspect.Parameter]) -> frozenset[str]:
    """Return the sizes of a window that are given: nothing lies outside of what they get.

    They are those that are required, or are numbers of rows by default. Shorter ones are judged by
    a check of their own.
    """
    required = (each.name for each in named if each.default is each.empty)
    numbers = (each.name for each in named if type(each.default) is int and each.default > 0)
    return frozenset(name for name in (*required, *numbers) if _is_window(name))


@cache
def _is_window(name: str) -> bool:
    return WINDOW.search(name.lower()) is not None


def given_windows(named: Sequence[inspect.Parameter], case: Case) -> dict[str, int]:
    """Return a window in which all keys of a case lie for each that is a number by default.

    It is odd where that is: windows that are as long on both sides may have to be.
    """
    most = 2 * max(LENGTH, case.queries, case.keys)
    whole = whole_windows(named)
    found = (e for e in named if e.default is not e.empty and e.name in whole)
    return {each.name: most + each.default % 2 for each in found}
