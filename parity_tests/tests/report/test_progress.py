"""How far a run is: a bar on a terminal, lines in a log."""

from __future__ import annotations

import io
import sys
import time

import pytest
from rich.console import Console

from mha_parity.report.progress import error_console, progress


def test_progress_off_a_terminal_is_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a log progress is a plain line every ten seconds, and no bar."""
    clock = iter([0.0, 5.0, 11.0, 12.0, 21.0])
    monkeypatch.setattr("mha_parity.report.progress.time.monotonic", lambda: next(clock))
    with progress(Console(file=io.StringIO()), "x:f") as tick:
        for done in range(1, 5):
            tick(done, 4)
    assert "judging x:f: 2 of 4 cases\njudging x:f: 4 of 4 cases\n" == capsys.readouterr().err


def test_progress_on_a_terminal_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal a bar counts the cases."""
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    with progress(Console(file=stream, force_terminal=True, width=80), "x[/a]:f") as tick:
        tick(2, 4)
    assert "judging x[/a]:f" in stream.getvalue()
    assert "2/4" in stream.getvalue()


def test_no_bar_is_drawn_into_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where FORCE_COLOR asks for colours, standard error is no terminal for that."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert Console(stderr=True).is_terminal
    assert not error_console().is_terminal
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert error_console().is_terminal


def test_progress_on_a_terminal_that_draws_nothing_is_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A terminal that cannot move its cursor gets lines, as a log does."""
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("mha_parity.report.progress.LINE_EVERY", 0.0)
    with progress(Console(file=io.StringIO(), force_terminal=True), "x:f") as tick:
        tick(2, 4)
    assert "judging x:f: 2 of 4 cases\n" == capsys.readouterr().err


def test_a_long_start_is_said_off_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Small calls before the first case leave a line, and none behind it. Kills a silent start."""
    monkeypatch.setattr("mha_parity.report.progress.START_EVERY", 0.01)
    with progress(Console(file=io.StringIO()), "x:f") as tick:
        end = time.monotonic() + 10
        lines = ""
        while not lines and time.monotonic() < end:
            time.sleep(0.01)
            lines = capsys.readouterr().err
        assert {"starting x:f"} == {*lines.splitlines()}
        tick(0, 9)
        time.sleep(0.05)
        capsys.readouterr()
        time.sleep(0.05)
        assert not capsys.readouterr().err
