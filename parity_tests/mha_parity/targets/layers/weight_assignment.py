"""Which array of a layer holds what, by its name, its shape and its place among the others."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mha_parity.targets.layers.build_layer import is_module
from mha_parity.targets.static import projection_names as names
from mha_parity.targets.static.code_syntax import orders_unpacked
from mha_parity.targets.static.documented_qkv_packing import documents_parts_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mha_parity.targets.layers.layer_arrays import Leaf

CONVOLUTIONS = frozenset({"Conv1d", "Conv2d"})
TORCHS = "MultiheadAttention"
# Not `LinearNormal`, whose weights are drawn from the normal distribution.
_NORM = re.compile(r"norm(?!al)|normali[sz]", re.IGNORECASE)
_OF_Q_OR_K = re.compile(
    r"^(q|k|qk|quer(y|ies)|keys?)_?(layer|ln|rms)?_?norm|norm_?(q|k|qk)$|^ln_?[qk]$"
)
_OF_ROWS = re.compile(r"(Layer|RMS)Norm")
MOST_OF_A_BIAS = 3  # axes: of q, k and v, of heads and of the width of one


@dataclass(frozen=True, slots=True)
class SortedLeaves:
    """Which array holds what, by the names: weights, biases, norms, and what is none of them.

    Every entry is a leaf, its parts, and its head where each head has an array of its own.
    """

    weights: tuple[tuple[Leaf, tuple[str, ...], int | None], ...]
    biases: tuple[tuple[Leaf, tuple[str, ...], int | None], ...]
    norms: tuple[Leaf, ...]
    others: tuple[Leaf, ...]
    parts_first: bool = False  # whether packed rows are documented as all of q, then k, then v

    @property
    def convolves(self) -> bool:
        """Whether convolutions project, whose inputs have their channels first."""
        return any(leaf.owner in CONVOLUTIONS for leaf, _, _ in self.weights)

    def in_orders_of(self, kind: type) -> SortedLeaves:
        """Return the same with parts in the order that a class documents, or else unpacks."""
        found = replace(self, parts_first=documents_parts_first(kind))
        return found if found.parts_first else found.in_orders(orders_unpacked(kind))

    def in_orders(self, orders: Mapping[str, tuple[str, ...]]) -> SortedLeaves:
        """Return the same with parts in the order that the code unpacks a module's output in.

        ``orders`` has it by the module's name. A name that spells the order is held to it.
        """

        def ordered(leaf: Leaf, parts: tuple[str, ...]) -> tuple[str, ...]:
            owner = leaf.path.rpartition(".")[0] or leaf.path  # an array of the layer itself
            spelled = names.parts(owner) and names.stem(owner) not in names.WHOLE
            return parts if spelled or parts != names.ROWS else orders.get(owner, parts)

        weights, biases = (
            tuple((leaf, ordered(leaf, parts), head) for leaf, parts, head in each)
            for each in (self.weights, self.biases)
        )
        return replace(self, weights=weights, biases=biases)


def sorted_by_name(found: Sequence[Leaf]) -> SortedLeaves:
    """Sort the arrays of a layer by what their names say, and by order where they say nothing."""
    norms = tuple(leaf for leaf in found if any(map(_NORM.search, (leaf.owner, leaf.path))))
    left = [leaf for leaf in found if leaf not in norms]
    biases = [leaf for leaf in left if _is_bias(leaf)]
    weights = [leaf for leaf in left if leaf not in biases]
    named = _with_parts(weights)
    others = [leaf for leaf, parts in named if not parts]
    by_stem = {_without_kind(leaf.path): parts for leaf, parts in named}
    of_bias = [(leaf, _bias_of(leaf, by_stem)) for leaf in biases]
    unnamed = [leaf for leaf, parts in of_bias if not parts]
    if len(unnamed) == 3:  # in the order of the rows that they are added to
        order = dict(zip(unnamed, names.ROWS, strict=True))
        of_bias = [(leaf, parts or (order[leaf],)) for leaf, parts in of_bias]
    if len(unnamed) == 1 and not _stem(unnamed[0].path):  # `bias` of the layer itself
        has = {part for _, parts in of_bias for part in parts}
        is_last = ("out",) in by_stem.values() and "out" not in has
        of_bias = [(leaf, parts or ("out",) * is_last) for leaf, parts in of_bias]
    others += [leaf for leaf, parts in of_bias if not parts]
    return SortedLeaves(
        tuple(_with_heads([each for each in named if each[1]])),
        tuple(_with_heads([each for each in of_bias if each[1]])),
        norms,
        tuple(others),
    )


def weightless_norms(layer: Any) -> tuple[str, ...]:
    """Return the paths of a module's norms that have no weights, those of q and k left out."""
    if not is_module(layer):
        return ()
    modules = [(path, each) for path, each in layer.named_modules() if path]
    norms = [(path, each) for path, each in modules if _OF_ROWS.fullmatch(type(each).__name__)]
    empty = (path for path, each in norms if next(each.parameters(), None) is None)
    return tuple(path for path in empty if not _OF_Q_OR_K.search(path.rpartition(".")[2]))


def _is_bias(leaf: Leaf) -> bool:
    """Return whether a leaf is no weight: by its name, or as a vector; a head may be one wide."""
    last = leaf.path.removesuffix(".data").rpartition(".")[2]  # of a parameter of the target's own
    if last.lower() in {"bias", "b"} or len(leaf.shape) < 2:
        return True
    axes = sum(size != 1 for size in leaf.shape)
    return last != "weight" and axes <= MOST_OF_A_BIAS and bool(names.bias_parts(last))


def _bias_of(leaf: Leaf, by_stem: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    stem = by_stem.get(_without_kind(leaf.path))
    return stem or names.bias_parts(leaf.path) or names.parts(leaf.path)


def _stem(path: str) -> str:
    return re.sub(r"\.?_?(weights?|bias|kernel|w|b)(\.data)?$", "", path, flags=re.IGNORECASE)


def _without_kind(path: str) -> str:
    """Return what a weight and its bias share of their paths: `fc` of `fc.weight`, `h` of `W_h`."""
    return re.sub(r"(^|\.)(weights?|bias|kernel|w|b)_", r"\1", _stem(path), flags=re.IGNORECASE)


def _with_parts(weights: list[Leaf]) -> list[tuple[Leaf, tuple[str, ...]]]:
    """Return the parts of each weight: by name, or by order where names say nothing."""
    alike = names.parts_by_pattern(leaf.path for leaf in weights)
    named = [(leaf, names.parts(leaf.path) or alike.get(leaf.path, ())) for leaf in weights]
    stems = {re.sub(r"_?\d+", "", leaf.path) for leaf, _ in named}  # haiku has no `linear_0`
    if len(stems) == 1 and len(named) in {3, 4}:  # one list of them
        return _by_place([leaf for leaf, _ in named])
    packed = [leaf for leaf, parts in named if len(parts) == 3]
    if len(packed) == 3 and len({leaf.shape for leaf in packed}) == 1:  # a list called `qkv`
        order = dict(zip(packed, names.ROWS, strict=True))
        named = [(leaf, (order[leaf],) if leaf in order else parts) for leaf, parts in named]
    named = [(leaf, _of_its_size(leaf, parts)) for leaf, parts in named]
    if _says_little(named):  # `a`, `b`, `c`, `d`: in the order of the layer's
        return [(leaf, (p,)) for (leaf, _), p in zip(named, (*names.ROWS, "out"), strict=True)]
    unnamed = [leaf for leaf, parts in named if not parts]
    has = {part for _, parts in named for part in parts}
    if len(unnamed) == 3 and not has & set(names.ROWS):
        given = dict(zip(unnamed, names.ROWS, strict=True))
        return [(leaf, parts or (given[leaf],)) for leaf, parts in named]
    if len(named) == len(unnamed) == 2 and (pair := _packed_and_out(unnamed)):
        return pair
    if len(unnamed) == 1:
        one: tuple[str, ...] = ("out",) if has >= set(names.ROWS) and "out" not in has else ()
        if not has & set(names.ROWS):
            one = ("out",) if len(set(unnamed[0].shape)) == 1 else names.ROWS
        return [(leaf, parts or tuple(one)) for leaf, parts in named]
    return named


def _by_place(found: Sequence[Leaf]) -> list[tuple[Leaf, tuple[str, ...]]]:
    """Return a list of arrays as q, k, v, out; as q, kv, out where the second is twice the others.

    A layer of flax numbers those without a name: `Dense_0`, `Dense_1`, `Dense_2`.
    """
    sizes = [math.prod(leaf.shape) for leaf in found]
    parts: list[tuple[str, ...]] = [(part,) for part in (*names.ROWS, "out")]
    if len(found) == 3 and sizes[1] == 2 * sizes[0] == 2 * sizes[2]:
        parts = [("q",), ("k", "v"), ("out",)]
    return list(zip(found, parts, strict=False))


def _packed_and_out(found: Sequence[Leaf]) -> list[tuple[Leaf, tuple[str, ...]]]:
    """Return two arrays as the packed projections and that of the output, where their sizes say so.

    One is square, and the other three times as long in one axis.
    """
    square = [leaf for leaf in found if len(set(leaf.shape)) == 1 and len(leaf.shape) == 2]
    packed = [leaf for leaf in found if leaf not in square and len(leaf.shape) == 2]
    if len(square) != 1 or len(packed) != 1:
        return []
    width = square[0].shape[0]
    if sorted(packed[0].shape) != [width, 3 * width]:
        return []
    return [(leaf, ("out",) if leaf is square[0] else names.ROWS) for leaf in found]


def _says_little(named: Sequence[tuple[Leaf, tuple[str, ...]]]) -> bool:
    """Return whether of the names of four arrays of one shape no more than a letter says a part.

    `merge` is the output's, wherever it stands; `c` is the third of `a`, `b`, `c`, `d`.
    """
    said = [(_stem(leaf.path), parts) for leaf, parts in named if parts]
    if len(named) != 4 or len({leaf.shape for leaf, _ in named}) > 1 or len(said) > 1:
        return False
    return all(parts == ("out",) and len(names.plain(stem)) == 1 for stem, parts in said)


def _of_its_size(leaf: Leaf, parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the parts of a Linear called `c_attn`: of queries, or of keys and values, by its size.

    In cross-attention two of them share the name. A square one called `fused` or `qk` is neither.
    """
    word = names.stem(leaf.path.rpartition(".")[0])
    if len(leaf.shape) != 2 or word not in names.WHOLE | names.OF_Q_AND_K:
        return parts
    many, rest = divmod(max(leaf.shape), min(leaf.shape))
    if word not in names.OF_ATTENTION:
        return () if (many, rest) == (1, 0) else parts
    return parts if rest else {1: ("q",), 2: ("k", "v")}.get(many, parts)


def _with_heads(
    named: list[tuple[Leaf, tuple[str, ...]]],
) -> Iterator[tuple[Leaf, tuple[str, ...], int | None]]:
    """Yield each with its head, where several arrays hold the same parts."""
    count: dict[tuple[str, ...], int] = {}
    total = [parts for _, parts in named]
    for leaf, parts in named:
        place = count.get(parts, 0)
        count[parts] = place + 1
        yield leaf, parts, place if total.count(parts) > 1 else None


def around_torchs(
    leaves: list[Leaf],
) -> tuple[tuple[str, ...], list[Leaf]]:
    """Return the square Linears around one attention of torch, and the arrays that are not theirs.

    Those of the attention are the projections: a Linear before or behind one is another factor.
    """
    holders = {each.path.rpartition(".")[0] for each in leaves if each.owner == TORCHS}
    holder = f"{min(holders)}." if len(holders) == 1 else "."
    left = [each for each in leaves if not each.path.startswith(holder)]
    outside = [each for each in left if "norm" not in f"{each.owner}{each.path}".lower()]
    square = all(each.owner == "Linear" and len({*each.shape}) == 1 for each in outside)
    if holder == "." or not square:
        return (), leaves
    paths = dict.fromkeys(each.path.rpartition(".")[0] for each in outside)
    return tuple(paths), [each for each in leaves if each not in outside]


def further_attentions(kept: SortedLeaves) -> tuple[str, ...]:
    """Return the paths of the attentions of torch behind the first: no heads of one attention."""
    paths = (leaf.path.rpartition(".")[0] for leaf, _, _ in kept.weights if leaf.owner == TORCHS)
    return tuple(dict.fromkeys(paths))[1:]


def rows_prefix(leaves: Sequence[Leaf]) -> str:
    """Return the path of the module that holds all weights of queries, keys and values."""
    kept = sorted_by_name(leaves).weights
    paths = [leaf.path.split(".")[:-2] for leaf, parts, _ in kept if {*parts} & {*names.ROWS}]
    steps = itertools.takewhile(lambda each: len({*each}) == 1, zip(*paths, strict=False))
    return ".".join(step for step, *_ in steps)
