"""Sizes that the code of a class has as numbers, which no argument of its constructor says."""

from __future__ import annotations

import dis
from itertools import chain
from types import CodeType
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.layers import layer_arrays, weights
from mha_parity.targets.layers.build_layer import new_layer
from mha_parity.targets.layers.inner_attention import all_constructions
from mha_parity.targets.layers.module_constants import number_of
from mha_parity.targets.layers.weight_assignment import sorted_by_name
from mha_parity.targets.static import call_parameters
from mha_parity.targets.static.argument_meanings import LayerSizes
from mha_parity.targets.static.names_in_code import names_read

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# How layers call their number of heads.
HEADS = ("num_heads", "n_heads", "n_head", "nhead", "heads", "num_attention_heads", "h", "H")
# Sizes for which a layer is built: what keeps its shapes has a width of its own.
ASKED = (LayerSizes(24, 4), LayerSizes(40, 5))
LEAST_HEADS, MOST_HEADS = 3, 64  # 1 and 2 are numbers of axes
SMALL_INT = "LOAD_SMALL_INT"  # since Python 3.14, with the number itself
TRIED = 6  # sizes, the likeliest first: each is a search of its own


def sizes_in_code(kind: type) -> Iterator[dict[str, int]]:
    """Yield the sizes that a class may have by itself, as fields of a case, the likeliest first.

    Its heads and their width, where its weights keep their shapes whatever it is built for; its
    heads alone, where they follow the width that it is built for. None of a class that takes heads.
    """
    built = _built(kind)
    if built is None:
        return
    layers, numbers = built, _numbers(kind, built[0])
    leaves = [layer_arrays.leaves(layer) for layer in layers]
    kept = sorted_by_name(leaves[0])
    if not kept.weights:
        return
    own = _own_heads(layers)
    if [each.shape for each in leaves[0]] != [each.shape for each in leaves[1]]:
        found = own or sorted(n for n in numbers if LEAST_HEADS <= n <= MOST_HEADS)
        yield from ({"heads_count": heads} for heads in found[:TRIED])
        return
    widths = sorted({size for leaf, _, _ in kept.weights for size in leaf.shape if size > 1})
    pairs = [
        (width, heads)
        for width in widths
        for heads in (own or [1, *numbers])
        if heads <= MOST_HEADS
        and heads < width
        and width % heads == 0
        and weights.candidate_slots(kept, {"h": heads, "e": width, "d": width // heads})
    ]
    pairs.sort(key=lambda pair: _likelihood(pair, numbers), reverse=True)
    for width, heads in dict.fromkeys(pairs[:TRIED]):
        yield {"heads_count": heads, "head_dim": width // heads}


def _likelihood(pair: tuple[int, int], numbers: set[int]) -> tuple[bool, bool, int]:
    """Return how likely a width and heads are: several heads of a width in the code come first."""
    width, heads = pair
    return heads > 1 and {heads, width // heads} <= numbers, heads <= width // heads, heads


def _built(kind: type) -> tuple[Any, Any] | None:
    """Return a layer of each asked size; None of a class that takes heads, or is not built."""
    named = call_parameters.of_callable(kind)
    for how in all_constructions(kind, named):
        if how.has("heads", "head_dim"):
            return None
        try:
            first, second = (new_layer(kind, kind, named, how, sizes) for sizes in ASKED)
        except CandidateError:
            continue
        return first, second
    return None


def _own_heads(layers: Sequence[Any]) -> list[int]:
    """Return the number of heads that layers of all sizes have as an attribute, if one is so."""
    for name in HEADS:
        found = {getattr(layer, name, None) for layer in layers}
        held = found.pop()
        if not found and type(held) is int and 0 < held <= MOST_HEADS:
            return [held]
    return []


def _numbers(kind: type, layer: Any) -> set[int]:
    """Return the whole numbers in the code of a class, in its attributes, and that it reads."""
    own = (each for each in kind.__mro__ if each.__module__ == kind.__module__)
    methods = [m for each in own for m in vars(each).values() if hasattr(m, "__code__")]
    steps = chain.from_iterable(_steps(m.__code__) for m in methods)
    held = (
        each.argval for each in steps if each.opcode in dis.hasconst or each.opname == SMALL_INT
    )
    single = chain.from_iterable(each if isinstance(each, tuple) else (each,) for each in held)
    read = (number_of(m.__globals__, name) for m in methods for name in names_read(m))
    attributes = getattr(layer, "__dict__", {}).values()
    return {each for each in chain(single, read, attributes) if type(each) is int and each > 0}


def _steps(code: CodeType) -> Iterator[dis.Instruction]:
    """Yield the steps of code, and of the functions and comprehensions in it."""
    yield from dis.get_instructions(code)
    for each in code.co_consts:
        yield from _steps(each) if isinstance(each, CodeType) else ()
