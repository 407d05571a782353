"""Reduce a failing case to the smallest that still fails: features first, then sizes, then seed.

Each step makes the case plainer (a feature off, a size smaller) and is kept where the same check
fails in the same way. The values are drawn again from the same seed: a shrunk case has an id, and
can be replayed.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from mha_parity.cases.clashes import can_coexist
from mha_parity.core.check_result import Severity
from mha_parity.core.features import PLAIN
from mha_parity.judging.gradients import CHECK as GRADIENT
from mha_parity.run.case_run import run_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mha_parity.core.candidate import Candidate
    from mha_parity.core.case import Case
    from mha_parity.core.check_result import CheckResult
    from mha_parity.judging.output import JudgeSettings

JUDGED = ("output", "weights", GRADIENT)  # how checks begin whose numbers are judged by orders
STEPS = 120  # calls of the candidate that one failure may cost
# The order of turning features off: those that make a case hardest to read first.
AXES_TO_PLAIN = (
    "gradients", "memory", "regime", "masked_rows", "bias_kv", "zero_attn", "padding", "attn",
    "out_proj", "weights", "projection", "inputs", "layout", "scale", "bias", "dtype",
)  # fmt: skip
# Plainer values of a feature that cannot be turned off.
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
LEAST_PART = 8  # of a large size that is taken off at once
# With one key every weight is 1: two queries and two keys are the smallest that show a mistake.
FLOORS = {"batch": 1, "queries": 2, "keys": 2, "heads_count": 1, "head_dim": 1}


def shrunk(
    candidate: Candidate, found: CheckResult, settings: JudgeSettings, *, by_float32: bool = False
) -> CheckResult:
    """Return the same check's result on the smallest case that fails it in the same way.

    The severity and the kind of the failure stay: a crash is not shrunk to a wrong number, nor one
    exception to another, nor what float32 in place of float64 explains (``by_float32``) to more.
    """
    best = found
    allow_retries = getattr(candidate, "allow_retries", None)
    if allow_retries is not None:  # a process that was lost too often is started again
        allow_retries()

    def fails(case: Case) -> bool:
        nonlocal best
        case_result = run_case(candidate, case, settings)
        if case_result.right_by_float32 is not by_float32:
            return False
        for check_result in case_result.check_results:
            if check_result.kind == found.kind:
                best = check_result
                return True
        return False

    def offered(case: Case) -> bool:
        return all(value in candidate.offer[axis] for axis, value in case.features().items())

    smallest_failing_case(found.case, fails, offered)
    return with_every_order(candidate, found, settings) if best is found else best


def with_every_order(
    candidate: Candidate, found: CheckResult, settings: JudgeSettings
) -> CheckResult:
    """Return a result with what all orders allow: the run measured one where that decided.

    A target that answers otherwise when asked again keeps what the run found.
    """
    if (
        found.severity is not Severity.WRONG
        or not found.check.startswith(JUDGED)
        or found.where is None
    ):
        return found
    again = run_case(candidate, found.case, settings).check_results
    return next((each for each in again if each.kind == found.kind), found)


def smallest_failing_case(
    case: Case, fails: Callable[[Case], bool], offered: Callable[[Case], bool]
) -> Case:
    """Return the smallest case found, within ``STEPS`` calls of ``fails``, that still fails."""
    left = STEPS
    current, tried = case, {case}
    while True:
        for smaller in _simpler(current):
            if smaller in tried or not can_coexist(smaller.features()) or not offered(smaller):
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
    """Yield plainer cases, the largest change first: where every case fails, one step is enough."""
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
        for smaller in _smaller_sizes(number, floor):
            if floor <= smaller < number:
                yield _consistent(case.replace(**{name: smaller}))
    if case.kv_heads_count or case.v_head_dim:
        yield case.replace(kv_heads_count=0, v_head_dim=0)
    if case.seed:
        yield case.replace(seed=0)


def _smaller_sizes(number: int, floor: int) -> Iterator[int]:
    """Yield smaller sizes: by ever smaller parts of a large one, which lead to a border soon."""
    yield from dict.fromkeys((floor, (floor + number) // 2))
    part = (number - floor) // 4
    while part >= LEAST_PART:
        yield number - part
        part //= 2
    # By two as well: some bugs are in odd sizes alone.
    yield from (number - 1, number - 2)


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
