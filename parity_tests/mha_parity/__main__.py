"""``mha-parity``: the command. ``main`` returns the exit status."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from mha_parity.command_line import COULD_NOT_START, parser
from mha_parity.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status; a user's mistake is one sentence."""
    from mha_parity.report import encoding

    encoding.open_standard_streams()
    status = 0
    with encoding.closed_pipe_ignored():
        status = _run(arguments)
    return status  # noqa: RET504  (the block may end before it has one)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        top = parser()
        asked = top.parse_args(arguments)
        if asked.command is None:
            top.print_help()
            return 0
        from mha_parity import cli
        from mha_parity.report import encoding

        encoding.prepare_standard_streams()
        cli.name_targets(asked)
        return cli.COMMANDS[asked.command](asked)
    except UsageError as mistake:
        sys.stderr.write(f"mha-parity: {mistake}\n")
        if getattr(asked, "github", False):
            from mha_parity.report import github

            targets = getattr(asked, "targets", ())  # `merge` has none
            sys.stdout.write(f"{github.could_not_judge(str(mistake), targets)}\n")
        return COULD_NOT_START
    except KeyboardInterrupt as stop:
        place = f" while {stop}" if str(stop) else ""
        sys.stderr.write(f"mha-parity: interrupted{place}\n")
        return INTERRUPTED


def entry() -> int:
    """Run the command; an error of its own ends with status 2, since 1 says that parity fails."""
    try:
        return main()
    except Exception:  # noqa: BLE001  (whatever it is, it is no verdict)
        traceback.print_exc()
        sys.stderr.write(
            "mha-parity: the command itself failed, and nothing was judged; please report the "
            "lines above, with the command and the target.\n"
        )
        return COULD_NOT_START


if __name__ == "__main__":
    sys.exit(entry())
