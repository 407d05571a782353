"""Answers of less precision than the inputs, by their dtype or by the size of their error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.catalogue import catalogue
from mha_parity.core.verdict import Diagnosis
from mha_parity.judging.float32_stages import INSIDE
from mha_parity.oracle.error_bound import roundoff

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mha_parity.core.candidate import Candidate
    from mha_parity.core.options import Options
    from mha_parity.run.case_run import CaseResult

NARROWER: Mapping[str, tuple[str, ...]] = {
    "float64": ("float32", "float16", "bfloat16"),
    "float32": ("float16", "bfloat16"),
}
# Half-way, in powers of 2, from the unit of float32 to that of float64.
BETWEEN = (roundoff(np.dtype("float64")) / roundoff(np.dtype(INSIDE))) ** 0.5

MISREAD_FROM = 16  # keys: as many as the kernel adds a mask to at once


def remark(answer_dtypes: Mapping[str, str], options: Options) -> str:
    """Say which dtype was not judged because a narrower one answers it, and how to demand it."""
    left_out = {dtype: own for dtype, own in answer_dtypes.items() if dtype not in options.dtypes}
    if not left_out:
        return ""
    asked, own = next(iter(left_out.items()))
    return (
        f"computes in {own}: {asked} inputs are answered in {own}, so that it was judged in {own} "
        f"(--dtypes {asked} demands {asked})"
    )


def is_narrower(case_result: CaseResult) -> bool:
    """Return whether the case was answered in a narrower dtype than it was asked in."""
    return case_result.answer_dtype in NARROWER.get(case_result.case.dtype, ())


def finding(case_results: Sequence[CaseResult]) -> str:
    """Say in which narrower dtype cases were answered, and how to judge it in that; "" if none."""
    narrower = [each for each in case_results if is_narrower(each)]
    if not narrower:
        return ""
    asked, own = narrower[0].case.dtype, narrower[0].answer_dtype
    return f"computes in {own} (judge it in that: --dtypes {own}), answers {asked} inputs in {own}"


def downcast(failing: Sequence[CaseResult]) -> tuple[Diagnosis, ...]:
    """Name answers in a narrower dtype than the inputs."""
    narrower = [each for each in failing if is_narrower(each)]
    if not narrower:
        return ()
    asked, own = narrower[0].case.dtype, narrower[0].answer_dtype
    bug = catalogue()["silent-downcast"]
    return (
        Diagnosis(
            bug=bug.id,
            title=f"computes in {own}: {asked} inputs are answered in {own}",
            remedy=f"{bug.remedy}, or judge it in {own}: --dtypes {own}",
            explains=len(narrower) / len(failing),
            confident=True,
            aliases=bug.aliases,
            evidence=f"{len(narrower)} of {len(failing)} failing answers have dtype {own}",
        ),
    )


def capped(failing: Sequence[CaseResult]) -> tuple[Diagnosis, ...]:
    """Name float64 that is computed in float32, where failing answers are right by its bounds.

    Nothing where their errors, in units of what float32 is allowed, are nearer to the digits of
    float64.
    """
    right = [each.float32_units for each in failing if each.float32_units is not None]
    if not right or np.median(right) < BETWEEN:
        return ()
    bug = catalogue()["f64-capped-at-f32"]
    return (
        Diagnosis(
            bug=bug.id,
            title=bug.title,
            remedy=f"{bug.remedy}; --dtypes {INSIDE} judges the rest",
            explains=len(right) / len(failing),
            confident=True,
            aliases=bug.aliases,
            evidence=f"{len(right)} of {len(failing)} failing answers are to float64, and right by "
            "the bounds of float32",
            seen_in=", ".join(bug.sources[:3]),
        ),
    )


def misread_masks(candidate: Candidate, failing: Sequence[CaseResult]) -> tuple[Diagnosis, ...]:
    """Name masks of float32 that torch's function gets with queries of float64, where they fail.

    Nothing where a case fails that torch's kernel would answer rightly.
    """
    cases = [each.case for each in failing]
    if not (cases and candidate.facts.float32_masks):
        return ()
    if any(each.dtype != "float64" or each.keys < MISREAD_FROM for each in cases):
        return ()
    others = [each for each in candidate.offer["dtype"] if each != "float64"]
    return (
        Diagnosis(
            bug=None,
            title="a float32 mask is passed to scaled_dot_product_attention with float64 queries: "
            f"torch's kernel for CPUs misreads it from {MISREAD_FROM} keys on",
            remedy="give the mask the dtype of the queries, mask.to(query.dtype); "
            f"--dtypes {','.join(others)} judges the rest",
            explains=1.0,
            confident=True,
            evidence=f"all of {len(cases)} failing cases are of float64 and of as many keys",
        ),
    )
