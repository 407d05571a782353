"""One case from near: what went in, what came out, what torch answers, and where they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from mha_parity.core.array_text import dtype_and_shape, given_arrays, summed_up
from mha_parity.core.check_result import NO_INDEX, Place, Severity
from mha_parity.core.features import AXES, PLAIN, label
from mha_parity.report import ascii_maps, matrices, wording
from mha_parity.report.columns import Pairs, ReportText

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from mha_parity.core.case import Case
    from mha_parity.core.check_result import CheckResult
    from mha_parity.core.problem import Problem
    from mha_parity.core.report_arrays import CaseDetail

IMPLIED = {"form", "projection", "heads", "size"}  # by the id, the inputs and the sizes
LINES = 24


def print_case(detail: CaseDetail, target: str, console: Console) -> None:
    """Print one case: its inputs, masks, numbers, error map and check results."""
    page = ReportText(console.width)
    console.print()
    console.print(Text(detail.case.id, style="bold"), soft_wrap=True)
    page.block(
        [("case", page.flow(map(Text, _sizes_and_features(detail.case)))), *_inputs(detail.problem)]
    )
    page.block([("call", Text(detail.call))] if detail.call else [])
    for part in _pictures(detail, console.width):
        page.lines += [Text(), *part]
    page.block([pair for each in detail.check_results for pair in _judged(each)])
    page.block([(f"calls compared by {check}", Text(text)) for check, text in detail.compared])
    page.lines.append(Text())
    page.lines += page.wrapped(_closing(detail, target))
    for line in page.lines:
        console.print(line, soft_wrap=True)
    console.print()


def _sizes_and_features(case: Case) -> Iterator[str]:
    """Yield the sizes and the features of a case in words, without what is plain."""
    heads = f"{case.heads_count} heads" if case.heads_count != 1 else "1 head"
    samples = "1 sample" if case.batch == 1 else f"{case.batch} samples"
    yield f"{samples}, {case.queries} queries, {case.keys} keys, {heads} of width {case.head_dim}"
    for axis in AXES:
        value = getattr(case, axis)
        if axis not in IMPLIED and (value != PLAIN[axis] or axis == "dtype"):
            yield label(axis, value)


def _inputs(problem: Problem | None) -> Pairs:
    """Return a line per input: its shape, and its range, or which array it is once more."""
    if problem is None:
        return []
    pairs: Pairs = []
    for name, array, same in given_arrays(problem):
        what = f"the same array as {same}" if same else summed_up(array)
        shape = dtype_and_shape(array)
        between = "\n" if "\n" in what else "  "
        short = name.replace("key_padding_mask", "padding mask")
        pairs.append((short, Text.assemble(shape, between, (what, "dim"))))
    if problem.given_scale is not None:
        pairs.append(("scale", Text(f"{problem.given_scale:.6g}")))
    if problem.is_causal:
        pairs.append(("is_causal", Text("True")))
    return pairs


def _pictures(detail: CaseDetail, width: int) -> Iterator[list[Text]]:
    """Yield the masks, the numbers around the worst one, and where the output is off."""
    compared, units = detail.comparison, detail.error_units
    where = compared.where if compared else Place(NO_INDEX, NO_INDEX, 0, 0)
    if detail.problem is not None and detail.problem.hidden().size:
        drawn = list(ascii_maps.mask_lines(detail.problem, max(where.head, 0), where.row, width))
        if drawn:
            yield drawn
    if compared is not None:
        yield matrices.matrix_lines(compared, width)
    if units is not None and units.size:
        worst = int(np.nan_to_num(units, nan=np.inf).max(axis=(1, 2, 3)).argmax())
        sample = where.sample if where.sample >= 0 else worst
        yield list(ascii_maps.errors(units, sample, where.row, width))


def _judged(check_result: CheckResult) -> Pairs:
    """Return a check's outcome; a failed one with its error, its place and its sentence."""
    status = "fail" if check_result.severity.fails else "pass"
    if check_result.severity is Severity.INCONCLUSIVE:
        status = "inconclusive"
    said = Text()
    said.append(
        f"{wording.SIGN[status]} {check_result.check}: {check_result.severity.value}",
        _style(status),
    )
    if check_result.where is not None and check_result.allowed > 0:
        said.append(f"\n{wording.error_words(check_result)}, at {check_result.where}", "dim")
    if check_result.detail:
        said.append(f"\n{wording.shorten_output(check_result.detail, LINES)}")
    return [("fails" if status == "fail" else "check", said)]


def _closing(detail: CaseDetail, target: str) -> Text:
    """Say in a sentence what came of the case."""
    failing = dict.fromkeys(j.check for j in detail.check_results if j.severity.fails)
    status = "fail" if failing else "inconclusive" if detail.inconclusive else "pass"
    said = {
        "fail": f"{target} fails this case: {', '.join(failing)}.",
        "inconclusive": f"{target} cannot be judged by this case.",
        "pass": f"{target} equals torch in this case.",
    }
    return Text(f" {wording.SIGN[status]} {said[status]}", f"bold {_style(status)}")


def _style(status: str) -> str:
    return wording.COLOUR[status]
