"""From times to ratios to torch's fastest path for the same task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mha_parity.bench import stats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.bench.stats import Interval
    from mha_parity.bench.tasks import Task
    from mha_parity.bench.timing import ContenderTimes, TaskTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class ContenderRow:
    """One contender on one task; ``weights``: it returns the attention weights too.

    ``seconds`` is the median of a call; ``ratio`` that of the rounds' ratios to torch's fastest
    path, ``weights_ratio`` to its fastest that returns weights too. ``flops`` are operations a
    second in the products that the task needs, ``share`` of the machine's own measured peak;
    ``error`` is in units of what the judge allows.
    """

    name: str
    label: str
    status: str
    weights: bool = False
    reason: str = ""
    times: tuple[float, ...] = ()
    seconds: float | None = None
    ratio: Interval | None = None
    weights_ratio: Interval | None = None
    memory: int | None = None
    error: float | None = None
    flops: float | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """One task's rows. The rivals are the names of torch's fastest paths, or None.

    ``disturbed``: how many cores other processes used while this was timed, where that is known.
    """

    task: Task
    judged: str
    rival: str | None
    weights_rival: str | None
    rows: tuple[ContenderRow, ...]
    disturbed: float | None = None

    @property
    def fails(self) -> bool:
        """Whether a contender was wrong, or failed."""
        return any(row.status in {"wrong", "failed"} for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """A whole run. ``peak``: the larger of NumPy's and torch's float32 products, in flop/s."""

    environment: Mapping[str, str]
    peaks: Mapping[str, float]
    results: tuple[TaskResult, ...]
    seconds: float = 0.0

    @property
    def peak(self) -> float:
        """Highest rate of the machine's cores that this run measured."""
        return max(self.peaks.values())


def result(contest: TaskTimes, peak: float) -> TaskResult:
    """Return the contest's rows."""
    timed = [entry for entry in contest.entries if entry.status == "timed"]
    rival = _fastest(timed)
    weights_rival = _fastest([entry for entry in timed if entry.contender.weights])
    if contest.task.dtype != "float32":
        peak /= 2  # half as many float64 numbers fit a vector
    rows = tuple(_row(e, contest.task, rival, weights_rival, peak) for e in contest.entries)
    return TaskResult(
        task=contest.task,
        judged=contest.judged,
        rival=rival.contender.name if rival else None,
        weights_rival=weights_rival.contender.name if weights_rival else None,
        rows=rows,
        disturbed=contest.disturbed,
    )


def _fastest(entries: list[ContenderTimes]) -> ContenderTimes | None:
    """Return torch's fastest of the entries, by the median over all rounds."""
    torch = [entry for entry in entries if entry.contender.library == "torch"]
    return min(torch, key=lambda entry: entry.median, default=None)


def _row(
    entry: ContenderTimes,
    task: Task,
    rival: ContenderTimes | None,
    weights_rival: ContenderTimes | None,
    peak: float,
) -> ContenderRow:
    contender = entry.contender
    if entry.status != "timed":
        return ContenderRow(
            name=contender.name, label=contender.label, weights=contender.weights,
            status=entry.status, reason=entry.reason, error=entry.units,
        )  # fmt: skip
    flops = task.flops / entry.median
    return ContenderRow(
        name=contender.name,
        label=contender.label,
        status="timed",
        weights=contender.weights,
        times=tuple(entry.times),
        seconds=entry.median,
        ratio=_ratio(entry, rival),
        weights_ratio=_ratio(entry, weights_rival) if contender.weights else None,
        memory=entry.memory,
        error=entry.units,
        flops=flops,
        share=flops / peak,
    )


def _ratio(entry: ContenderTimes, rival: ContenderTimes | None) -> Interval | None:
    return stats.ratio(entry.times, rival.times) if rival else None
