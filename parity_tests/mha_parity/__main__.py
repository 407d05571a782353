"""``mha-parity``: the command. ``main`` returns the exit status."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from mha_parity import __version__
from mha_parity.options import Options, add_options, count, dtypes, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

COULD_NOT_START = 2
INTERRUPTED = 130
EPILOG = (
    "exit status: 0 parity holds, 1 it does not, 2 could not start, 3 inconclusive. "
    "A target is package.module:name, path/to/file.py:name or path/to/notebook.ipynb:name; "
    "it is code that you choose to run: the process it runs in protects the verdict, not you."
)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence with the remedy."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line and leave with status 2."""
        see = " See" if message.endswith("?") else "; see"
        self.exit(COULD_NOT_START, f"{self.prog}: {message}{see} {self.prog} --help.\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = Parser(
        prog="mha-parity", description="Prove an attention against torch's.", epilog=EPILOG
    )
    top.add_argument("--version", action="version", version=f"mha-parity {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    check = commands.add_parser("check", help="judge a target over many cases", epilog=EPILOG)
    check.add_argument(
        "targets", nargs="*", metavar="TARGET", help="whose attention (default: mha_numpy's own)"
    )
    add_options(check.add_argument)
    _reports(check)
    _of_torch(check)

    replay = commands.add_parser("replay", help="show one case in full", epilog=EPILOG)
    replay.add_argument("case", metavar="CASE", help="the id that a report printed")
    replay.add_argument(
        "targets", nargs="?", metavar="TARGET", help="whose attention (default: mha_numpy's own)"
    )
    add_options(replay.add_argument)
    replay.add_argument("--pdb", action="store_true", help="stop inside the target")

    _bench(commands)
    _mutants(commands)

    explain = commands.add_parser("explain", help="tell the story of one bug")
    explain.add_argument("bug", metavar="BUG", help="its id in the catalogue: see list bugs")
    listing = commands.add_parser("list", help="list conventions, features or bugs")
    listing.add_argument("what", choices=("conventions", "features", "bugs"))
    return top


def _bench(commands: Any) -> None:
    from mha_parity.bench import options

    bench = commands.add_parser(
        "bench", help="time attentions beside torch's own", epilog=options.EPILOG
    )
    options.add_bench_options(bench)


def _mutants(commands: Any) -> None:
    mutants = commands.add_parser(
        "mutants",
        help="run the suite on every wrong attention of the catalogue",
        epilog="exit status: 0 every bug is seen and nothing right is taken for wrong, else 1.",
    )
    mutants.add_argument("--seed", type=count, default=0, metavar="N", help="which cases")
    mutants.add_argument(
        "--seeds", type=whole, default=1, metavar="N", help="run with so many seeds from there on"
    )
    mutants.add_argument(
        "--cases", type=whole, default=Options().cases, metavar="N", help="how many a bug at most"
    )
    mutants.add_argument(
        "--dtype", type=dtypes, default=("float64", "float32"), metavar="A,B", help="which dtypes"
    )
    mutants.add_argument("--markdown", metavar="FILE", help="write the matrix as Markdown")


def _of_torch(check: argparse.ArgumentParser) -> None:
    check.add_argument(
        "--path",
        metavar="NAME",
        help="with torch.nn:MultiheadAttention as the target: fast, slow, sdpa or all tells where "
        "torch does not agree with itself (exit status 0 whatever is found, 3 if a case cannot "
        "run); weights, no-weights, eval, sdpa-math or sdpa-flash judges parity along one path",
    )
    check.add_argument(
        "--markdown", metavar="FILE", help="with --path: write what was found as a table"
    )


def _reports(check: argparse.ArgumentParser) -> None:
    check.add_argument("--json", metavar="FILE", help="write the verdict for CI and scripts")
    check.add_argument("--junit", metavar="FILE", help="write the verdict as JUnit XML")
    check.add_argument("--html", metavar="FILE", help="write one self-contained page for people")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status; a user's mistake is one sentence."""
    asked = parser().parse_args(arguments)
    from mha_parity import commands
    from mha_parity.report import encoding

    encoding.standard()
    try:
        return commands.RUN[asked.command](asked)
    except ValueError as mistake:
        sys.stderr.write(f"mha-parity: {mistake}\n")
        return COULD_NOT_START
    except KeyboardInterrupt:
        sys.stderr.write("mha-parity: interrupted\n")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
