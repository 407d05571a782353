"""How many heads a target takes: fewer of keys than of queries, and one alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.targets.calls.problem_weights import arrays_of
from mha_parity.targets.convention_base.convention import FeatureProbe
from mha_parity.targets.interpretations.try_interpretations import (
    SMALL,
    attention_in_float64,
    is_rounding,
)
from mha_parity.targets.layers.weights import shapes_of, sizes_of, slot_array
from mha_parity.targets.static.argument_meanings import LayerSizes
from mha_parity.targets.static.documented_layout import documents_tiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention
    from mha_parity.targets.convention_base.interpreted import InterpretedCalls
    from mha_parity.targets.layers.weights import Slot

HEADS, KV_HEADS = 4, 2
NO_GROUPS = "no output head is the attention of one query head and one key head"
TILES = "as documented, query head h reads key head h % Hkv, and torch's h // (H / Hkv)"


def grouped(case: Case) -> Case:
    """Return the case with half as many key heads as query heads, and lengths that halve."""
    return case.replace(heads_count=HEADS, kv_heads_count=KV_HEADS, queries=6, keys=6)


def groups_heads(convention: Convention, case: Case) -> bool:
    """Return whether each output head is the attention of some query head and some key head.

    Which ones is for the judge, unless they are in tiles as the documentation says, an order that
    torch does not have. A reshape that takes half of the keys for more heads answers in the same
    shape, and groups nothing.
    """
    problem = make_problem(grouped(case))
    reason = NO_GROUPS
    try:
        output = convention(problem).output
        if output.shape == problem.output_shape and _all_found(problem, output):
            if not (documents_tiles(convention.subject) and _in_tiles(problem, output)):
                return True
            reason = TILES
    except CandidateError as error:
        reason = str(error)
    convention.reasons["kv_heads", "fewer"] = reason
    return False


def grouped_probes(convention: InterpretedCalls, case: Case) -> Iterator[FeatureProbe]:
    """Yield the trial of fewer key heads, if a parameter of the call gets their number.

    Or if a layer that is built for them has smaller keys: where a parameter of its constructor says
    how many, a call that raises is judged as one that does.
    """
    how, fewer = convention.how, case.replace(heads_count=HEADS, kv_heads_count=KV_HEADS)
    if how.roles.kv_heads:
        yield FeatureProbe("kv_heads", "fewer", (fewer,))
    named = convention.kv_heads_parameter
    if how.construction is None or not (named or how.construction.config):
        return
    sizes = LayerSizes(fewer.embed_dim, HEADS, kv_heads=KV_HEADS)
    try:
        layer = convention.new(how.construction, sizes, **convention.key_heads(sizes))
    except CandidateError:
        return
    if not _keeps_fewer_heads(layer, how.slots, fewer):
        return
    if documents_tiles(convention.subject) and _projects_to_tiles(convention, fewer):
        convention.reasons["kv_heads", "fewer"] = TILES
    else:  # what its own parameter gives fewer key heads is for calls to take
        yield FeatureProbe("kv_heads", "fewer", (fewer,), demanded=bool(named))


def _projects_to_tiles(convention: InterpretedCalls, case: Case) -> bool:
    """Return whether query head h of a layer with projections reads key head h % Hkv."""
    problem = make_problem(case)

    def tiled(array: Array | None) -> Array | None:
        if array is None:
            return None
        share = HEADS // KV_HEADS  # a problem has each key head once for each query head of it
        blocks = array.reshape(HEADS, -1, *array.shape[1:])[::share]
        return np.concatenate([blocks] * share).reshape(array.shape)

    names = ("w_k", "w_v", "b_k", "b_v")
    arrays: dict[str, Any] = {name: tiled(getattr(problem, name)) for name in names}
    equal = problem.replace(case=case.replace(kv_heads_count=0), **arrays)
    try:
        output = convention(problem).output
    except CandidateError:
        return False
    expected = attention_in_float64(equal, causal=case.attn == "causal")
    return output.shape == expected.shape and is_rounding(output, expected)


def look_at_one_head(convention: InterpretedCalls) -> None:
    """Take one head back where a layer of one head has other weights than one of several."""
    how, reason = convention.how, ""
    if how.construction is None or not how.parts or "many" not in convention.offer["heads"]:
        return
    try:
        layer = convention.new(how.construction, LayerSizes(SMALL.embed_dim, 1))
        if missing := _missing_array(layer, how.slots):
            reason = f"with one head it has no `{missing}`"
    except CandidateError as error:
        reason = str(error)
    if reason:
        convention.offer = convention.offer | {"heads": ("many",)}
        convention.reasons["heads", "one"] = reason


def _missing_array(layer: Any, slots: Iterable[Slot]) -> str:
    """Return the path of the first array for all heads that a layer lacks; "" if none."""
    held = shapes_of(layer)
    return next((s.path for s in slots if s.path not in held and s.head is None), "")


def _keeps_fewer_heads(layer: Any, slots: Iterable[Slot], case: Case) -> bool:
    """Return whether an array of keys has the size that a layer of fewer key heads gives it."""
    sizes = {path: math.prod(shape) for path, shape in shapes_of(layer).items()}
    problem = make_problem(case)
    held = arrays_of(problem, bias=False)
    return any(
        sizes.get(slot.path) == slot_array(slot, problem, held, sizes_of(problem)).size
        for slot in slots
        if "k" in slot.parts and slot.holds_fewer_keys
    )


def _all_found(problem: Problem, output: Array) -> bool:
    causal = problem.case.attn == "causal"
    pairs = [attention_in_float64(each, causal=causal) for each in _pairs(problem)]
    heads = [_head(output, i, HEADS) for i in range(HEADS)]
    return all(any(is_rounding(head, pair) for pair in pairs) for head in heads)


def _in_tiles(problem: Problem, output: Array) -> bool:
    """Return whether query head h reads key head h % Hkv."""
    causal = problem.case.attn == "causal"
    own = [*_pairs(problem)]
    return all(
        is_rounding(
            _head(output, i, HEADS),
            attention_in_float64(own[i * KV_HEADS + i % KV_HEADS], causal=causal),
        )
        for i in range(HEADS)
    )


def _pairs(problem: Problem) -> Iterator[Problem]:
    """Yield the problem of each query head with each key head."""
    case = problem.case.replace(heads_count=1, kv_heads_count=0)
    for i in range(HEADS):
        for j in range(KV_HEADS):
            key, value = (_head(x, j, KV_HEADS) for x in (problem.key, problem.value))
            query = _head(problem.query, i, HEADS)
            yield problem.replace(case=case, query=query, key=key, value=value)


def _head(rows: Array, head: int, heads: int) -> Array:
    width = rows.shape[-1] // heads
    return rows[..., head * width : (head + 1) * width]
