"""Survey the accuracy of the NumPy attention, in units of torch's, over 10,000 cases a dtype.

What a run measures on some of its cases is measured here on all, in one dtype after the other:
median, 99th percentile and worst of the error in units of torch's own, and where the worst are.
For comparison: torch's own path without weights, a second right computation, and the NumPy layer
restricted to its flash engine, as it computes larger problems.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError, ask
from mha_parity.core.features import AXES, EXTREME_VALUES
from mha_parity.core.option_values import dtypes, nonnegative_integer, positive_integer
from mha_parity.core.options import DEFAULT_TARGET, Options
from mha_parity.core.verdict import TARGET
from mha_parity.judging.accuracy import error_over_torch, measure_errors
from mha_parity.oracle.reference import reference_answer
from mha_parity.report.progress import counted, error_console, progress
from mha_parity.run.asked_cases import restricted_offer
from mha_parity.selftest.provenance import with_origin
from mha_parity.targets.bind import bind
from mha_parity.worker.open_target import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Candidate
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem

DATA = Path(__file__).parent / "data"
CASES = 10_000
CHUNK = 48
# What the worst is looked for in: the axes on which accuracy depends.
LOOKED_AT = ("regime", "size", "weights", "attn", "padding", "bias", "out_proj", "zero_attn")
CONTROL = "no-weights"
FLASH = "flash"
TWICE = 2.0
Errors = dict[str, float]  # by contender, in units of torch's own
Pair = tuple["Case", float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyRow:
    """The errors over all cases of one dtype, or over those with one feature."""

    contender: str
    dtype: str
    feature: str
    cases: int
    above2: float
    median: float
    percentile99: float
    worst: float
    worst_case: str


def surveyed_errors(
    candidate: Candidate,
    cases: Sequence[Case],
    others: Mapping[str, Candidate] = MappingProxyType({}),
) -> Iterator[tuple[Case, Errors]]:
    """Yield each case with the errors of all candidates and the control in units of torch's own.

    Raises
    ------
    CandidateError
        The candidate gave no answer.

    """
    for start in range(0, len(cases), CHUNK):
        problems = [make_problem(case) for case in cases[start : start + CHUNK]]
        answers = zip(
            *(_outputs(each, problems) for each in (candidate, *others.values())), strict=True
        )
        for problem, (output, *more) in zip(problems, answers, strict=True):
            reference = reference_answer(problem)
            found = measure_errors(problem, reference, output, paths=(CONTROL,))
            times = {each.contender: each.times_torch for each in found}
            if found:
                times |= {
                    name: error_over_torch(problem, reference, other)
                    for name, other in zip(others, more, strict=True)
                }
            yield problem.case, {name: each for name, each in times.items() if not math.isnan(each)}


def _outputs(candidate: Candidate, problems: Sequence[Problem]) -> Iterator[Array]:
    for answer in ask(candidate, problems):
        if isinstance(answer, CandidateError):
            raise answer
        yield answer.output


def _other_candidates(target: str) -> dict[str, Candidate]:
    """Return the further candidates: the NumPy layer restricted to its flash engine."""
    if target != DEFAULT_TARGET:
        return {}
    from mha_numpy.forced import FlashAttention

    return {FLASH: bind(FlashAttention)}


def survey_rows(dtype: str, found: Iterable[tuple[Case, Errors]]) -> Iterator[SurveyRow]:
    """Yield the rows over all cases of target and control, then the target's by feature."""
    by_feature: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for case, times in found:
        features = ("", *(f"{axis}={getattr(case, axis)}" for axis in LOOKED_AT))
        for feature in features if TARGET in times else ():
            by_feature[TARGET, feature].append((case, times[TARGET]))
        for name in times.keys() & {FLASH, CONTROL}:
            by_feature[name, ""].append((case, times[name]))
    ordered = [(TARGET, ""), (FLASH, ""), (CONTROL, "")]
    ordered += [(TARGET, f"{axis}={value}") for axis in LOOKED_AT for value in AXES[axis]]
    yield from (_row(dtype, *each, by_feature[each]) for each in ordered if each in by_feature)


def _row(dtype: str, contender: str, feature: str, found: Sequence[Pair]) -> SurveyRow:
    times = np.array([each for _, each in found])
    case, worst = max(found, key=lambda pair: pair[1])
    return SurveyRow(
        contender=contender,
        dtype=dtype,
        feature=feature,
        cases=len(found),
        median=float(np.median(times)),
        percentile99=float(np.percentile(times, 99)),
        worst=worst,
        above2=float((times > TWICE).mean()),
        worst_case=case.id,
    )


def survey_dtypes(
    target: str,
    asked: Iterable[str],
    cases: int,
    seed: int,
    showing: Callable[[str], AbstractContextManager[Callable[[int, int], None]]],
) -> list[SurveyRow]:
    """Return the rows of each dtype that the target offers."""
    options = Options(in_process=True)
    found: list[SurveyRow] = []
    with opened(target, options) as candidate:
        offer = restricted_offer(candidate, options)
        offer["regime"] = tuple(v for v in offer["regime"] if v not in EXTREME_VALUES)
        for dtype in asked:
            if dtype not in offer["dtype"]:
                continue
            drawn = draw_cases(offer | {"dtype": (dtype,)}, cases, seed)
            with showing(dtype) as tick:
                drawn_errors = surveyed_errors(candidate, drawn, _other_candidates(target))
                found += survey_rows(dtype, counted(drawn_errors, tick, cases))
    return found


def survey_markdown(target: str, found: Sequence[SurveyRow]) -> str:
    """Return the figures as Markdown: all cases of each dtype, then by the regime of the values."""
    whole = [_line(row, _WHO[row.contender]) for row in found if not row.feature]
    parts = [_line(row, row.feature) for row in found if row.feature.startswith("regime=")]
    first = f"Errors of `{target}` in units of torch's own, both against the reference.\n"
    return "\n".join([first, *_head("errors of"), *whole, "", *_head("feature"), *parts, ""])


_WHO = {
    TARGET: "the target",
    FLASH: f'the same with engine="{FLASH}"',
    CONTROL: "torch without weights",
}


def _head(what: str) -> tuple[str, str]:
    return f"| dtype | {what} | cases | median | 99 % | worst | above 2 |", "|---|---|" + "--:|" * 5


def _line(row: SurveyRow, what: str) -> str:
    return (
        f"| {row.dtype} | {what} | {row.cases:,} | {row.median:.2f} | {row.percentile99:.2f} "
        f"| {row.worst:.2f} | {row.above2:.2%} |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and write it down."""
    parser = argparse.ArgumentParser(
        prog="mha_parity.selftest.accuracy_survey", description=__doc__
    )
    parser.add_argument("target", nargs="?", default=DEFAULT_TARGET, help="whose attention")
    parser.add_argument("--cases", type=positive_integer, default=CASES, help="cases a dtype")
    parser.add_argument("--seed", type=nonnegative_integer, default=2, help="which cases")
    parser.add_argument("--dtype", type=dtypes, default=tuple(AXES["dtype"]), help="which dtypes")
    parser.add_argument("--to", type=Path, default=DATA, help="folder for the two files")
    asked = parser.parse_args(arguments)
    console = error_console()

    def showing(dtype: str) -> AbstractContextManager[Callable[[int, int], None]]:
        return progress(console, f"{asked.target} in {dtype}")

    found = survey_dtypes(asked.target, asked.dtype, asked.cases, asked.seed, showing)
    asked.to.mkdir(parents=True, exist_ok=True)
    document = {"target": asked.target, "seed": asked.seed, "rows": [asdict(row) for row in found]}
    (asked.to / "accuracy.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    (asked.to / "accuracy.md").write_text(
        with_origin(
            survey_markdown(asked.target, found),
            f"make accuracy ARGS='{asked.target} --cases {asked.cases} --seed {asked.seed}'",
        ),
        "utf-8",
    )
    print(survey_markdown(asked.target, found))  # noqa: T201  (the command's answer)


if __name__ == "__main__":
    main()
