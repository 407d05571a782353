"""The command line: its subcommands, their options and their help."""

from __future__ import annotations

import argparse
import re
import shlex
import textwrap
from typing import TYPE_CHECKING, Any, NoReturn

from mha_parity import __version__
from mha_parity.core.option_flags import add_options
from mha_parity.core.option_values import (
    dtypes,
    hint_of,
    nonnegative_integer,
    positive_integer,
    shard,
)
from mha_parity.core.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COULD_NOT_START = 2
TARGET = re.compile(r":|\.(py|ipynb|onnx)$")  # what no command's name has
EPILOG = (
    "exit status: 0 parity holds, 1 it does not, 2 could not start, 3 inconclusive; of several "
    "targets the worst: 1, 2, 3, 0. "
    "A target is package.module:name, path/to/file.py:name, path/to/notebook.ipynb:name, "
    "path/to/model.onnx, or 'exec:COMMAND' for a program of any language; "
    "it is code that you choose to run: the process it runs in protects the verdict, not you."
)

TOP = """Prove that an attention computes what torch.nn.MultiheadAttention computes.

examples:
  mha-parity check                                the NumPy attention shipped
  mha-parity check attention.py:attention         a function or class of a file
  mha-parity check notebook.ipynb:attention -v    of a notebook; every feature
  mha-parity identify attention.py:attention      measure what it computes
  mha-parity record attention.py:attention -o FILE   to judge without torch
  mha-parity merge shard*.json                    one verdict of check --shard
  mha-parity replay CASE attention.py:attention   one failing case in full
  mha-parity explain scale-dmodel                 what one bug does
  mha-parity list                                 what can be listed
"""
EXAMPLE = "  "  # begins a line of help that shows a command
EXAMPLES = """examples:
  mha-parity check attention.py:attention --html verdict.html
  mha-parity check package.module:Layer --features attn=causal --cases 2000
  mha-parity check torch.nn:MultiheadAttention --dtypes float32 --grad
  mha-parity check --exec "node attention.mjs"

"""
WEIGHTS = ("state-dict", "num-heads")
# The groups of `check --help`; what is in none stands under "options".
GROUPS = {
    "target": ("exec", "convention", "masks", "without", *WEIGHTS, "device", "path"),
    "cases": ("cases", "seed", "shard", "fail-fast", "max-failures", "dtypes", "features", "grad"),
    "judging": (
        "answers",
        "fully-masked",
        "max-times-torch",
        "strict-overflow",
        "strict-padding",
        "forbid",
    ),
    "process": ("timeout", "memory", "in-process", "jobs", "scheduler"),
    "reports": ("verbose", "json", "junit", "html", "markdown", "sarif", "github"),
}

# What `identify` shares with `check`: its experiments choose their cases themselves.
IDENTIFY_OPTIONS = (
    "convention", "masks", "without", "device", "dtypes", "features", "timeout", "memory",
    "in-process", "forbid", "grad",
)  # fmt: skip
# What `replay` shares with it: a case is given, with its dtype and its features.
REPLAY_OPTIONS = (
    "convention", "masks", "without", "device", "timeout", "memory", "in-process", "forbid", "grad",
    "fully-masked", "max-times-torch", "answers", "strict-overflow", "strict-padding", *WEIGHTS,
)  # fmt: skip
# What `record` shares with it: what decides which cases are asked.
RECORD_OPTIONS = (*IDENTIFY_OPTIONS, *WEIGHTS, "cases", "seed")


class HelpFormatter(argparse.HelpFormatter):
    """Wrap prose to the terminal, break no option and no value at a hyphen, and no example."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        width -= len(indent)
        lines: list[str] = []
        for line in text.splitlines():
            if line.startswith(EXAMPLE):  # where it is too wide, what it does follows below it
                parts = [line] if len(line) <= width else re.split(r"(?<=\S)   *", line)
                lines += [parts[0], *(f"{2 * EXAMPLE}{part}" for part in parts[1:])]
            else:
                lines += self._split_lines(line, width) or [""]
        return "\n".join(f"{indent}{line}" for line in lines)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence with the remedy."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**{"formatter_class": HelpFormatter} | keywords)

    def parse_known_args(  # type: ignore[override]  # only what argparse itself passes
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse; a command names the option that is nearest to one that it does not know."""
        found, unknown = super().parse_known_args(args, namespace)
        word = next((each for each in unknown if each.startswith("-")), "").partition("=")[0]
        if word and " " in self.prog:
            hint = hint_of(word, self._option_string_actions)
            said = f"got {word}, which is no option of this command"
            self.error(f"{said}; {hint}" if hint else said)
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line and leave with status 2."""
        if choice := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message):
            known = re.findall(r"[\w.-]+", choice[2])
            hint = hint_of(choice[1], known, f"known are {', '.join(known)}")
            if "check" in known and TARGET.search(choice[1]):
                hint = f"did you mean {self.prog} check {shlex.quote(choice[1])}?"
            message = f"got {choice[1]!r}; {hint}"
        see = " See" if message.endswith("?") else "; see"
        self.exit(COULD_NOT_START, f"{self.prog}: {message}{see} {self.prog} --help.\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = Parser(
        prog="mha-parity",
        description=TOP,
        epilog=EPILOG,
    )
    top.add_argument("--version", action="version", version=f"mha-parity {__version__}")
    commands = top.add_subparsers(title="commands", dest="command", metavar="COMMAND")

    _check(commands)
    _identify(commands)
    _record(commands)
    _merge(commands)
    _replay(commands)
    _adapt(commands)
    _bench(commands)
    _mutants(commands)
    _audit(commands)
    explain = commands.add_parser(
        "explain", help="describe one bug: what it computes, where it shows, the remedy"
    )
    explain.add_argument("bug", metavar="BUG", help="its id in the catalogue: see list bugs")
    listing = commands.add_parser("list", help="list conventions, features, bugs or variants")
    listing.add_argument(
        "what",
        nargs="?",
        metavar="LIST",
        choices=("conventions", "features", "bugs", "variants"),
        help="conventions, features, bugs or variants (default: how many each)",
    )
    return top


def _check(commands: Any) -> None:
    check = commands.add_parser(
        "check",
        help="judge a target over many cases",
        description="Judge a target over many cases; write the verdict for people and machines.",
        epilog=EXAMPLES + EPILOG,
    )
    check.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="whose attention (default: mha_numpy's own, on each of its engines)",
    )
    add = _grouped(check)
    add(
        "--exec",
        action="append",
        default=[],
        metavar="COMMAND",
        help="judge a program of any language, asked over its standard input and output",
    )
    add_options(add)
    add(
        "--shard",
        type=shard,
        metavar="K/N",
        help="judge every N-th case from the K-th on, and write --json FILE for `mha-parity merge`",
    )
    add(
        "--scheduler",
        metavar="ADDRESS",
        help="run the cases on a Dask cluster, whose workers find the target by the same text",
    )
    _reports(add)
    _of_torch(add)


def _merge(commands: Any) -> None:
    merge = commands.add_parser(
        "merge",
        help="make one verdict of the shards of a run",
        description="Make one verdict of the files that check --shard K/N --json FILE wrote, that "
        "of the run in one piece. The target is opened again: failing cases are asked once more.",
        epilog=EPILOG,
    )
    merge.add_argument("files", nargs="+", metavar="FILE", help="the files of all N shards")
    _reports(merge.add_argument)


def _replay(commands: Any) -> None:
    replay = commands.add_parser("replay", help="show one case in full", epilog=EPILOG)
    replay.add_argument("case", metavar="CASE", help="the id that a report printed")
    replay.add_argument(
        "targets", nargs="?", metavar="TARGET", help="whose attention (default: mha_numpy's own)"
    )
    add_options(_only(replay, REPLAY_OPTIONS))
    _of_torch(replay.add_argument)
    replay.add_argument("--pdb", action="store_true", help="stop inside the target")


def _adapt(commands: Any) -> None:
    adapt = commands.add_parser(
        "adapt",
        help="print an adapter for a target, to be completed by hand",
        description="Print the source of an adapter for a target, filled in with what was "
        "recognised: constructor arguments, which weight goes where, what masks mean. The target "
        "is loaded and called in this process.",
    )
    adapt.add_argument("target", metavar="TARGET", help="whose attention")


def _identify(commands: Any) -> None:
    identify = commands.add_parser(
        "identify",
        help="measure what a target computes, right or wrong",
        description="Measure what a target computes: scale, transfer curve, influence, sizes, "
        "digits, masks, state; one line for each experiment.",
        epilog="exit status: 0 no experiment departs from torch, 1 one does, 2 could not start.",
    )
    identify.add_argument(
        "targets", nargs="*", metavar="TARGET", help="whose attention (default: mha_numpy's own)"
    )
    add_options(_only(identify, IDENTIFY_OPTIONS))
    identify.add_argument("--json", metavar="FILE", help="write the card for scripts")
    identify.add_argument("--html", metavar="FILE", help="write one self-contained page for people")


def _only(parser: argparse.ArgumentParser, names: tuple[str, ...]) -> Callable[..., object]:
    """Return a function that adds the options of these names; others keep their defaults."""

    def add(flag: str, **keywords: Any) -> object:
        name = flag.removeprefix("--")
        if name in names:
            return parser.add_argument(flag, **keywords)
        off = False if keywords.get("action") == "store_true" else None
        parser.set_defaults(**{name.replace("-", "_"): keywords.get("default", off)})
        return None

    return add


def _bench(commands: Any) -> None:
    from mha_parity.bench import options

    bench = commands.add_parser(
        "bench", help="time attentions next to torch's own", epilog=options.EPILOG
    )
    options.add_bench_options(bench)


def _record(commands: Any) -> None:
    record = commands.add_parser(
        "record",
        help="write answers of torch to a file, for check --answers",
        description="Write the cases that check would ask a target, with what torch computes of "
        "them, to a file by which check --answers judges without torch.",
        epilog="exit status: 0 the file is written, 2 could not start.",
    )
    record.add_argument(
        "targets", nargs="*", metavar="TARGET", help="for whom (default: mha_numpy's own)"
    )
    record.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="the file (.safetensors)"
    )
    record.add_argument(
        "--compact",
        action="store_true",
        help="write less: inputs are drawn again, outputs deflated; for mha-parity alone",
    )
    add_options(_only(record, RECORD_OPTIONS))


def _mutants(commands: Any) -> None:
    mutants = commands.add_parser(
        "mutants",
        help="run the suite on every wrong attention of the catalogue",
        epilog="exit status: 0 every bug is seen and nothing right is taken for wrong, else 1.",
    )
    mutants.add_argument(
        "--seed", type=nonnegative_integer, default=0, metavar="N", help="which cases"
    )
    mutants.add_argument(
        "--seeds",
        type=positive_integer,
        default=1,
        metavar="N",
        help="run with N seeds from there on",
    )
    mutants.add_argument(
        "--cases",
        type=positive_integer,
        default=Options().cases,
        metavar="N",
        help="how many a bug at most",
    )
    mutants.add_argument(
        "--dtype", type=dtypes, default=("float64", "float32"), metavar="A,B", help="which dtypes"
    )
    mutants.add_argument("--markdown", metavar="FILE", help="write the matrix as Markdown")


def _audit(commands: Any) -> None:
    audit = commands.add_parser(
        "audit",
        help="tell where the paths of torch's own layer disagree",
        description="Run every known case in which torch.nn.MultiheadAttention answers one call "
        "in two ways, by path, on the torch that is installed.",
        epilog="exit status: 0 no case shows a difference, 1 one does, 2 could not start, 3 no "
        "difference, and a case cannot run on this torch.",
    )
    audit.add_argument(
        "paths",
        nargs="?",
        choices=("fast", "slow", "sdpa", "all"),
        default="all",
        help="cases in which such a path has a part (default: all)",
    )
    audit.add_argument("--json", metavar="FILE", help="write what was found for scripts")
    audit.add_argument("--markdown", metavar="FILE", help="write what was found as Markdown")


def _grouped(check: argparse.ArgumentParser) -> Callable[..., object]:
    """Return a function that adds an option to its group of the help."""
    groups = {title: check.add_argument_group(title) for title in GROUPS}
    titles = {name: title for title, names in GROUPS.items() for name in names}

    def add(*flags: str, **keywords: Any) -> object:
        title = titles.get(flags[-1].removeprefix("--"))
        return (groups[title] if title else check).add_argument(*flags, **keywords)

    return add


def _of_torch(add: Callable[..., object]) -> None:
    add(
        "--path",
        metavar="NAME",
        help="with torch.nn:MultiheadAttention as the target: judge it along one path, weights, "
        "no-weights, eval, sdpa-math or sdpa-flash; mha-parity audit compares paths",
    )


def _reports(add: Callable[..., object]) -> None:
    add("-v", "--verbose", action="store_true", help="list every feature and check")
    add("--json", metavar="FILE", help="write the verdict for CI and scripts")
    add("--junit", metavar="FILE", help="write the verdict as JUnit XML")
    add("--html", metavar="FILE", help="write one self-contained page for people")
    add("--markdown", metavar="FILE", help="write the verdict as Markdown")
    add("--sarif", metavar="FILE", help="write what fails as SARIF 2.1.0, for code scanning")
    add(
        "--github",
        action="store_true",
        help="in GitHub Actions: annotate the target's line, add the verdict to the step summary",
    )
