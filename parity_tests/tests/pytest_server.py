"""Run pytests, each in a process of its own that is forked where torch is imported already.

Reads requests from standard input, one a line of JSON, and writes the exit status of each. The
parent imports what every run of the plugin would import, and no module of a plugin of pytest.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import TYPE_CHECKING, TextIO

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

IMPORTED = ("torch", "mha_torch", "mha_parity.run.check", "mha_parity.worker.open_target")


def serve(requests: TextIO, statuses: TextIO) -> None:
    """Run pytest for each request, in a fork; return in the parent alone."""
    for name in IMPORTED:
        importlib.import_module(name)
    for line in requests:
        child = os.fork()
        if not child:
            sys.exit(run(**json.loads(line)))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(status, file=statuses, flush=True)


def run(folder: str, arguments: list[str], environment: Mapping[str, str]) -> int:
    """Run pytest in ``folder``, which gets the files stdout and stderr, like a fresh process."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  (a descriptor)
    sys.path[0] = folder  # as `python -m pytest` has it
    sys.argv = ["pytest", *arguments]
    return pytest.console_main()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
