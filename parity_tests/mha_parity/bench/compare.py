"""The regression gate: ratios beside those of a baseline; times are never compared.

A ratio has grown when the interval of its median lies wholly above the baseline's. Where nothing
changed, chance alone does that as often as ``intervals.chance_apart`` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from mha_parity.bench import words
from mha_parity.bench.intervals import Interval, chance_apart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from mha_parity.bench.document import Document

MACHINE = ("cpu", "cores", "threads", "numpy_blas", "torch_blas", "numpy", "torch")
RATIOS = {"ratio": "× torch", "weights_ratio": "× torch with weights"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One ratio then and now; ``chance``: how often equal ones look grown."""

    task: str
    label: str
    what: str
    then: Interval
    now: Interval
    chance: float

    @property
    def grew(self) -> bool:
        """Whether the interval lies wholly above the baseline's."""
        return self.now.low > self.then.high

    @property
    def shrank(self) -> bool:
        """Whether the interval lies wholly below the baseline's."""
        return self.now.high < self.then.low


def changes(then: Document, now: Document) -> list[Change]:
    """Return every ratio that both documents have; torch's own are left out."""
    before = dict(_ratios(then))
    found = []
    for key, (label, current, rounds) in _ratios(now):
        if key in before:
            _, earlier, their_rounds = before[key]
            task, _, what = key
            found.append(
                Change(
                    task=task, label=label, what=RATIOS[what], then=earlier, now=current,
                    chance=chance_apart(rounds, their_rounds),
                )
            )  # fmt: skip
    return found


Key = tuple[str, str, str]


def _ratios(document: Document) -> Iterator[tuple[Key, tuple[str, Interval, int]]]:
    """Yield (task, contender, kind of ratio) -> (label, interval, rounds)."""
    for task in document["tasks"]:
        for row in task["contenders"]:
            for what in RATIOS:
                if row[what] is not None and not row["name"].startswith("torch"):
                    key = (task["name"], row["name"], what)
                    yield key, (row["label"], Interval(**row[what]), len(row["times"]))


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


def show(then: Document, now: Document, console: Console) -> bool:
    """Print what changed and return whether a ratio grew.

    Raises
    ------
        ValueError: the two have no ratio in common.

    """
    found = changes(then, now)
    if not found:
        raise ValueError(
            "the baseline has no ratio in common with this run; run the sizes that it has."
        )
    for line in differences(then, now):
        console.print(Text(f" {line}", style="yellow"), soft_wrap=True)
    for change in found:
        if change.grew or change.shrank:
            word, colour = ("grew", "bold red") if change.grew else ("shrank", "green")
            line = (
                f" {change.task}, {change.label}: {change.what} {word} from "
                f"{words.ratio(change.then)} to {words.ratio(change.now)}"
            )
            console.print(Text(line, style=colour), soft_wrap=True)
    grew = sum(change.grew for change in found)
    expected = sum(change.chance for change in found)
    verdict = f"{grew} of {len(found)} ratios grew beyond the intervals"
    console.print(
        Text.assemble(
            (f" {verdict}", "bold red" if grew else "bold green"),
            (f"; without any change, chance makes {expected:.2g} a run grow\n", "dim"),
        )
    )
    return grew > 0
