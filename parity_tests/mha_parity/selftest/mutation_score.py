"""Change the code that decides verdicts, one place at a time, and count the changes a test sees.

``python -m mha_parity.selftest.mutation_score`` draws places at random and has cosmic-ray change
each (an operator, a comparison, a number, a condition, a loop) in a copy of the last commit. The
tests of the changed room run first, then those of rooms that use it. A change that no test sees
*survives*: a test is missing, or the change is equivalent, which ``data/mutation.jsonl`` says with
the reason.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from mha_parity.report.progress import error_console, progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DATA = Path(__file__).parent / "data"
EQUIVALENTS = DATA / "mutation.jsonl"
HARNESS = "parity_tests/mha_parity"
# What decides a verdict, and the folders of tests that are asked about it, nearest first.
ROOMS = {
    f"{HARNESS}/core": ("core", "cases", "run", "report"),
    f"{HARNESS}/cases": ("cases", "judging", "run"),
    f"{HARNESS}/oracle": ("oracle", "judging", "run"),
    f"{HARNESS}/judging": ("judging", "checks", "run", "catalogue"),
    f"{HARNESS}/checks": ("checks", "run", "catalogue"),
    f"{HARNESS}/run": ("run", "cli", "report"),
    "reference/mha_torch": ("oracle", "judging", "numpy"),
    "impl/mha_numpy/engines": ("numpy",),
    "impl/mha_numpy/grad": ("numpy",),
}
# Of the reference: what torch was seen to do and where, and problems to show it on. No verdict.
NO_RUN = ("trial", "_trial_masks", "_trial_values", "_evidence", "_report", "example")
LEAST_SCORE = 0.95
SECONDS = 900  # for one folder of tests: a change that makes a loop endless is seen by this

Place = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of the code: ``line`` as it stands in ``path``, and ``changed`` in its stead."""

    path: str
    line: str
    changed: str
    why: str = ""  # no test can see it

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from other changes."""
        return self.path, self.line, self.changed

    @property
    def room(self) -> str:
        """The room it stands in."""
        return next(room for room in ROOMS if self.path.startswith(room))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeResult:
    """A change with what came of it: *killed*, *equivalent* or *survived*."""

    change: Change
    outcome: str


def outdated(root: Path, path: Path = EQUIVALENTS) -> list[str]:
    """Return the lines of changes that have no reason, or that the code under ``root`` lacks."""
    changes = [Change(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]
    return [
        each.line
        for each in changes
        if not each.why or each.line not in " ".join((root / each.path).read_text("utf-8").split())
    ]


def read_equivalents(path: Path = EQUIVALENTS) -> dict[tuple[str, str, str], str]:
    """Return the changes that no test can see, each with its reason."""
    read = (Change(**json.loads(line)) for line in path.read_text("utf-8").splitlines())
    return {change.key: change.why for change in read}


def places(source: str) -> dict[Place, list[tuple[str, int]]]:
    """Return what cosmic-ray can change in a module, as (operator, occurrence) by place.

    Left out is what no run can see: annotations, imports for them, options of a dataclass.
    """
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    unseen = list(_unseen(ast.parse(source)))
    nodes = list(ast_nodes(get_ast(source)))
    found: dict[Place, list[tuple[str, int]]] = {}
    for name in operator_names():
        if get_operator(name).arguments():
            continue
        operator = get_operator(name)()
        starts = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, start in enumerate(starts):
            if not any(first <= start < last for first, last in unseen):
                found.setdefault(start, []).append((name, occurrence))
    return found


def apply(source: str, name: str, occurrence: int) -> str:
    """Return the source with one change."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    return str(mutate_code(source, get_operator(name)(), occurrence))


def describe(path: str, source: str, changed: str) -> Change:
    """Return the lines that differ."""
    delta = list(difflib.ndiff(source.splitlines(), changed.splitlines()))
    old, new = ([x[2:].strip() for x in delta if x[0] == sign] for sign in "-+")
    return Change(path=path, line=" ".join(old), changed=" ".join(new))


def draw(root: Path, count: int, seed: int, rooms: Sequence[str]) -> Iterator[tuple[Change, str]]:
    """Yield changes with the new text: a module by its length, a place of it, a change there."""
    rng = random.Random(seed)
    files = (path for room in rooms for path in (root / room).rglob("*.py"))
    modules = sorted(path for path in files if path.stem not in NO_RUN)
    lengths = [len(path.read_bytes()) for path in modules]
    sources = cache(lambda path: path.read_text("utf-8"))
    of_module = cache(lambda path: places(sources(path)))
    drawn: set[tuple[Path, Place]] = set()
    while len(drawn) < count:
        (module,) = rng.choices(modules, lengths)
        left = sorted(place for place in of_module(module) if (module, place) not in drawn)
        if left:
            place = rng.choice(left)
            drawn.add((module, place))
            text = apply(sources(module), *rng.choice(of_module(module)[place]))
            yield describe(module.relative_to(root).as_posix(), sources(module), text), text


def run_tests(change: Change, text: str, root: Path) -> ChangeResult:
    """Write a change into the copy ``root``, run the tests on it, and put it back."""
    module = root / change.path
    source = module.read_text("utf-8")
    module.write_text(text, "utf-8")
    try:
        seen = any(not is_green(root, folder) for folder in ROOMS[change.room])
    finally:
        module.write_text(source, "utf-8")
    if seen:
        return ChangeResult(change=change, outcome="killed")
    known = change.key in read_equivalents()
    return ChangeResult(change=change, outcome="equivalent" if known else "survived")


def run_changes(count: int, seed: int, rooms: Sequence[str], jobs: int) -> list[ChangeResult]:
    """Draw changes of the last commit and test each, in as many copies as ``jobs``."""
    free: SimpleQueue[Path] = SimpleQueue()

    def one(drawn: tuple[Change, str]) -> ChangeResult:
        root = free.get()
        try:
            return run_tests(*drawn, root)
        finally:
            free.put(root)

    tested = []
    with (
        tempfile.TemporaryDirectory() as folder,
        progress(error_console(), "changes", "testing", "changes") as tick,
        ThreadPoolExecutor(jobs) as pool,
    ):
        for number in range(jobs):
            root = Path(folder).resolve() / str(number)
            clone = ["git", "clone", "--quiet", ".", str(root)]
            subprocess.run(clone, check=True)
            free.put(root)
        drawn = list(draw(root, count, seed, rooms))
        for tests in sorted({ROOMS[change.room][0] for change, _ in drawn}):
            if not is_green(root, tests):
                raise RuntimeError(f"the tests of {tests} fail on unchanged code; mend it first.")
        for result in pool.map(one, drawn):
            tested.append(result)
            tick(len(tested), count)
    return tested


def score(tested: Sequence[ChangeResult]) -> float:
    """Return the share of changes that a test saw, equivalents left out."""
    counts = Counter(one.outcome for one in tested)
    return counts["killed"] / max(counts["killed"] + counts["survived"], 1)


def tables(tested: Sequence[ChangeResult], seed: int) -> str:
    """Return counts by room, and what survived, as Markdown."""
    counts = Counter((one.change.room, one.outcome) for one in tested)
    lines = [
        f"{len(tested)} changes drawn under seed {seed}; a test sees {score(tested):.1%} of those",
        "that are not equivalent.",
        "",
        "| room | changes | killed | equivalent | survived |",
        "|---|---|---|---|---|",
    ]
    for room in ROOMS:
        of_room = [counts[room, outcome] for outcome in ("killed", "equivalent", "survived")]
        if any(of_room):
            lines.append(f"| `{room}` | {sum(of_room)} | " + " | ".join(map(str, of_room)) + " |")
    reasons = read_equivalents()
    for outcome in ("survived", "equivalent"):
        found = [one.change for one in tested if one.outcome == outcome]
        if found:
            lines += ["", f"| {outcome} | line | changed to | why |", "|---|---|---|---|"]
        for change in found:
            line, changed = (text.replace("|", "\\|") for text in (change.line, change.changed))
            why = reasons.get(change.key, "")
            lines.append(f"| `{change.path}` | `{line}` | `{changed}` | {why} |")
    return "\n".join([*lines, ""])


def is_green(root: Path, folder: str) -> bool:
    """Return whether the tests of a folder pass on the code under ``root``."""
    paths = os.pathsep.join(str(root / part) for part in ("impl", "reference", "parity_tests"))
    command = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [sys.executable, *command, f"parity_tests/tests/{folder}"],
            cwd=root,
            env={
                **os.environ,
                "PYTHONPATH": paths,
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _unseen(tree: ast.Module) -> Iterator[tuple[Place, Place]]:
    for node in ast.walk(tree):
        hidden: Sequence[ast.expr | ast.stmt | None] = ()
        if isinstance(node, ast.FunctionDef):
            hidden = [node.returns]
        elif isinstance(node, (ast.arg, ast.AnnAssign)):
            hidden = [node.annotation]
        elif isinstance(node, ast.ClassDef):
            hidden = [one for one in node.decorator_list if "dataclass" in ast.dump(one)]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            hidden = [node.test, *node.body]
        for part in hidden:
            if part is not None:
                # The sign @ of a decorator stands one place before what the tree has.
                start = (part.lineno, max(part.col_offset - 1, 0))
                yield start, (part.end_lineno or part.lineno, part.end_col_offset or 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Test a sample, print its tables, and return 1 where a test sees too few."""
    parser = argparse.ArgumentParser(description="Test changes of the code that decides verdicts.")
    parser.add_argument("--count", type=int, default=24, help="changes to draw (24)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (0)")
    parser.add_argument("--room", action="append", choices=tuple(ROOMS), help="draw only here")
    parser.add_argument("--jobs", type=int, default=2, help="changes tested at once (2)")
    parser.add_argument("--markdown", type=Path, help="write the tables to this file too")
    options = parser.parse_args(arguments)
    rooms = options.room or tuple(ROOMS)
    tested = run_changes(options.count, options.seed, rooms, options.jobs)
    text = tables(tested, options.seed)
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return int(score(tested) < LEAST_SCORE)


if __name__ == "__main__":
    sys.exit(main())
