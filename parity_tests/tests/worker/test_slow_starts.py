"""What takes long to start is waited for: a module that is imported, and a program of files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.targets.programs import command_files
from mha_parity.worker import client
from mha_parity.worker.client import isolated
from subject_checks import SUBJECTS

if TYPE_CHECKING:
    from pathlib import Path

SLOW = """
import time
time.sleep(1.5)

def attention(q, k, v):
    return q
"""
STARTS = 0.5  # seconds that the program of these tests takes


def test_the_time_out_is_that_of_an_import_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import may take as long as a call where that is more; the remedy is to raise it."""
    monkeypatch.setattr(client, "START", 0.5)
    (tmp_path / "slow.py").write_text(SLOW, "utf-8")
    target = f"{tmp_path}/slow.py:attention"
    said = "importing it gave no answer within 0.5 seconds; move what takes long out of the module"
    with (
        isolated(target, "qkv-heads", timeout=0.1) as candidate,
        pytest.raises(TargetError, match=f"{said}, or raise --timeout"),
    ):
        candidate.ready()
    with isolated(target, "qkv-heads", timeout=60.0) as candidate:
        assert "qkv-heads" == candidate.ready().convention


def test_a_program_of_files_has_the_time_that_it_takes_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk is given up where no answer comes for long, its start left out of the time."""
    monkeypatch.setattr(command_files, "STALLED", STARTS / 5)
    script = tmp_path / "slow.sh"
    python = f'{sys.executable} {SUBJECTS / "command.py"} "" "$1" "$2"'
    log = tmp_path / "ended"
    script.write_text(f"sleep {STARTS}\n{python}\necho >> {log}\n", "utf-8")
    program = command_files.CommandOfFiles(f"sh {script} {{requests}} {{answers}}")
    block = program.request({}, {"request": "offer"})
    waited = []
    program.ask_ahead([block, block], lambda: waited.append(1))
    assert len(waited) * command_files.TICK > STARTS / 2
    assert "\n\n" == log.read_text("utf-8")  # that of the offer, and that of the chunk
