"""Which tests see a change: those that call the changed function, one case of each test first.

On unchanged code each file of tests runs once, and of each test it is kept how long it took and
which functions it called. The record is kept in ``build/mutation`` as long as neither the code nor
the file of tests changes.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

STORE = Path("build/mutation")
CHILD = Path(__file__).with_name("mutation_child.py")
TESTS = "parity_tests/tests"
CODE = ("\timpl/", "\treference/", "\tparity_tests/mha_parity/", "\tparity_tests/subjects/")
# Of unchanged tests, for one change: what these tests do not see has survived.
MOST_SECONDS = 40.0
# A change may make a test slower than this only by a loop without an end; on a busy machine the
# collection of the tests alone takes more than a minute.
SLOWER, START = 4.0, 120.0
GREEN = (0, 5)  # of pytest's exit statuses: all tests pass, or there is none
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTest:
    """One test that passes on unchanged code, and the functions that it calls."""

    name: str
    seconds: float
    called: frozenset[tuple[str, str]]

    @property
    def file(self) -> str:
        """The file it stands in."""
        return self.name.partition("::")[0]

    @property
    def folder(self) -> str:
        """The folder of tests it stands in."""
        return self.name.removeprefix(f"{TESTS}/").partition("/")[0]


class WarmProcess:
    """A process with torch imported, whose children run the tests of the copy ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        paths = os.pathsep.join(str(root / part) for part in ("impl", "reference", "parity_tests"))
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(CHILD)],
            cwd=root,
            env={
                **os.environ,
                **dict.fromkeys(THREADS, "1"),
                "PYTHONPATH": paths,
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **asked: Any) -> dict[str, Any]:
        """Return its answer to one request (see `mutation_child`)."""
        to, back = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)
        to.write(json.dumps(asked) + "\n")
        to.flush()
        answer: dict[str, Any] = json.loads(back.readline())
        return answer

    def close(self) -> None:
        """End it."""
        self._process.communicate()

    def is_green(self, tests: Sequence[RecordedTest]) -> bool:
        """Return whether these tests pass, in this order; no test at all is no failure."""
        limit = START + SLOWER * sum(test.seconds for test in tests)
        status: int = self.ask(tests=[test.name for test in tests], seconds=limit)["status"]
        return status in GREEN

    def record(self, file: str) -> list[RecordedTest]:
        """Return the tests of a file that pass."""
        lines = (line for line in self.tree().splitlines() if "/selftest/" not in line)
        needed = [line for line in lines if line.endswith(file) or _any_in(CODE, line)]

        def ask() -> Any:
            answer = self.ask(record=file)
            if answer["status"] not in GREEN:
                raise RuntimeError(f"{file} fails on unchanged code; mend it first.")
            return answer["passed"]

        read = cached_json("\n".join([file, *needed]), ask)
        return [
            RecordedTest(name=name, seconds=seconds, called=frozenset(map(tuple, called)))
            for name, seconds, called in read
        ]

    def tree(self) -> str:
        """Return the files of the copy's commit, each with its digest."""
        command = ["git", "ls-tree", "-r", "HEAD"]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True)
        return done.stdout


def cached_json(key: str, compute: Callable[[], Any]) -> Any:
    """Return what ``build/mutation`` keeps under a key, or compute it and keep it, as JSON."""
    path = STORE / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(compute()), encoding="utf-8")
    return json.loads(path.read_text("utf-8"))


def _any_in(parts: Sequence[str], line: str) -> bool:
    return any(part in line for part in parts)


def files_of(root: Path, folders: Iterable[str]) -> list[str]:
    """Return the files of tests in these folders."""
    return [
        path.relative_to(root).as_posix()
        for folder in folders
        for path in sorted((root / TESTS / folder).glob("test_*.py"))
    ]


def chosen(
    records: Sequence[RecordedTest], path: str, name: str, folders: Sequence[str]
) -> list[RecordedTest]:
    """Return the tests to ask about a change in the function ``name`` of ``path``, in order.

    Those that call it come first, then those that call its module (it may be called once for all
    of them), then the rest of their files (a test may only read a constant); where no test does, as
    with code that only another process runs, those of the nearest folder. Within each, one case of
    every test before further cases of any, the fastest first: another test sees what cases of one
    do not. They take ``MOST_SECONDS`` at most, but the first runs.
    """
    calls = [test for test in records if (path, name) in test.called]
    around = [test for test in records if any(path == file for file, _ in test.called)]
    files = {test.file for test in around}
    others = [test for test in records if test.file in files]
    asked: list[RecordedTest] = []
    left = MOST_SECONDS
    for tests in (
        calls,
        around,
        others or [test for test in records if test.folder == folders[0]],
    ):
        for test in _varied([test for test in tests if test not in asked]):
            if test.seconds <= left or not asked:
                asked.append(test)
                left -= test.seconds
    return asked


def _varied(tests: Iterable[RecordedTest]) -> list[RecordedTest]:
    """Return tests by their number among the cases of one test, and then by their time."""
    fast = sorted(tests, key=lambda test: test.seconds)
    seen: Counter[str] = Counter()
    order: dict[RecordedTest, int] = {}
    for test in fast:
        function = test.name.partition("[")[0]
        order[test] = seen[function]
        seen[function] += 1
    return sorted(fast, key=order.__getitem__)


def function_at(source: str, line: int) -> str:
    """Return the qualified name of the innermost function whose body has this line, or nothing."""
    found = ""

    def descend(node: ast.AST, name: str) -> None:
        nonlocal found
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                inner = f"{name}{child.name}"
                if isinstance(child, ast.FunctionDef):
                    if child.body[0].lineno <= line <= (child.end_lineno or 0):
                        found = inner
                    inner += ".<locals>"
                inner += "."
            descend(child, inner)

    descend(ast.parse(source), "")
    return found


def first_difference(source: str, changed: str) -> int:
    """Return the number of the first line that differs."""
    pairs = zip(source.splitlines(), changed.splitlines(), strict=False)
    return next(number for number, (old, new) in enumerate(pairs, start=1) if old != new)
