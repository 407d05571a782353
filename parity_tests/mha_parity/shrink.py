"""Reduces a failing case to the smallest that still fails: structure first, then sizes, then seed.

Every step is a plainer case (a feature turned off, a size made smaller); it is kept when the same
check still fails. The values are drawn anew from the same seed, so a shrunk case is a case like any
other, and its id replays it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.drawing import possible
from mha_parity.features import PLAIN, of_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.case import Case

STEPS = 120  # calls of the candidate that one failure may cost
# Turned off in this order: what confuses a reader most goes first.
AXES_TO_PLAIN = (
    "gradients", "memory", "regime", "masked_rows", "bias_kv", "zero_attn", "padding", "attn",
    "out_proj", "weights", "projection", "inputs", "layout", "scale", "bias",
)  # fmt: skip
FLOORS = {"batch": 1, "queries": 2, "keys": 2, "heads_count": 1, "head_dim": 1}


def smallest(case: Case, fails: Callable[[Case], bool], offered: Callable[[Case], bool]) -> Case:
    """Return the smallest case found, within ``STEPS`` calls of ``fails``, that still fails."""
    left = STEPS
    current, tried = case, {case}
    while True:
        for smaller in _simpler(current):
            if smaller in tried or not _drawable(smaller) or not offered(smaller):
                continue
            if left == 0:
                return current
            tried.add(smaller)
            left -= 1
            if fails(smaller):
                current = smaller
                break
        else:
            return current


def _simpler(case: Case) -> Iterator[Case]:
    """Yield plainer cases, the boldest first."""
    for axis in AXES_TO_PLAIN:
        if axis == "projection" and case.form == "qkv":
            continue
        plain = PLAIN[axis]
        if getattr(case, axis) != plain:
            yield _consistent(case.replace(**{axis: plain}))
    if case.kv_heads_count or case.v_head_dim:
        yield case.replace(kv_heads_count=0, v_head_dim=0)
    for name, floor in FLOORS.items():
        number = getattr(case, name)
        for smaller in dict.fromkeys((floor, (floor + number) // 2, number - 1)):
            if floor <= smaller < number:
                yield _consistent(case.replace(**{name: smaller}))
    if case.seed:
        yield case.replace(seed=0)


def _consistent(case: Case) -> Case:
    """Return the case with the sizes that its features imply."""
    if case.inputs == "self" and case.queries != case.keys:
        smaller = min(case.queries, case.keys)
        case = case.replace(queries=smaller, keys=smaller)
    if case.projection != "separate" and (case.kdim or case.vdim):
        case = case.replace(kdim=0, vdim=0)
    if case.kv_heads_count > 0 and case.heads_count % case.kv_heads_count:
        case = case.replace(kv_heads_count=0)
    return case


def _drawable(case: Case) -> bool:
    return possible(of_case(case))
