"""Pictures of a failing gradient on the page: the target's, the right one, and their input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.arrays import split_heads
from mha_parity.core.check_result import NO_INDEX
from mha_parity.core.compare import as_float64
from mha_parity.core.problem import INPUTS, Problem
from mha_parity.core.report_arrays import GradientMatrix, GradientPicture, MatrixAxis
from mha_parity.judging.error_map import is_numeric
from mha_parity.judging.gradient_groups import IN_PROJECTIONS
from mha_parity.judging.gradients import CHECK, expected_gradients, gradient_units
from mha_parity.run.weights_pictures import HEADS, SHOWN, at_sizes_before_shrinking, failing_again

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Answer, Candidate
    from mha_parity.core.case import Case
    from mha_parity.core.verdict import Failure
    from mha_parity.judging.output import JudgeSettings
    from mha_parity.oracle.reference import Reference

HEAD_DIM = 3  # q, k and v of three heads one above the other can still be read
PROJECTED = ("q", "k", "v")
MASKS = ("attn_mask", "key_padding_mask")


def gradient_pictures(
    candidate: Candidate, failures: Iterable[Failure], settings: JudgeSettings
) -> tuple[GradientPicture, ...]:
    """Return a picture of each shrunk failure of a gradient, at sizes one can read."""
    shrunk = [failure for failure in failures if failure.shrunk_from is not None]
    wanted = [failure for failure in shrunk if failure.check_result.check.startswith(CHECK)][:SHOWN]
    drawn = (_picture(candidate, failure, settings) for failure in wanted)
    return tuple(picture for picture in drawn if picture is not None)


def _picture(
    candidate: Candidate, failure: Failure, settings: JudgeSettings
) -> GradientPicture | None:
    name = failure.check_result.check.removeprefix(CHECK)
    for problem, reference, answer in failing_again(candidate, failure, _cases(failure), settings):
        found = (answer.gradients or {}).get(name)
        expected = expected_gradients(problem, reference, answer)[name].value
        if (
            found is not None
            and is_numeric(found)
            and found.shape == expected.shape
            and expected.size
        ):
            return _drawn(name, problem, reference, answer, settings)
    return None


def _cases(failure: Failure) -> tuple[Case, ...]:
    """Return the case with several heads, since some may be right, with its own, and as it is."""
    first = failure.shrunk_from or failure.case
    larger = at_sizes_before_shrinking(failure.case, first, HEAD_DIM)
    heads = larger.heads_count if larger.kv_heads_count else min(first.heads_count, HEADS)
    several = larger.replace(heads_count=max(heads, larger.heads_count))
    return several, larger, failure.case


def _drawn(
    name: str, problem: Problem, reference: Reference, answer: Answer, settings: JudgeSettings
) -> GradientPicture:
    found = as_float64((answer.gradients or {})[name])
    expected = np.asarray(
        expected_gradients(problem, reference, answer)[name].value, dtype=np.float64
    )
    rows, columns = _named(problem, name, found.ndim)
    units = gradient_units(problem, reference, answer, name, settings).reshape(
        len(rows), len(columns)
    )
    sample = int(units.max(axis=1).argmax()) if _of_samples(name, found.ndim) else NO_INDEX
    own, right_ones = (_matrices(problem, name, each, sample) for each in (found, expected))
    heads = len(own)
    worst = [int(i) for i in np.argsort(-units[sample], kind="stable")] if heads > 1 else [0]
    label = "head {}" if heads > 1 else ""
    width = own[0].shape[1] if name in INPUTS else 0  # what the heads have side by side
    return GradientPicture(
        check=CHECK + name,
        case=problem.case,
        sample=sample if name != "key_padding_mask" else NO_INDEX,
        gradient_matrices=tuple(
            GradientMatrix(label.format(i), own[i], right_ones[i], i * width) for i in worst
        ),
        rows=_rows(problem, name),
        columns=_columns(problem, name),
        error_units=units,
        unit_rows=rows,
        unit_columns=columns,
    )


def _of_samples(name: str, axes: int) -> bool:
    """Return whether each sample has a gradient of its own."""
    return name in INPUTS or name == "key_padding_mask" or (name == "attn_mask" and axes == 3)


def _matrices(problem: Problem, name: str, array: Array, sample: int) -> list[Array]:
    """Return a gradient as matrices: one a head where it has an array of its own, else one."""
    heads = problem.num_heads
    if name == "key_padding_mask":
        return [array]
    if name == "attn_mask" and array.ndim == 3:
        return list(array[sample * heads : (sample + 1) * heads])
    if name in INPUTS and problem.case.form == "qkv":
        count = heads if name == "query" else problem.num_kv_heads
        return list(split_heads(array[sample : sample + 1], count)[0])
    if name in INPUTS:
        return [array[sample]]
    if name == "in_proj_bias":
        return [array.reshape(len(PROJECTED), -1)]
    return [array.reshape(-1, array.shape[-1])]


def _named(problem: Problem, name: str, axes: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the judged groups as the rows and columns of a table."""
    count = problem.num_heads
    if name in INPUTS and problem.case.form == "qkv" and name != "query":
        count = problem.num_kv_heads
    heads = tuple(f"head {head}" for head in range(count))
    if name.startswith("in_proj"):
        return PROJECTED, heads
    if _of_samples(name, axes):
        mixed = name == "key_padding_mask" or (name in INPUTS and problem.case.form != "qkv")
        rows = tuple(f"sample {sample}" for sample in range(problem.case.batch))
        return rows, ("all heads",) if mixed else heads
    if name in {"out_proj.bias", "attn_mask"}:
        return ("error",), ("all heads",)
    return ("error",), heads


def _rows(problem: Problem, name: str) -> MatrixAxis:
    heads = problem.num_heads
    if name == "in_proj_weight":
        return MatrixAxis("row", PROJECTED, heads)
    if name == "in_proj_bias":
        return MatrixAxis("", PROJECTED)
    if name.startswith(IN_PROJECTIONS):
        return MatrixAxis("row", heads=heads)
    if name in {"query", "attn_mask"}:
        return MatrixAxis("query")
    plain = {"key": "key", "value": "key", "key_padding_mask": "sample", "out_proj.weight": "row"}
    return MatrixAxis(plain.get(name, ""))


def _columns(problem: Problem, name: str) -> MatrixAxis:
    if name in MASKS:
        return MatrixAxis("key")
    by_head = name in {"in_proj_bias", "out_proj.weight"} or name.startswith("bias_")
    return MatrixAxis("column", heads=problem.num_heads if by_head else 1)
