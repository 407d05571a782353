"""How a function may take its weights: the parts, axes and containers of each, likeliest first."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from mha_parity.targets.layers.weights import WeightArgument
from mha_parity.targets.static import projection_names as names
from mha_parity.targets.static.argument_meanings import meanings
from mha_parity.targets.static.names_in_code import fields_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.targets.layers.weights import Axes

    Records = Sequence[type | Sequence[str]]

# What a dictionary of all weights calls the weight and the bias of one projection.
_LEAF_WEIGHTS = ("w", "W", "weight", "kernel")
_LEAF_BIASES = ("b", "bias")
# The key under which a dictionary of more than an attention holds the attention's weights.
_AROUND = re.compile(
    r"params|weights|((self|cross)_?)?(attn|attention)|mha|multi_?head(_?(attn|attention))?",
    re.IGNORECASE,
)
TORCHS_PACKED = "in_proj_weight"
# A key of a dictionary of weights that says of no input that it is projected.
_A_PROJECTION = re.compile(r"proj|projection|dense")
TORCHS_ARRAYS = (
    (TORCHS_PACKED, names.ROWS), ("in_proj_bias", names.ROWS),
    ("out_proj.weight", ("out",)), ("out_proj.bias", ("out",)),
)  # fmt: skip
SPLIT = "axes of heads behind the input"
ROWS_FIRST = "axes of heads before the input"
STACKED = ("xw, stacked", "xwt, stacked")  # q, k and v along an axis of their own
PAIRS = ("xw, pairs", "xwt, pairs")  # a tuple of weight and bias for each projection


def weight_parts(name: str) -> tuple[str, ...]:
    """Return the parts of the weight or bias that a parameter's name means; "?" if unsaid."""
    if names.plain(name) in {"w", "wqkv", "wkqv"}:
        return names.ROWS
    if names.is_weight(name):
        return names.parts(name) or ("?",)
    return names.bias_parts(name)


def weight_readings(weighed: Sequence[str]) -> Iterator[tuple[tuple[str, WeightArgument], ...]]:
    """Yield how all weights of a function may be given: all of them in one way.

    As arrays X @ W or X @ W.T, one for each head, with an axis of heads, that of the output too,
    as weights and biases by name or in pairs, or with an axis of q, k and v.
    """
    named = [(name, weight_parts(name)) for name in weighed]
    arrays = [(name, parts) for name, parts in named if not _is_bias(name)]
    has = {part for _, parts in arrays for part in parts}
    left = [part for part in (*names.ROWS, "out") if part not in has]
    unsaid = [name for name, parts in arrays if parts in {("?",), ()}]
    if unsaid and len(arrays) == len(unsaid) and len(unsaid) in {3, 4}:
        left = [*names.ROWS, "out"]
    guessed: dict[str, tuple[str, ...]] = dict(
        zip(unsaid, [(part,) for part in left], strict=False)
    )
    if len(weighed) in {1, 2} and unsaid and not has & set(names.ROWS):
        guessed = dict(zip(unsaid, (names.ROWS, ("out",)), strict=False))
    whole = [(name, guessed.get(name, parts)) for name, parts in named]
    if any(parts in {("?",), ()} for _, parts in whole):
        return
    # Biases that are columns are added to W @ x.
    columns = ("columns",) if any(_is_bias(name) for name in weighed) else ()
    packed = {name for name, parts in whole if len(parts) > 1}
    # By torch's own name the rows are all of q, then all of k, then all of v.
    is_open = bool(packed) and TORCHS_PACKED not in packed
    stacked = STACKED if is_open else ()
    held = ("list", "heads", "all heads", SPLIT, "dict")
    for way in ("xw", "xwt", *columns, *held, *stacked, *(PAIRS if weighed else ())):
        for order in ("phd", "hpd", "hdp") if is_open and way not in STACKED else ("phd",):
            yield tuple((name, _given(name, parts, way, order)) for name, parts in whole)


def in_dictionary(keys: Sequence[str]) -> Iterator[WeightArgument]:
    """Yield how a dictionary of all weights may hold them, likeliest first.

    Itself, then in a dictionary under a key that may be a whole attention's.
    """
    around = [key for key in keys if _AROUND.fullmatch(key)]
    for within in ("", *around):
        for each in _by_key([key for key in keys if key not in around]):
            yield replace(each, within=within)


def _by_key(keys: Sequence[str]) -> Iterator[WeightArgument]:
    parts_of = {key: _key_parts(key) for key in keys}
    unsaid = [key for key in keys if _A_PROJECTION.fullmatch(key.lower())]
    if ("out",) not in parts_of.values() and len(unsaid) == 1:  # the one beside q, k and v
        parts_of[unsaid[0]] = ("out",)
    named = [key for key in keys if parts_of[key]]
    if put_together := [key for key in named if not key.isidentifier()]:
        named = put_together  # what they begin with is no key
    if TORCHS_PACKED in keys:
        entries = tuple((key, _given(key, parts, "xwt", "phd")) for key, parts in TORCHS_ARRAYS)
        yield WeightArgument((*names.ROWS, "out"), ("phd", "e"), "params", entries=entries)
    weighed = [key for key in named if not _is_bias(key)]
    leaves = [(w, b) for w in _LEAF_WEIGHTS for b in _LEAF_BIASES if {w, b} <= set(keys)]
    if not set(names.ROWS) <= {part for key in weighed for part in parts_of[key]}:
        return
    outs = frozenset(key for key in weighed if parts_of[key] == ("out",))
    for left_out in dict.fromkeys((frozenset[str](), outs)):
        chosen = [key for key in named if key not in left_out]
        ways = ("xw", "xwt", "heads", "all heads", SPLIT, ROWS_FIRST)
        for way in ("dict",) if leaves else ways:
            given = [(key, _given(key, parts_of[key], way, "phd")) for key in chosen]
            held = tuple(
                (key, replace(each, leaves=(leaves or [each.leaves])[0])) for key, each in given
            )
            parts = tuple(dict.fromkeys(part for _, each in held for part in each.parts))
            sizes = tuple((key, m) for key in keys for m in meanings(key)[:1] if m in _SIZES_HELD)
            sizes = tuple(each for each in sizes if each[0] not in dict(held))
            yield WeightArgument(parts, held[0][1].axes, "params", entries=held, sizes=sizes)


def in_order(unpacked: Records) -> Iterator[WeightArgument]:
    """Yield how a tuple of all weights may hold them, by the names that it is unpacked to.

    Or the record of a class, by those of its fields.
    """
    for record in unpacked:
        made_by = record if isinstance(record, type) else None
        each = fields_of(record) if isinstance(record, type) else record
        found = [_key_parts(name) for name in each]
        if not all(found) or not set(names.ROWS) <= {part for parts in found for part in parts}:
            continue
        for way in ("xw", "xwt", "heads", "all heads", SPLIT, *PAIRS):
            held = tuple((name, _given(name, _key_parts(name), way, "phd")) for name in each)
            parts = tuple(dict.fromkeys(part for _, given in held for part in given.parts))
            yield WeightArgument(parts, held[0][1].axes, "tuple", entries=held, made_by=made_by)


_SIZES_HELD = frozenset({"heads", "head_dim"})  # numbers in a dictionary of weights


def _key_parts(key: str) -> tuple[str, ...]:
    """Return the parts of the weight or bias that a key means; () if unsaid."""
    return names.parts(key) or names.bias_parts(key)


def _is_bias(name: str) -> bool:
    if not name.isidentifier():  # "Wq.bias"
        return name.endswith(tuple(f".{each}" for each in _LEAF_BIASES))
    no_weight = not names.is_weight(name) and names.plain(name) != "w"
    return no_weight and bool(names.bias_parts(name))


_OF_HEADS: dict[str, Axes] = dict.fromkeys(("heads", "all heads"), ("h", "e", "d"))
_OF_HEADS |= {"list": ("e", "d"), SPLIT: ("e", "h", "d"), ROWS_FIRST: ("h", "d", "e")}


def _given(name: str, parts: tuple[str, ...], way: str, order: str) -> WeightArgument:
    rows = order if len(parts) > 1 else "hd"
    several = ("p",) if way in STACKED and len(parts) > 1 else ()
    if _is_bias(name):
        more = ("",) if way == "columns" else ()
        if several:
            return WeightArgument(parts, ("p", "hd"), bias=True)
        by_head = way in {"all heads", SPLIT, ROWS_FIRST} and len(parts) == 1
        axes: Axes = ("h", "d") if by_head else (rows, *more)
        return WeightArgument(parts, ("e", *more) if parts == ("out",) else axes, bias=True)
    transposed = way in {"xwt", "columns", STACKED[1], PAIRS[1]}
    container = "dict" if way == "dict" else "pair" if way in PAIRS else "array"
    if parts == ("out",):
        axes = ("e", "hd") if transposed else ("hd", "e")
        axes = ("h", "d", "e") if way in {"all heads", SPLIT} else axes
        axes = ("e", "h", "d") if way == ROWS_FIRST else axes
        return WeightArgument(parts, axes, container)
    if way in _OF_HEADS and len(parts) == 1:
        return WeightArgument(parts, _OF_HEADS[way], "list" if way == "list" else "array")
    axes = (rows, "e") if transposed else ("e", rows)
    if several:
        axes = ("p", *(axis.removeprefix("p") for axis in axes))
    return WeightArgument(parts, axes, container)
