"""Run commands for a page, and print them with what they said."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

WIDTH = 80  # columns that a page shows without a scroll bar
REPOSITORY = Path(__file__).resolve().parents[2]


def run(line: str, folder: str | Path, *, lines: int | None = None) -> None:
    """Print a command line and its output; of a long report the first ``lines``.

    A command of ``mha-parity`` runs with the Python of this process. An exit status of 2, "could
    not start", raises an error, so that no page shows a command that does not work.
    """
    program, *words = shlex.split(line)
    command = [sys.executable, "-m", "mha_parity"] if program == "mha-parity" else [program]
    done = subprocess.run(  # noqa: S603  (the page's own lines)
        [*command, *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"COLUMNS": str(WIDTH)},
        check=False,
    )
    if done.returncode == 2 or (program != "mha-parity" and done.returncode):
        raise RuntimeError(f"`{line}` ended with {done.returncode}: {done.stderr}")
    said = done.stdout.strip("\n").splitlines()
    shown = said[:lines] if lines else said
    rest = ["..."] if len(shown) < len(said) else []
    first = textwrap.fill(f"$ {line}", WIDTH, subsequent_indent="    ", break_on_hyphens=False)
    sys.stdout.write("\n".join([first, "", *shown, *rest]).rstrip() + "\n")
