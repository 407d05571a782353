"""Reduces a failing case to the smallest that still fails: structure first, then sizes, then seed.

Every step is a plainer case (a feature turned off, a size made smaller); it is kept when the same
check still fails. The values are drawn anew from the same seed, so a shrunk case is a case like any
other, and its id replays it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from mha_parity.candidate import NOT_AWAITED
from mha_parity.drawing import possible
from mha_parity.features import PLAIN, of_case
from mha_parity.judgement import Severity
from mha_parity.trial import try_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mha_parity.candidate import Candidate
    from mha_parity.case import Case
    from mha_parity.judgement import Judgement
    from mha_parity.judging import Settings

STEPS = 120  # calls of the candidate that one failure may cost
# Turned off in this order: what confuses a reader most goes first.
AXES_TO_PLAIN = (
    "gradients", "memory", "regime", "masked_rows", "bias_kv", "zero_attn", "padding", "attn",
    "out_proj", "weights", "projection", "inputs", "layout", "scale", "bias", "dtype",
)  # fmt: skip
# Where a feature is needed, a plainer kind of it may do.
PLAINER: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "attn": {
            "float3d": ("bool2d", "float2d", "bool3d"),
            "float2d": ("bool2d",),
            "bool3d": ("bool2d",),
        },
        "padding": {"float": ("bool",), "lengths": ("bool",)},
        "inputs": {"distinct": ("cross",)},
    }
)
# Of two queries and two keys one can see which is which; of one, nothing is left to attend to.
FLOORS = {"batch": 1, "queries": 2, "keys": 2, "heads_count": 1, "head_dim": 1}


def shrunk(candidate: Candidate, found: Judgement, settings: Settings) -> Judgement:
    """Return the same check's judgement on the smallest case that still fails it.

    Of a target that hangs, silence is waited for briefly, and in full once: for the smallest case.
    A target that never answered has no smaller case than any.
    """
    best = found
    hangs = found.severity is Severity.TIMEOUT
    if hangs and not getattr(candidate, "answered", True):
        return found
    _revive(candidate, brief=True)

    def fails(case: Case) -> bool:
        nonlocal best
        for judgement in try_case(candidate, case, settings).judgements:
            silent = hangs and judgement.detail.startswith(NOT_AWAITED)
            if judgement.check == found.check and (judgement.severity.fails or silent):
                best = judgement
                return True
        return False

    def offered(case: Case) -> bool:
        return all(value in candidate.offer[axis] for axis, value in of_case(case).items())

    smallest(found.case, fails, offered)
    return best if best.severity.fails else _in_full(candidate, best.case, found, settings)


def _in_full(candidate: Candidate, case: Case, found: Judgement, settings: Settings) -> Judgement:
    """Return the failure of a case that was waited for briefly, or ``found`` where it is none."""
    _revive(candidate, brief=False)
    judgements = try_case(candidate, case, settings).judgements
    failing = (each for each in judgements if each.check == found.check and each.severity.fails)
    return next(failing, found)


def _revive(candidate: Candidate, *, brief: bool) -> None:
    """Let a target be asked again that was lost too often, where it can be lost."""
    revive = getattr(candidate, "revive", None)
    if revive is not None:
        revive(brief=brief)


def smallest(case: Case, fails: Callable[[Case], bool], offered: Callable[[Case], bool]) -> Case:
    """Return the smallest case found, within ``STEPS`` calls of ``fails``, that still fails."""
    left = STEPS
    current, tried = case, {case}
    while True:
        for smaller in _simpler(current):
            if smaller in tried or not possible(of_case(smaller)) or not offered(smaller):
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
    """Yield plainer cases, the boldest first: where anything fails, one step is all it takes."""
    features, sizes = _plain(case), _floors(case)
    for changes in (features | sizes | {"seed": 0}, features, sizes):
        yield _consistent(case.replace(**changes))
    for axis, value in features.items():
        yield _consistent(case.replace(**{axis: value}))
    for axis, kinds in PLAINER.items():
        for value in kinds.get(getattr(case, axis), ()):
            yield _consistent(case.replace(**{axis: value}))
    for name, floor in FLOORS.items():
        number = getattr(case, name)
        # By two as well: some bugs are in odd sizes alone.
        for smaller in dict.fromkeys((floor, (floor + number) // 2, number - 1, number - 2)):
            if floor <= smaller < number:
                yield _consistent(case.replace(**{name: smaller}))
    if case.kv_heads_count or case.v_head_dim:
        yield case.replace(kv_heads_count=0, v_head_dim=0)
    if case.seed:
        yield case.replace(seed=0)


def _plain(case: Case) -> dict[str, object]:
    """Return the features that a plainer case can have instead of those that it has."""
    fixed = "projection" if case.form == "qkv" else None  # there is none to be plainer
    return {
        axis: PLAIN[axis]
        for axis in AXES_TO_PLAIN
        if axis != fixed and getattr(case, axis) != PLAIN[axis]
    }


def _floors(case: Case) -> dict[str, object]:
    """Return the smallest sizes, each no larger than it is."""
    least = {name: min(floor, getattr(case, name)) for name, floor in FLOORS.items()}
    return {**least, "kv_heads_count": 0, "v_head_dim": 0}


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
