"""The checks that ask a target problems of their own, at some places in the draw."""

from __future__ import annotations

import contextlib
from types import MappingProxyType
from typing import TYPE_CHECKING

from mha_parity.checks import (
    cached_rows,
    causal_lengths,
    context_widths,
    dropout,
    head_widths,
    left_padding,
    nonfinite_inputs,
    rejected_inputs,
    segment_ids,
    single_row_masks,
    tile_sizes,
    value_widths,
    windows,
)
from mha_parity.checks.call_sequence import TRAINING
from mha_parity.core.candidate import CandidateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention

CHECKS: Mapping[str, str] = MappingProxyType({
    **dropout.CHECKS,
    **rejected_inputs.CHECKS,
    **nonfinite_inputs.CHECKS,
    **cached_rows.CHECKS,
    **tile_sizes.CHECKS,
    **windows.CHECKS,
    **left_padding.CHECKS,
    **head_widths.CHECKS,
    **value_widths.CHECKS,
    **context_widths.CHECKS,
    **causal_lengths.CHECKS,
    **single_row_masks.CHECKS,
    **segment_ids.CHECKS,
})  # fmt: skip

# Of a check, and of what a finding says, which comes first.
REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        each.NAME: each.REMEDY
        for each in (
            tile_sizes,
            windows,
            left_padding,
            head_widths,
            value_widths,
            context_widths,
            causal_lengths,
            single_row_masks,
            segment_ids,
        )
    }
    | {dropout.OTHER_WEIGHTS: dropout.AS_IN_EVALUATION}
)

BY_SENTENCE: Mapping[str, str] = MappingProxyType(
    {
        causal_lengths.OF_LAST: causal_lengths.COUNT_FROM_LAST,
        windows.KEPT: windows.FORGET,
        TRAINING.said: dropout.AS_IN_EVALUATION,
    }
)


def further_checks(
    bound: Convention, problem: Problem, number: int
) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield the name of each check and its findings, on problems like this one.

    ``number`` is that of the case among those for which they are asked. What refuses such a problem
    is not asked further.
    """
    case = problem.case
    findings = {
        "dropout": dropout.check_dropout(bound, case, number),
        "rejected inputs": rejected_inputs.check_rejected_inputs(bound, case),
        nonfinite_inputs.NAME: nonfinite_inputs.check_nonfinite_inputs(bound, case, number),
    }
    for name, each in findings.items():
        yield name, _until_refused(each)
    yield cached_rows.NAME, cached_rows.check_cached_rows(bound, problem, number)
    yield tile_sizes.NAME, tile_sizes.check_tile_sizes(bound, problem, number)
    yield windows.NAME, windows.check_windows(bound, problem, number)
    yield left_padding.NAME, left_padding.check_left_padding(bound, problem, number)
    yield head_widths.NAME, head_widths.check_head_widths(bound, problem, number)
    yield value_widths.NAME, value_widths.check_value_widths(bound, problem, number)
    yield context_widths.NAME, context_widths.check_context_widths(bound, problem, number)
    yield causal_lengths.NAME, causal_lengths.check_causal_lengths(bound, problem, number)
    yield single_row_masks.NAME, single_row_masks.check_masks_of_rows(bound, problem, number)
    yield segment_ids.NAME, segment_ids.check_segments(bound, problem, number)


def _until_refused(findings: Iterator[str]) -> Iterator[str]:
    with contextlib.suppress(CandidateError):  # refused: the check does not apply
        yield from findings
