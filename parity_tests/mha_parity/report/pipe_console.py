"""The console of the commands: what is printed to a pipe whose reader has ended is dropped."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from mha_parity.report import encoding


class PipeConsole(Console):
    """Print until the reader of standard output is gone; the command goes on to its own status.

    rich leaves with SystemExit(1) there, its older releases with the BrokenPipeError itself, and
    1 says that parity does not hold.
    """

    def print(self, *objects: Any, **keywords: Any) -> None:
        """Print, or do nothing once the pipe is closed."""
        if self.quiet:
            return
        try:
            super().print(*objects, **keywords)
        except BrokenPipeError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Print nothing more."""
        self.quiet = True
        encoding.drop_standard_output()
