"""The regression gate: ratios against those of a baseline; times are never compared.

A ratio has grown when the interval of its median lies wholly above the baseline's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from mha_parity.bench.stats import Interval, interval_above, median_interval, ratios
from mha_parity.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from mha_parity.bench.json_document import Document

MACHINE = ("cpu", "cores", "threads", "numpy_blas", "torch_blas", "numpy", "torch")
RATIOS = {"ratio": "× torch", "weights_ratio": "× torch with weights"}
RIVALS = {"ratio": "rival", "weights_ratio": "weights_rival"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioChange:
    """The ratios of a contender in one task, round by round, then and now."""

    task: str
    label: str
    what: str
    then: list[float]
    now: list[float]

    @property
    def grew(self) -> bool:
        """Whether the ratio has grown."""
        return interval_above(self.now, self.then)

    @property
    def shrank(self) -> bool:
        """Whether the ratio has become smaller."""
        return interval_above(self.then, self.now)

    @property
    def medians(self) -> tuple[Interval, Interval]:
        """The usual intervals, then and now."""
        return median_interval(self.then), median_interval(self.now)


Key = tuple[str, str, str]


def changes(then: Document, now: Document) -> list[RatioChange]:
    """Return every ratio that both documents have; torch's own are left out.

    Raises
    ------
    UsageError
        The first is damaged.

    """
    try:
        before = dict(_ratios(then))
    except (KeyError, TypeError, AttributeError):
        raise UsageError(
            "the baseline is damaged: it has no tasks with the times of contenders; write it anew "
            "with mha-parity bench --json FILE."
        ) from None
    return [
        RatioChange(task=key[0], label=label, what=RATIOS[key[2]], then=before[key][1], now=values)
        for key, (label, values) in _ratios(now)
        if key in before
    ]


def _ratios(document: Document) -> Iterator[tuple[Key, tuple[str, list[float]]]]:
    """Yield (task, contender, kind of ratio) -> (label, ratios of all rounds)."""
    for task in document["tasks"]:
        rows = {row["name"]: row for row in task["contenders"]}
        for row in task["contenders"]:
            for what in RATIOS:
                if row[what] is not None and not row["name"].startswith("torch"):
                    rival = rows[task[RIVALS[what]]]
                    values = ratios(row["times"], rival["times"])
                    yield (task["name"], row["name"], what), (row["label"], values)


def differences(then: Document, now: Document) -> list[str]:
    """Return what is other about the baseline's machine and its tasks, a sentence each."""
    said = [
        f"the baseline has {name} {theirs!r}, this run {ours!r}"
        for name in MACHINE
        if (theirs := then["environment"].get(name)) != (ours := now["environment"].get(name))
    ]
    names = [{task["name"] for task in each["tasks"]} for each in (then, now)]
    for missing, whose in ((names[1] - names[0], "baseline"), (names[0] - names[1], "run")):
        if missing:
            said.append(f"not in the {whose}: {'; '.join(sorted(missing))}")
    return said


def print_changes(then: Document, now: Document, console: Console) -> bool:
    """Print what changed and return whether a ratio grew.

    Raises
    ------
    UsageError
        The two have no ratio in common.

    """
    found = changes(then, now)
    if not found:
        raise UsageError(
            "the baseline has no ratio in common with this run; run the sizes that it has."
        )
    for line in differences(then, now):
        console.print(Text(f" {line}", style="yellow"), soft_wrap=True)
    failed = [change for change in found if change.grew]
    for change in failed:
        _say(change, "grew", "bold red", console)
    for change in found:
        if change.shrank:
            _say(change, "shrank", "green", console)
    style = "bold red" if failed else "bold green"
    said = f" {len(failed)} of {len(found)} ratios grew beyond the intervals of their medians\n"
    console.print(Text(said, style))
    return bool(failed)


def _say(change: RatioChange, word: str, style: str, console: Console) -> None:
    then, now = change.medians
    line = f" {change.task}, {change.label}: {change.what} {word} from {then} to {now}"
    console.print(Text(line, style=style), soft_wrap=True)
