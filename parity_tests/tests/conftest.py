"""Fixtures that the tests of several rooms share: fewer calls, and runs of pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    RunPytest = Callable[..., pytest.RunResult]

TESTS = Path(__file__).parent
# Folders of tests that are of other things than further calls and sizes.
SHORTENED = frozenset(
    {"answers", "cli", "commands", "diagnose", "judging", "numpy", "report", "run", "targets"}
)


@pytest.hookimpl(tryfirst=True)  # before those that are marked slow are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what stands behind the first of a test's parameters that ``repeats`` keeps."""
    seen = Counter[str]()
    for item in items:
        marker = item.get_closest_marker("repeats")
        if marker is None:
            continue
        test = item.nodeid.partition("[")[0]
        seen[test] += 1
        if seen[test] > marker.args[0]:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def short_runs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make runs in this process shorter, by a fifth of a test's time, where it is of other things.

    Further calls, on state, dropout, refused inputs and NaN, are made for 2 cases of a run, not for
    the first 12, and drawn cases take a quarter of the time to judge. tests/checks holds what these
    calls see, and tests/cases what sizes are drawn; `whole` marks what needs either elsewhere, and
    `make test-all` leaves both as they are.
    """
    short = "not slow" in request.config.option.markexpr
    if (
        not short
        or request.path.relative_to(TESTS).parts[0] not in SHORTENED
        or request.node.get_closest_marker("whole")
    ):
        return
    from mha_parity.cases import sizes
    from mha_parity.checks import call_effects

    monkeypatch.setattr(call_effects, "EXTRA", call_effects.EXTRA._replace(first=2))
    for limit in ("LIMIT", "LONG_LIMIT", "FULL_LIMIT"):
        monkeypatch.setattr(sizes, limit, getattr(sizes, limit) / 4)


@pytest.fixture(scope="session")
def run_pytest_in() -> Iterator[RunPytest]:
    """Return a function that runs pytest in a folder, in a process of its own.

    Its arguments are the folder and what pytest is given. ``pytest_server`` forks the processes:
    torch is imported once for all of them, which takes 2 s.
    """
    server: list[subprocess.Popen[str]] = []

    def run(folder: Path, *arguments: str) -> pytest.RunResult:
        if not server:
            command = [sys.executable, str(Path(__file__).with_name("pytest_server.py"))]
            pipe = subprocess.PIPE
            server.append(subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe))
        started = time.perf_counter()
        places = [str(folder), os.environ.get("PYTHONPATH", "")]
        # Of the plugins that are installed ours alone, and xdist where it is asked for.
        named = ["-p", "mha_parity.pytest_plugin", *(["-p", "xdist"] if "-n" in arguments else [])]
        request = {
            "folder": str(folder),
            "arguments": ["-p", "no:cacheprovider", *named, *arguments],
            "environment": os.environ
            | {
                "PYTHONPATH": os.pathsep.join(filter(None, places)),
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
        }
        to, back = server[0].stdin, server[0].stdout
        assert to is not None
        assert back is not None
        print(json.dumps(request), file=to, flush=True)
        status = int(back.readline())
        out, err = ((folder / name).read_text("utf-8") for name in ("stdout", "stderr"))
        seconds = time.perf_counter() - started
        return pytest.RunResult(status, out.splitlines(), err.splitlines(), seconds)

    yield run
    for each in server:
        each.communicate()


@pytest.fixture
def run_pytest(pytester: pytest.Pytester, run_pytest_in: RunPytest) -> RunPytest:
    """Return a function that runs pytest in the folder of ``pytester``."""
    return partial(run_pytest_in, pytester.path)
