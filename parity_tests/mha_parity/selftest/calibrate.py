"""Calibrate the judging rule: ``python -m mha_parity.selftest.calibrate``.

Cases are drawn in all regimes and dtypes and split in two. One half says which k would have been
needed; on the other, which k was not fitted to, right answers and planted bugs are judged with the
k in force, and the rates are published.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from mha_parity.cases.covering import draw_cases
from mha_parity.cases.generate import make_problem
from mha_parity.catalogue.registry import whole_offer
from mha_parity.core.features import AXES
from mha_parity.judging.output import DEFAULT_SETTINGS
from mha_parity.oracle.eval_orders import K
from mha_parity.oracle.reference import reference_answer
from mha_parity.run.process_pool import ProcessPool
from mha_parity.selftest.calibrate_case import (
    FAMILIES,
    Counts,
    count_verdicts,
    needed_k,
    upper_limit,
)
from mha_parity.selftest.calibrate_gradients import KINDS, count_gradient_verdicts
from mha_parity.selftest.provenance import with_origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mha_parity.core.case import Case

DATA = Path(__file__).parent / "data"
CASES = 5000
FITTED = 0.25  # the share of cases that k is fitted on: one answer tells more there
CHUNK = 50
FAILING = ("wrong", "structure")
GRID = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRow:
    """The verdicts on one kind of answer in one dtype."""

    kind: str
    dtype: str
    judged: int
    match: int
    less_accurate: int
    inconclusive: int
    failed: int

    @property
    def limit(self) -> float:
        """The upper limit, at 99 % confidence, of the rate of failing."""
        return upper_limit(self.failed, self.judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The published figures."""

    k: float
    seed: int
    cases: int
    fitted_on: int
    largest_k_needed: float
    beyond: dict[str, float]
    rows: tuple[CalibrationRow, ...]


def calibrate(
    cases: int, seed: int, *, workers: int = 0, progress: Progress | None = None
) -> Calibration:
    """Return the figures for ``cases`` problems; ``workers`` = 0 stays in this process."""
    offered = whole_offer()
    offered["size"] = tuple(size for size in offered["size"] if size != "empty")
    drawn = draw_cases(offered, cases, seed)
    random.Random(seed).shuffle(drawn)
    middle = round(cases * FITTED)
    parts = _chunks(drawn[:middle]), _chunks(drawn[middle:])
    task = progress.add_task("calibrating", total=cases) if progress else None

    def step(done: Sequence[Case]) -> None:
        if progress and task is not None:
            progress.advance(task, len(done))

    with _mapper(workers) as mapped:
        factors: list[float] = []
        for chunk, found in zip(parts[0], mapped(fit_k, parts[0]), strict=True):
            factors += found
            step(chunk)
        counts: Counts = Counter()
        for chunk, more in zip(parts[1], mapped(count_case_verdicts, parts[1]), strict=True):
            counts += more
            step(chunk)
    return Calibration(
        k=K,
        seed=seed,
        cases=cases - middle,
        fitted_on=len(factors),
        largest_k_needed=max(factors, default=0.0),
        beyond={f"{k:g}": sum(f > k for f in factors) / max(len(factors), 1) for k in GRID},
        rows=tuple(calibration_rows(counts)),
    )


@contextmanager
def _mapper(workers: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """Yield a map in this process or over several."""
    if not workers:
        yield map
        return
    with ProcessPool(workers, initializer=_one_thread) as pool:
        yield pool.map


def _one_thread() -> None:
    """Keep each worker to one thread: the workers are the parallelism."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    threadpool_limits(1)


def _chunks(cases: Sequence[Case]) -> list[Sequence[Case]]:
    return [cases[i : i + CHUNK] for i in range(0, len(cases), CHUNK)]


def fit_k(cases: Sequence[Case]) -> list[float]:
    """Return the k that each right answer to these cases would have needed."""
    return [k for case in cases for _, k in needed_k(case, random.Random(case.seed))]


def count_case_verdicts(cases: Sequence[Case]) -> Counts:
    """Count the verdicts on right and wrong answers to these cases."""
    counts: Counts = Counter()
    for case in cases:
        problem = make_problem(case)
        reference = reference_answer(problem)
        counts += count_verdicts(problem, reference, random.Random(case.seed), DEFAULT_SETTINGS)
        counts += count_gradient_verdicts(
            problem, reference, random.Random(case.seed), DEFAULT_SETTINGS
        )
    return counts


def calibration_rows(counts: Counts) -> Iterator[CalibrationRow]:
    """Yield a row for each kind of answer and dtype, and one for each kind over all dtypes."""
    for kind in ("right", *FAMILIES, *KINDS):
        for dtype in (*AXES["dtype"], "all"):
            dtypes = tuple(AXES["dtype"]) if dtype == "all" else (dtype,)

            def count(*severities: str, kind: str = kind, dtypes: Iterable[str] = dtypes) -> int:
                return sum(counts[kind, d, s] for d in dtypes for s in severities)

            row = CalibrationRow(
                kind=kind,
                dtype=dtype,
                match=count("match"),
                less_accurate=count("less accurate"),
                inconclusive=count("inconclusive"),
                failed=count(*FAILING),
                judged=count("match", "less accurate", "inconclusive", *FAILING),
            )
            if row.judged:
                yield row


def calibration_markdown(found: Calibration) -> str:
    """Return the figures as Markdown."""
    right = next(row for row in found.rows if (row.kind, row.dtype) == ("right", "all"))
    lines = [
        _SUMMARY.format(found=found, right=right, beyond=found.beyond[f"{found.k:g}"]),
        "",
        *_HEAD,
    ]
    for row in found.rows:
        missed = row.match + row.less_accurate
        share = "" if row.kind.startswith("right") else f"{missed / row.judged:.1%}"
        lines.append(
            f"| {row.kind} | {row.dtype} | {row.judged:,} | {row.match:,} | {row.less_accurate:,} "
            f"| {row.inconclusive:,} | {row.failed:,} | {share} |"
        )
    gradients = [_GRADIENTS] if any(row.kind in KINDS for row in found.rows) else []
    return "\n".join([*lines, "", " ".join([_LEGEND, *gradients]), ""])


_SUMMARY = (
    "k = {found.k:g}. Of {found.fitted_on:,} right answers of the fitting part {beyond:.2%} needed "
    "more than that (at most {found.largest_k_needed:.2f}), so that they would be called less "
    "accurate, and pass. On {found.cases:,} other problems, {right.judged:,} judgements "
    "of right answers, in orders drawn at random from all that can be combined, raised "
    "{right.failed} false alarms (rate below {right.limit:.1e} with 99 % confidence)."
)
_HEAD = (
    "| answers | dtype | judged | match | less accurate | inconclusive | failed | missed |",
    "|---|---|--:|--:|--:|--:|--:|--:|",
)
_LEGEND = (
    "*structural*: bugs of the catalogue that change the answer in exact arithmetic; *precision*: "
    "those that compute the right thing with too few digits; *one head*: a right answer with one "
    "head of a structurally wrong one. Answers that a bug leaves within one rounding are not "
    "counted. *missed*: passed as a match or as less accurate. The systematic-error test, which "
    "sees what pushes one way over a run, is not counted here."
)


_GRADIENTS = (
    "*right gradients*: those of each array, in random orders; *wrong gradients*: sets of right "
    "ones but for one head's, sample's or mask's part, which is half of what it should be."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the calibration, print the table and write it down."""
    parser = argparse.ArgumentParser(prog="mha_parity.selftest.calibrate", description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES, help="problems to draw")
    parser.add_argument("--seed", type=int, default=1, help="seed of the problems")
    parser.add_argument("--workers", type=int, default=2, help="processes; 0: this one alone")
    parser.add_argument("--to", type=Path, default=DATA, help="folder for the two files")
    asked = parser.parse_args(arguments)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        found = calibrate(asked.cases, asked.seed, workers=asked.workers, progress=progress)
    asked.to.mkdir(parents=True, exist_ok=True)
    (asked.to / "calibration.json").write_text(json.dumps(asdict(found), indent=1) + "\n", "utf-8")
    (asked.to / "calibration.md").write_text(
        with_origin(
            calibration_markdown(found),
            f"make calibrate ARGS='--cases {asked.cases} --seed {asked.seed}'",
        ),
        "utf-8",
    )
    print(calibration_markdown(found))  # noqa: T201  (the command's answer)


if __name__ == "__main__":
    main()
