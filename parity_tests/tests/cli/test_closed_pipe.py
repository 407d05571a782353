"""A reader that closes the pipe, as `| head -1` does, is no failure of any command."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from mha_parity.report.pipe_console import PipeConsole
from subject_checks import SUBJECTS

COMMAND = Path(sys.executable).parent / "mha-parity"
CASE = "qkv-N1-L2-S2-H2-D1-unbatched-float64-s0"
STATUS = {
    "list": 0,
    "list features": 0,
    "list bugs": 0,
    "explain scale-dmodel": 0,
    "check --help": 0,
    "--version": 0,
    "": 0,
    "adapt wrong_split.py": 0,
    f"replay {CASE} projected.py:f --in-process": 0,
    f"replay {CASE} wrong_scale.py:f --in-process": 1,
    "identify wrong_scale.py:f --in-process --dtypes float64": 1,
    "audit fast": 1,
}


def closed(line: str) -> tuple[int, str]:
    """Run a command whose standard output is closed; return its status and its errors."""
    with subprocess.Popen(
        [COMMAND, *line.split()], cwd=SUBJECTS, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read().decode()
    return process.returncode, errors


@pytest.mark.parametrize("line", STATUS)
def test_a_closed_pipe_changes_no_status(line: str) -> None:
    """The status is the command's own, with no error of the pipe behind it."""
    assert (STATUS[line], "") == closed(line)


@pytest.mark.parametrize("closing", ["2>&-", ">&-", "<&-", "<&- >&- 2>&-"])
def test_a_stream_that_the_caller_has_closed_changes_no_verdict(closing: str) -> None:
    """Daemons start commands so: a pipe of the harness would take the place of the stream."""
    line = f"{COMMAND} check projected.py:f --cases 40 {closing}"
    assert 0 == subprocess.run(["/bin/sh", "-c", line], cwd=SUBJECTS, check=False).returncode


class ClosedPipe(io.StringIO):
    """A stream whose reader is gone."""

    def write(self, text: str, /) -> int:
        """Fail as a pipe does."""
        del text
        raise BrokenPipeError


@pytest.mark.parametrize("kind", [PipeConsole, Console])
def test_the_console_goes_on(kind: type[Console], monkeypatch: pytest.MonkeyPatch) -> None:
    """The console of the commands prints nothing more; rich's own ends with status 1."""
    dropped: list[str] = []
    monkeypatch.setattr(
        "mha_parity.report.encoding.drop_standard_output", lambda: dropped.append("once")
    )
    monkeypatch.setattr("os.dup2", lambda *_: dropped.append("by rich"))
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.FileIO(1, "w", closefd=False)))
    console = kind(file=ClosedPipe())
    if kind is PipeConsole:
        console.print("first")
        console.print("second")
        assert ["once"] == dropped
    else:
        with pytest.raises((SystemExit, BrokenPipeError)):
            console.print("first")
