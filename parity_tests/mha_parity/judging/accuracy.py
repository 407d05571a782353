"""Measure the accuracy of a candidate: errors in units of torch's own, and in bits.

An error is relative to the largest number of its head, and that of an output is the worst of its
heads. It counts as at least one rounding of the reference: no answer in the dtype can promise less.
torch's own error is that of the pinned path in the same dtype; its other paths are contenders.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import mha_torch
from mha_parity.core.arrays import merge_heads, split_heads
from mha_parity.core.check_result import Severity
from mha_parity.core.verdict import PINNED_PATH, TARGET, Accuracy
from mha_parity.judging.nonfinite import nan_of_other_heads
from mha_parity.judging.output_groups import judged_array
from mha_parity.oracle.torch_answers import torch_result

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer
    from mha_parity.core.check_result import CheckResult
    from mha_parity.core.problem import Problem
    from mha_parity.oracle.reference import Reference

# What torch's module is called along, and what its function on Q, K, V goes through there.
TORCH_PATHS = {"no-weights": "default", "fast": None, "sdpa-math": None, "sdpa-flash": "flash"}

OUTPUT = "output "  # the kind of result of a record; the path follows


@dataclass(frozen=True, slots=True)
class MeasuredError:
    """One contender's error on one case: in units of torch's own, and the bits that are right."""

    contender: str
    times_torch: float
    bits: float


def torch_output(problem: Problem, path: str = PINNED_PATH) -> Array:
    """Return the output of torch along one of its paths, in the problem's own dtype.

    Raises
    ------
    mha_torch.PathNotTakenError
        Torch computes such problems along another path.

    """

    def computed() -> dict[str, Array]:
        try:
            return {"output": installed_torch_output(problem, path)}
        except mha_torch.PathNotTakenError:
            return {}

    found = torch_result(f"{OUTPUT}{path}", problem, computed)
    if not found:
        raise mha_torch.PathNotTakenError(f"`path`={path!r} is not taken by {problem.case.id}.")
    return found["output"]


def installed_torch_output(problem: Problem, path: str) -> Array:
    """Return the output of the torch that is installed, whatever a record has.

    Raises
    ------
    mha_torch.PathNotTakenError
        Torch computes such problems along another path.

    """
    dtype = problem.case.dtype
    if problem.case.form == "mha":
        # Without weights torch drops the mask for the hint, and hides appended keys by it.
        spelt = problem.is_causal and problem.appended
        size = (problem.case.queries, problem.case.keys)
        return mha_torch.multihead_attention(
            problem.query,
            problem.key,
            problem.value,
            problem.state(),
            num_heads=problem.num_heads,
            add_zero_attn=problem.add_zero_attn,
            key_padding_mask=problem.key_padding_mask,
            attn_mask=np.triu(np.ones(size, dtype=bool), k=1) if spelt else problem.attn_mask,
            is_causal=problem.is_causal and not spelt,
            dtype=dtype,
            path=mha_torch.Path(path),
        )[0]
    backend: Any = "math" if path == PINNED_PATH else TORCH_PATHS[path]
    if backend is None:
        raise mha_torch.PathNotTakenError(f"`path`={path!r} is one of the layer's alone.")
    mask = np.where(problem.hidden(), -np.inf, problem.additive()).astype(problem.dtype)
    heads = mha_torch.scaled_dot_product_attention(
        split_heads(problem.query, problem.num_heads),
        split_heads(problem.key, problem.num_kv_heads),
        split_heads(problem.value, problem.num_kv_heads),
        attn_mask=mask,
        scale=problem.given_scale,
        enable_gqa=problem.num_kv_heads != problem.num_heads,
        backend=backend,
        dtype=dtype,
    )
    return merge_heads(heads)


def relative_error(problem: Problem, reference: Reference, output: Array) -> float:
    """Return a head's largest error over its largest number; not finite where the answer is."""
    judged = judged_array("output", problem, reference)
    # A row that sees no key is a policy, and NaN times the identity may carry it to other heads.
    masked: Array = np.asarray(problem.masked_rows().any(axis=1))[..., None]
    unknown = masked | nan_of_other_heads(problem, judged, output)
    judged = replace(judged, reference=np.where(unknown, np.nan, judged.reference))
    # In roundings of the reference first: a head of zeros has no largest number to divide by.
    return judged.unit * float((judged.error(output) / judged.rounding).max(initial=1))


def error_over_torch(problem: Problem, reference: Reference, output: Array) -> float:
    """Return the candidate's error over torch's.

    1 where neither has an error above one rounding of the reference; infinite where torch
    alone has a number; NaN where torch has none.
    """
    own = relative_error(problem, reference, torch_output(problem))
    return _times(relative_error(problem, reference, output), own)


def with_times_torch(
    problem: Problem,
    reference: Reference,
    answer: Answer,
    check_results: list[CheckResult],
    accuracy: tuple[MeasuredError, ...],
) -> Iterator[CheckResult]:
    """Yield the check results, with the ratio to torch's own error where it is measured."""
    known = {each.contender: each.times_torch for each in accuracy}
    for check_result in check_results:
        times = check_result.times_torch
        if check_result.check == "output" and not check_result.severity.fails and times is None:
            times = known.get(TARGET)
            if times is None and check_result.severity is Severity.LESS_ACCURATE:
                times = error_over_torch(problem, reference, answer.output)
        yield check_result if times is None else replace(check_result, times_torch=times)


def _times(its: float, own: float) -> float:
    if not math.isfinite(own):
        return math.nan
    return its / own if math.isfinite(its) else math.inf


def measure_errors(
    problem: Problem, reference: Reference, output: Array, *, paths: Iterable[str] = ()
) -> tuple[MeasuredError, ...]:
    """Return how the target, torch's pinned path and other ``paths`` of it do on a problem.

    Nothing for empty problems; no path that torch does not take.
    """
    if not reference.output.size:
        return ()
    own = relative_error(problem, reference, torch_output(problem))
    errors = {TARGET: relative_error(problem, reference, output), PINNED_PATH: own}
    for path in paths:
        try:
            errors[path] = relative_error(problem, reference, torch_output(problem, path))
        except mha_torch.PathNotTakenError:
            continue
    return tuple(MeasuredError(name, _times(its, own), _bits(its)) for name, its in errors.items())


def _bits(error: float) -> float:
    return -math.log2(error) if math.isfinite(error) else math.nan


def accuracy_row(
    dtype: str,
    found: Iterable[MeasuredError],
    *,
    contender: str = TARGET,
    feature: tuple[str, str] = ("", ""),
    worst: float = 0.0,
) -> Accuracy | None:
    """Return one row of the accuracy table; None where nothing was measured.

    ``worst`` is a ratio from elsewhere that the worst is at least.
    """
    known = [each for each in found if not math.isnan(each.times_torch)]
    if not known:
        return None
    median = statistics.median(each.times_torch for each in known)
    right = [each.bits for each in known if not math.isnan(each.bits)]
    return Accuracy(
        dtype=dtype,
        cases=len(known),
        median_times_torch=median,
        worst_times_torch=max(worst, *(each.times_torch for each in known)),
        bits_lost=math.log2(median) if 0 < median < math.inf else math.inf,
        contender=contender,
        axis=feature[0],
        value=feature[1],
        bits_right=statistics.median(right) if right else math.nan,
    )
