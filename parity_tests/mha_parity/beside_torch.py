"""``python -m mha_parity.beside_torch``: a target's errors beside torch's over many cases.

What a run measures on some of its cases is measured here on all, in one dtype after the other:
median, 99th percentile and worst of the error in units of torch's own, and where the worst are.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from mha_parity.accuracy import times_torch
from mha_parity.candidate import CandidateError
from mha_parity.drawing import draw_cases
from mha_parity.features import AXES
from mha_parity.gold import golden
from mha_parity.making import make
from mha_parity.opening import opened
from mha_parity.options import DEFAULT_TARGET, Options, count, dtypes, whole
from mha_parity.report.progress import progress
from mha_parity.run import restricted
from mha_parity.trial import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from mha_parity.candidate import Candidate
    from mha_parity.case import Case

DATA = Path(__file__).parent / "data"
CASES = 10_000
CHUNK = 48
# What the worst is looked for in: the axes on which accuracy depends.
LOOKED_AT = ("regime", "size", "weights", "attn", "padding", "bias", "out_proj", "zero_attn")
Pair = tuple["Case", float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The errors over all cases of one dtype, or over those with one feature."""

    dtype: str
    feature: str
    cases: int
    median: float
    percentile99: float
    worst: float
    worst_case: str


def pairs(candidate: Candidate, cases: Sequence[Case]) -> Iterator[Pair]:
    """Yield each case with the candidate's error in units of torch's, NaN where torch has none.

    Raises
    ------
        CandidateError: the candidate gave no answer.

    """
    for start in range(0, len(cases), CHUNK):
        problems = [make(case) for case in cases[start : start + CHUNK]]
        for problem, answer in zip(problems, ask(candidate, problems), strict=True):
            if isinstance(answer, CandidateError):
                raise answer
            times = math.nan
            if answer.output.size:
                times = times_torch(problem, golden(problem), answer.output)
            yield problem.case, times


def rows(dtype: str, found: Iterable[Pair]) -> Iterator[Row]:
    """Yield the row of all cases, then those of the features looked at."""
    by_feature: dict[str, list[Pair]] = defaultdict(list)
    for case, times in found:
        if not math.isnan(times):
            for feature in ("", *(f"{axis}={getattr(case, axis)}" for axis in LOOKED_AT)):
                by_feature[feature].append((case, times))
    ordered = ("", *(f"{axis}={value}" for axis in LOOKED_AT for value in AXES[axis]))
    yield from (_row(dtype, each, by_feature[each]) for each in ordered if each in by_feature)


def _row(dtype: str, feature: str, found: Sequence[Pair]) -> Row:
    times = np.array([each for _, each in found])
    case, worst = max(found, key=lambda pair: pair[1])
    return Row(
        dtype=dtype,
        feature=feature,
        cases=len(found),
        median=float(np.median(times)),
        percentile99=float(np.percentile(times, 99)),
        worst=worst,
        worst_case=case.id,
    )


def measure(
    target: str,
    asked: Iterable[str],
    cases: int,
    seed: int,
    showing: Callable[[str], AbstractContextManager[Callable[[int, int], None]]],
) -> list[Row]:
    """Return the rows of each dtype that the target offers."""
    options = Options(in_process=True)
    found: list[Row] = []
    with opened(target, options) as candidate:
        offer = restricted(candidate.offer, options)
        for dtype in asked:
            if dtype not in offer["dtype"]:
                continue
            drawn = draw_cases(offer | {"dtype": (dtype,)}, cases, seed)
            with showing(dtype) as tick:
                found += rows(dtype, _counted(pairs(candidate, drawn), tick, cases))
    return found


def _counted(found: Iterator[Pair], tick: Callable[[int, int], None], of: int) -> Iterator[Pair]:
    for done, pair in enumerate(found, start=1):
        tick(done, of)
        yield pair


def table(target: str, found: Sequence[Row]) -> str:
    """Return the figures as Markdown: all cases of each dtype, then the features."""
    lines = [f"Errors of `{target}` in units of torch's own, both against the gold.", "", *_HEAD]
    lines += [
        f"| {row.dtype} | {row.feature or 'all cases'} | {row.cases:,} | {row.median:.2f} "
        f"| {row.percentile99:.2f} | {row.worst:.2f} |"
        for row in sorted(found, key=lambda row: bool(row.feature))
    ]
    return "\n".join([*lines, ""])


_HEAD = ("| dtype | feature | cases | median | 99 % | worst |", "|---|---|--:|--:|--:|--:|")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and write it down."""
    parser = argparse.ArgumentParser(prog="mha_parity.beside_torch", description=__doc__)
    parser.add_argument("target", nargs="?", default=DEFAULT_TARGET, help="whose attention")
    parser.add_argument("--cases", type=whole, default=CASES, help="cases a dtype")
    parser.add_argument("--seed", type=count, default=2, help="which cases")
    parser.add_argument("--dtype", type=dtypes, default=tuple(AXES["dtype"]), help="which dtypes")
    parser.add_argument("--to", type=Path, default=DATA, help="folder for the two files")
    asked = parser.parse_args(arguments)
    console = Console(stderr=True)

    def showing(dtype: str) -> AbstractContextManager[Callable[[int, int], None]]:
        return progress(console, f"{asked.target} in {dtype}")

    found = measure(asked.target, asked.dtype, asked.cases, asked.seed, showing)
    asked.to.mkdir(parents=True, exist_ok=True)
    document = {"target": asked.target, "seed": asked.seed, "rows": [asdict(row) for row in found]}
    (asked.to / "accuracy.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    (asked.to / "accuracy.md").write_text(table(asked.target, found), "utf-8")
    print(table(asked.target, found))  # noqa: T201  (the command's answer)


if __name__ == "__main__":
    main()
