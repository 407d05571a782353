"""Compute the published figures anew, and say which of them moved.

``python -m mha_parity.selftest.figures`` runs the commands that the published figures come from,
with their seeds, into a folder of its own, and compares. A rate has moved when its interval and the
published one, both of 99 %, have no number in common; a ratio of times, when the intervals of its
medians have none, on the same kind of machine; a row of the kill matrix, when it is another.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

DATA = Path(__file__).parent / "data"
COUNTS = ("match", "less_accurate", "inconclusive", "failed")
RATIO = re.compile(r"^([\d.]+) \(([\d.]+)–([\d.]+)\)$")
COMMAND = ("-m", "mha_parity")

Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A figure that is another than the published one."""

    what: str
    published: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Published figures: the command that writes them, its file, and how they are compared."""

    command: tuple[str, ...]  # arguments of Python; {to} is the folder it writes to
    file: str
    compare: Callable[[str, str], Iterator[Moved]]


def wilson_interval(events: int, trials: int) -> Bounds:
    """Return the 99 % interval of a rate: Wilson's, which holds for rates near 0 too."""
    z = NormalDist().inv_cdf(0.995)
    middle, spread = events + z * z / 2, z * math.sqrt(events * (1 - events / trials) + z * z / 4)
    return (middle - spread) / (trials + z * z), (middle + spread) / (trials + z * z)


def compare_calibration(published: str, found: str) -> Iterator[Moved]:
    """Yield the verdicts whose share moved, by kind of answer and dtype."""
    ours, theirs = (_rows(text, "kind", "dtype") for text in (published, found))
    for key in ours | theirs:
        for count in COUNTS:
            rates = [(row[key][count], row[key]["judged"]) for row in (ours, theirs) if key in row]
            yield from _moved(f"{' '.join(key)}: {count.replace('_', ' ')}", rates)


def compare_accuracy(published: str, found: str) -> Iterator[Moved]:
    """Yield the shares of errors above twice torch's that moved, by contender and dtype."""
    ours, theirs = (_rows(text, "contender", "dtype", "feature") for text in (published, found))
    for key in ours | theirs:
        rows = [row[key] for row in (ours, theirs) if key in row]
        rates = [(round(row["above2"] * row["cases"]), row["cases"]) for row in rows]
        yield from _moved(f"{' '.join(filter(None, key))}: above twice torch's", rates)


def compare_lines(published: str, found: str) -> Iterator[Moved]:
    """Yield the rows of tables that are others."""
    ours, theirs = (
        {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("|")}
        for text in (published, found)
    )
    for key in ours | theirs:
        if ours.get(key) != theirs.get(key):
            yield Moved(what=key, published=ours.get(key, ""), found=theirs.get(key, ""))


def compare_ratios(published: str, found: str) -> Iterator[Moved]:
    """Yield the ratios of times whose intervals are separate, on the same kind of machine."""
    machines = [
        [re.sub(r": \d+ GFLOP/s", ":", line) for line in text.splitlines() if line[:2] == "- "]
        for text in (published, found)
    ]
    if machines[0][:3] != machines[1][:3]:
        sys.stderr.write("bench: another machine than the published one; not compared\n")
        return
    ours, theirs = (
        [
            [cell.strip() for cell in line.split("|")[1:-1]]
            for line in text.splitlines()
            if "|" in line
        ]
        for text in (published, found)
    )
    for old, new in zip(ours[2:], theirs[2:], strict=True):
        for name, before, after in zip(ours[0], old, new, strict=True):
            one, two = RATIO.match(before), RATIO.match(after)
            if (
                one
                and two
                and _separate((float(one[2]), float(one[3])), (float(two[2]), float(two[3])))
            ):
                yield Moved(what=f"{old[0]}: {name}", published=before, found=after)


FIGURES = {
    "calibration": Figure(
        command=("-m", "mha_parity.selftest.calibrate", "--to", "{to}"),
        file="calibration.json",
        compare=compare_calibration,
    ),
    "accuracy": Figure(
        command=("-m", "mha_parity.selftest.accuracy_survey", "--to", "{to}"),
        file="accuracy.json",
        compare=compare_accuracy,
    ),
    "mutants": Figure(
        command=(*COMMAND, "mutants", "--seeds", "10", "--markdown", "{to}/mutants.md"),
        file="mutants.md",
        compare=compare_lines,
    ),
    "bench": Figure(
        command=(*COMMAND, "bench", "--markdown", "{to}/forward.md"),
        file="forward.md",
        compare=compare_ratios,
    ),
}


def recompute(name: str, to: Path, published: Path) -> list[Moved]:
    """Run the command of one figure, and return what moved.

    Raises
    ------
    subprocess.CalledProcessError
        The command failed.

    """
    figure = FIGURES[name]
    to.mkdir(parents=True, exist_ok=True)
    command = [part.format(to=to) for part in figure.command]
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    texts = [(folder / figure.file).read_text("utf-8") for folder in (published, to)]
    return list(figure.compare(*texts))


def _rows(text: str, *names: str) -> dict[tuple[str, ...], dict[str, Any]]:
    return {tuple(row[name] for name in names): row for row in json.loads(text)["rows"]}


def _moved(what: str, rates: Sequence[tuple[int, int]]) -> Iterator[Moved]:
    said = [f"{events} of {trials}" for events, trials in rates]
    if len(rates) == 1:
        yield Moved(what=what, published=said[0], found="no such row in one of the two")
    elif _separate(*(wilson_interval(*rate) for rate in rates)):
        yield Moved(what=what, published=said[0], found=said[1])


def _separate(one: Bounds, two: Bounds) -> bool:
    return max(one[0], two[0]) > min(one[1], two[1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Recompute the figures that are named, all by default; 1 where one moved."""
    parser = argparse.ArgumentParser(description="Compute the published figures anew.")
    parser.add_argument("figure", nargs="*", help=f"which: {', '.join(FIGURES)}; all by default")
    parser.add_argument("--to", type=Path, default=Path("build/figures"), help="folder to write to")
    parser.add_argument("--bench", type=Path, default=Path(".github/bench"), help="its tables")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.figure) - set(FIGURES):
        parser.error(f"got {', '.join(sorted(unknown))}; figures are {', '.join(FIGURES)}.")
    moved = False
    for name in asked.figure or FIGURES:
        found = recompute(name, asked.to, asked.bench if name == "bench" else DATA)
        sys.stdout.write(f"{name}: {f'{len(found)} moved' if found else 'as published'}\n")
        for each in found:
            sys.stdout.write(f"  {each.what}: published {each.published}; now {each.found}\n")
        moved = moved or bool(found)
    return int(moved)


if __name__ == "__main__":
    sys.exit(main())
