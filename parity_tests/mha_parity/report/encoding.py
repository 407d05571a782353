"""Output where the terminal or the log does not take every letter."""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

HANDLER = "mha-parity-legible"
# What is read as a sign keeps a sign of its own; for everything else there is a question mark.
INSTEAD = {"✓": "+", "✗": "!", "·": "|", "×": "x", "−": "-", "▼": "v", "’": "'", "–": "-"}


def replace_unencodable(*streams: TextIO) -> None:
    """Let these streams write, in place of a letter they cannot write, one that they can."""
    codecs.register_error(HANDLER, _instead)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper) and not _takes_all(stream):
            stream.reconfigure(errors=HANDLER)


def _takes_all(stream: TextIO) -> bool:
    return codecs.lookup(stream.encoding).name.startswith("utf")


def _instead(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return "".join(INSTEAD.get(letter, "?") for letter in letters), error.end


def prepare_standard_streams() -> None:
    """Make standard output and error legible."""
    replace_unencodable(sys.stdout, sys.stderr)


def open_standard_streams() -> None:
    """Send what is written to a standard stream that the caller has closed nowhere.

    A pipe that is opened later would take its place, and Python's own stream is None.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
        if getattr(sys, name) is None:
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115  (for good)
            setattr(sys, name, stream)


@contextmanager
def closed_pipe_ignored() -> Iterator[None]:
    """Stop writing, without an error, once the reader of standard output is gone."""
    try:
        yield
    except BrokenPipeError:
        drop_standard_output()
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            drop_standard_output()


def drop_standard_output() -> None:
    """Send what is still written to standard output nowhere.

    Otherwise the interpreter fails once more when it flushes at its end.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
