"""Change the code that decides verdicts, one place at a time, and count the changes a test sees.

``python -m mha_parity.selftest.mutation_score`` draws places at random, changes each in a copy of
the last commit, and runs the tests that call the changed function, one case of each first. A change
that no test sees *survives*: a test is missing, or the change is equivalent, which
``data/mutation.jsonl`` says with the reason. What was tested of a commit is kept in
``build/mutation``: the same command goes on where it was ended.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from mha_parity.report.progress import counted, error_console, progress
from mha_parity.selftest.mutation_draw import ROOMS, Mutation, draw
from mha_parity.selftest.mutation_tests import (
    RecordedTest,
    WarmProcess,
    cached_json,
    chosen,
    files_of,
    first_difference,
    function_at,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Returned = TypeVar("Returned")
DATA = Path(__file__).parent / "data"
EQUIVALENTS = DATA / "mutation.jsonl"
LEAST_SCORE = 0.95
CONTROL = 0.02  # seconds of the tests that control the order: most of them, in a few seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeResult:
    """A change with what came of it: *killed*, *equivalent* or *survived*."""

    change: Mutation
    outcome: str
    seconds: float = 0.0


def read_equivalents(path: Path = EQUIVALENTS) -> dict[tuple[str, str, str], str]:
    """Return the changes that no test can see, each with its reason."""
    read = (Mutation(**json.loads(line)) for line in path.read_text("utf-8").splitlines())
    return {change.key: change.why for change in read}


def run_tests(
    drawn: tuple[Mutation, str], warm: WarmProcess, records: Sequence[RecordedTest]
) -> ChangeResult:
    """Write a change into the copy of ``warm``, run the tests that may see it, and put it back."""
    change, text = drawn
    module = warm.root / change.path
    source = module.read_text("utf-8")
    name = function_at(source, first_difference(source, text))
    tests = chosen(records, change.path, name, ROOMS[change.room])

    def run() -> dict[str, Any]:
        begin = time.monotonic()
        module.write_text(text, "utf-8")
        try:
            green = warm.is_green(tests)
        finally:
            module.write_text(source, "utf-8")
        return {
            "outcome": "survived" if green else "killed",
            "seconds": round(time.monotonic() - begin, 1),
        }

    result = ChangeResult(change=change, **cached_json(f"{warm.tree()} {change.path} {text}", run))
    if result.outcome == "survived" and change.key in read_equivalents():
        return replace(result, outcome="equivalent")
    return result


def run_changes(
    count: int, seed: int, rooms: Sequence[str], jobs: int, seconds: float
) -> list[ChangeResult]:
    """Draw changes of the last commit and test each, in as many copies as ``jobs``.

    After ``seconds`` no further one is begun.
    """
    free: SimpleQueue[WarmProcess] = SimpleQueue()
    end = time.monotonic() + seconds

    def use(run: Callable[[WarmProcess], Returned]) -> Returned | None:
        warm = free.get()
        try:
            return run(warm) if time.monotonic() < end else None
        finally:
            free.put(warm)

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())).resolve()
        for number in range(jobs):
            root = folder / str(number)
            clone = ["git", "clone", "--quiet", ".", str(root)]
            subprocess.run(clone, check=True)
            # By hash: a change of the same length within a second is a change.
            compiled = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", str(root)]
            subprocess.run([sys.executable, *compiled], check=False)
            warm = WarmProcess(root)
            stack.callback(warm.close)
            free.put(warm)
        drawn = list(draw(root, count, seed, rooms))
        files = files_of(root, dict.fromkeys(each for room in rooms for each in ROOMS[room]))
        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        with progress(error_console(), "files of tests", "recording", "files") as tick:
            found = pool.map(lambda file: use(lambda warm: warm.record(file)), files)
            records = [test for tests in counted(found, tick, len(files)) for test in tests or ()]
        use(lambda warm: _control(warm, records))
        with progress(error_console(), "changes", "testing", "changes") as tick:
            tested = pool.map(lambda one: use(lambda warm: run_tests(one, warm, records)), drawn)
            return [result for result in counted(tested, tick, count) if result]


def _control(warm: WarmProcess, records: Sequence[RecordedTest]) -> None:
    """Raise where tests that pass file by file fail in another order: each change would fail."""
    fast = sorted(records, key=lambda test: test.seconds)
    if not warm.is_green([test for test in fast if test.seconds < CONTROL]):
        raise RuntimeError("tests of unchanged code fail in the order of their time; mend them.")


def score(tested: Sequence[ChangeResult]) -> float:
    """Return the share of changes that a test saw, equivalents left out."""
    counts = Counter(one.outcome for one in tested)
    return counts["killed"] / max(counts["killed"] + counts["survived"], 1)


def score_tables(tested: Sequence[ChangeResult], seed: int) -> str:
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


def _origin(asked: str, tested: Sequence[ChangeResult]) -> str:
    """Return the command, the date, and what a change costs."""
    seconds = statistics.median([one.seconds for one in tested] or [0.0])
    today = datetime.now(UTC).date()
    return f"`make mutation ARGS='{asked}'`, {today}; {seconds:.1f} s a change in the median."


def main(arguments: Sequence[str] | None = None) -> int:
    """Test a sample, print its tables, and return 1 where a test sees too few."""
    parser = argparse.ArgumentParser(description="Test changes of the code that decides verdicts.")
    parser.add_argument("--count", type=int, default=24, help="changes to draw (24)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (0)")
    parser.add_argument("--room", action="append", choices=tuple(ROOMS), help="draw only here")
    parser.add_argument("--jobs", type=int, default=2, help="changes tested at once (2)")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="begin nothing after (no limit)"
    )
    parser.add_argument("--markdown", type=Path, help="write the tables to this file too")
    options = parser.parse_args(arguments)
    rooms = options.room or tuple(ROOMS)
    tested = run_changes(options.count, options.seed, rooms, options.jobs, options.seconds)
    asked = " ".join(sys.argv[1:] if arguments is None else arguments)
    text = f"{_origin(asked, tested)}\n\n{score_tables(tested, options.seed)}"
    if len(tested) < options.count:
        text = f"{len(tested)} of {options.count} changes tested in this time.\n\n{text}"
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return int(score(tested) < LEAST_SCORE)


if __name__ == "__main__":
    sys.exit(main())
