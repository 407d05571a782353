"""Run chosen tests in children of one process that has imported torch once.

``python -P mutation_child.py``, started in a copy of the repository, reads one request a line, as
JSON, and answers each with a line. A child has the slow libraries at once and imports the packages
of the copy itself, changed as they are; this module therefore imports none of them.

``{"tests": [id, ...], "seconds": s}`` runs these tests in this order up to the first that fails and
answers ``{"status": n}``, pytest's exit status or -1 after ``seconds``. ``{"record": file}`` runs
one file of tests and answers the tests that pass, each with its seconds and with the functions of
the copy that it calls, as ``[id, seconds, [[path, name], ...]]``.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

SLOW = ("torch", "numpy", "hypothesis", "ml_dtypes", "rich.console", "safetensors", "nbformat")
SECONDS = 600.0  # for one file of tests on unchanged code


class Chosen:
    """Keep the tests of these ids, in this order."""

    def __init__(self, tests: list[str]) -> None:
        self.place = {name: number for number, name in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drop and order."""
        kept = [item for item in items if item.nodeid in self.place]
        items[:] = sorted(kept, key=lambda item: self.place[item.nodeid])


class Recorder:
    """Note of each test that passes how long it took and which functions it called."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.called: set[CodeType] = set()
        self.passed: list[tuple[str, float, list[tuple[str, str]]]] = []

    def _trace(self, frame: FrameType, _event: str, _value: object) -> None:
        self.called.add(frame.f_code)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """Watch each call, in every thread."""
        self.called.clear()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a call that passed."""
        if report.when == "call" and report.passed:
            own = sorted(
                (code.co_filename.removeprefix(self.root), code.co_qualname)
                for code in set(self.called)
                if code.co_filename.startswith(self.root)
            )
            self.passed.append((report.nodeid, report.duration, own))


def run_in_child(asked: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked in a child, and wait for it."""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
        child = os.fork()
        if not child:
            status = 70
            try:
                os.setsid()
                nothing = os.open(os.devnull, os.O_RDWR)
                for number in range(3):
                    os.dup2(nothing, number)
                status = _run(asked, Path(file.name))
            finally:
                os._exit(status)
        status = _wait(child, asked.get("seconds", SECONDS))
        passed = json.loads(file.read() or "[]")
    return {"status": status, "passed": passed}


def _run(asked: dict[str, Any], out: Path) -> int:
    plugin: Chosen | Recorder
    options = ["-q", "-p", "no:cacheprovider", "--rootdir=.", "--assert=plain"]
    if "record" in asked:
        plugin = Recorder(f"{Path.cwd()}{os.sep}")
        status = pytest.main([*options, asked["record"]], plugins=[plugin])
        out.write_text(json.dumps(plugin.passed), encoding="utf-8")
        return int(status)
    plugin = Chosen(asked["tests"])
    files = dict.fromkeys(name.partition("::")[0] for name in asked["tests"])
    return int(pytest.main([*options, "-x", *files], plugins=[plugin]))


def _wait(child: int, seconds: float) -> int:
    """Return the exit status of a child, or end it with all that it started and return -1."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def main() -> None:
    """Import what is slow, then answer until standard input ends."""
    for name in SLOW:
        with suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run_in_child(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
