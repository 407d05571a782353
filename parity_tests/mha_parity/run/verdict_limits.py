"""Limits of a verdict that fail nothing: a dtype that is not judged, S unlike L, ..."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.candidate import without_place
from mha_parity.core.text import listed
from mha_parity.oracle import reference
from mha_parity.run import answer_dtype
from mha_parity.targets.loading.library_stubs import INTERFACE_OF

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mha_parity.core.candidate import Candidate
    from mha_parity.core.features import Offer
    from mha_parity.core.options import Options
    from mha_parity.core.target_facts import TargetFacts
    from mha_parity.run.case_run import CaseResult

SERVED = 4  # cases of either kind that a border between S = L and S unlike L, or dtypes, rests on
OFTEN = 0.5  # of the cases of S unlike L, or of one dtype, fail at least: else it does not decide
ZERO_ROWS = (
    "its documentation promises 0 in rows that see no key: judged so, unless --fully-masked says "
    "otherwise."
)
BY_FLOAT64 = (
    "long double has the digits of float64 on this machine: float64 was judged by torch's own "
    "answer in float64, and not for systematic errors."
)
WITHOUT_GRADIENTS = "--features gradients=no leaves them out"
REST = "judge the rest with --features inputs=self"


def of_short_lengths(facts: TargetFacts, options: Options) -> str:
    """Return the sentence on the lengths that gradients are asked of; "" where they are all."""
    if not (facts.longest and options.grad):
        return ""
    return (
        f"gradients were asked of at most {facts.longest} rows and keys, and with them all else: "
        "the backward pass takes time of the cube of the length."
    )


def not_served_remarks(
    candidate: Candidate, options: Options, offer: Offer, case_results: Sequence[CaseResult]
) -> tuple[str, ...]:
    """Return the sentences on what the target does not serve."""
    facts = candidate.facts
    own = facts.own_weights
    backward = facts.own_backward if options.grad else ""
    found = (
        *map(not_installed, facts.not_installed),
        f"gradients were judged too: {backward}; {WITHOUT_GRADIENTS}." if backward else "",
        of_short_lengths(facts, options),
        facts.dropped,
        "" if own is None else own.sentence,
        "" if own is None else own.limit,
        answer_dtype.remark(facts.answer_dtypes, options),
        not_cross(facts.reasons, offer),
        fails_cross(case_results),
        zero_rows(facts, options, offer),
        fails_in_one_dtype(case_results),
        judged_by_float64(options),
    )
    return tuple(filter(None, found))


def judged_by_float64(options: Options) -> str:
    """Say that float64 was judged by no wider dtype, where long double is none."""
    alone = reference.EXTENDED is np.float64 and "float64" in options.dtypes
    return BY_FLOAT64 if alone else ""


def zero_rows(facts: TargetFacts, options: Options, offer: Offer) -> str:
    """Return that rows that see no key were judged as documented; "" where they were not."""
    asked = facts.zero_rows and options.fully_masked is None and "some" in offer["masked_rows"]
    return ZERO_ROWS if asked else ""


def not_installed(library: str) -> str:
    """Say that a library was imported in name alone, and how to have the target use it."""
    if library in INTERFACE_OF:
        return (
            f"`{library}` is not installed: `{INTERFACE_OF[library]}`, whose interface it has, was "
            "used in its place; install it to judge the target with it."
        )
    return (
        f"the import of `{library}` failed, and the target was judged without it: a call of it "
        "would raise an error; install it if the attention needs it."
    )


def not_cross(reasons: Mapping[tuple[str, str], str], offer: Offer) -> str:
    """Say that S unlike L was tried and is not served, where self-attention alone is offered."""
    reason = without_place(reasons.get(("inputs", "cross"), ""))
    if not reason or offer["inputs"] != ("self",):
        return ""
    return f"S unlike L is not served ({reason}): judged with --features inputs=self"


def fails_in_one_dtype(case_results: Sequence[CaseResult]) -> str:
    """Say that all failures are of one dtype and the others hold, where it is so.

    Fewer than half of its cases may fail for another reason, and be of one dtype by chance.
    """
    judged = [each for each in case_results if not each.inconclusive]
    failing = {each.case.dtype for each in judged if each.fails}
    others = Counter(each.case.dtype for each in judged if each.case.dtype not in failing)
    if len(failing) != 1 or not others or min(others.values()) < SERVED:
        return ""
    of_dtype = [each.fails for each in judged if each.case.dtype in failing]
    if sum(of_dtype) <= max(SERVED, OFTEN * len(of_dtype)):
        return ""
    names = list(others)
    hold = "holds" if len(names) == 1 else "hold"
    return (
        f"fails in {failing.pop()} alone; {listed(names)} {hold}, which --dtypes {','.join(names)} "
        "judges alone."
    )


def fails_cross(case_results: Sequence[CaseResult]) -> str:
    """Say that cases of S unlike L fail and none of S = L does, where it is so."""
    sizes = [
        (each.case.queries != each.case.keys, each.fails)
        for each in case_results
        if not each.inconclusive
    ]
    unlike = [fails for is_unlike, fails in sizes if is_unlike]
    alike = [fails for is_unlike, fails in sizes if not is_unlike]
    failing = sum(unlike)
    if len(alike) < SERVED or any(alike) or failing < max(SERVED, OFTEN * len(unlike)):
        return ""
    return f"right where S = L, and fails {failing} of {len(unlike)} cases of S unlike L: {REST}"
