"""What each subcommand does: from parsed arguments to an exit status."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console

from mha_parity.core.environment import TORCH, require
from mha_parity.core.options import DEFAULT_TARGET, FORCED_ENGINES, Options, from_namespace
from mha_parity.core.verdict import Outcome
from mha_parity.targets.command import EXEC
from mha_parity.worker.open_target import opened

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from mha_parity.core.verdict import Verdict

REFUSED = 2  # the exit status of a target that cannot be judged
# The worst of several targets decides over all of them, best first.
OUTCOMES_BEST_FIRST = (Outcome.PASS.exit_status, Outcome.INCONCLUSIVE.exit_status, REFUSED,
         Outcome.FAIL.exit_status)  # fmt: skip
# Fewer cases leave switches of the layer untried.
LEAST_CASES = 40


def check(asked: argparse.Namespace) -> int:
    """Judge every target and show its verdict; the reports named are written as well."""
    from mha_parity.report import encoding, files, github, terminal
    from mha_parity.run.by_answers import need_torch_or_answers
    from mha_parity.selftest import torch_audit

    options = from_namespace(asked)
    console = Console()
    if torch_audit.is_requested(asked):
        return torch_audit.main(asked, console)
    need_torch_or_answers(options)
    names = {kind: getattr(asked, kind) for kind in files.MAKE}
    files.writable(names.values())
    if asked.html:
        require("jinja2", "report")
        require("matplotlib", "report")
    targets = asked.targets + [f"{EXEC}{command}" for command in asked.exec]
    runs = [(target, options) for target in targets] or default_runs(options)
    verdicts, refused = _all_judged(runs)
    # Before anything is printed: a pipe that closes early loses no file.
    written = [f" {line}" for line in files.write(verdicts, names if verdicts else {})]
    if asked.github:
        files.append_summary(verdicts)
        written += github.workflow_commands(verdicts)
    with encoding.closed_pipe_ignored():
        for verdict in verdicts:
            terminal.show(verdict, console, verbose=asked.verbose)
        for line in written:
            console.print(line, soft_wrap=True, markup=False, highlight=False)
        for sentence in refused:
            sys.stderr.write(f"mha-parity: refused: {sentence}\n")
    statuses = [v.outcome.exit_status for v in verdicts] + [REFUSED] * bool(refused)
    return max(statuses, key=OUTCOMES_BEST_FIRST.index)


def _all_judged(runs: list[tuple[str, Options]]) -> tuple[list[Verdict], list[str]]:
    """Return the verdicts, and why targets are refused; one refused target ends no others.

    Raises
    ------
    ValueError
        The only target is refused.

    """
    verdicts, refused = [], []
    for target, options in runs:
        try:
            verdicts.append(judged(target, options))
        except ValueError as mistake:
            if len(runs) == 1:
                raise
            sentence = str(mistake)
            refused.append(sentence if target in sentence else f"{target}: {sentence}")
    return verdicts, refused


def default_runs(options: Options) -> list[tuple[str, Options]]:
    """Return the own layer with three fifths of the cases, and one fifth for each forced engine.

    Each has LEAST_CASES at least, or all where there are fewer.
    """
    least = min(options.cases, LEAST_CASES)
    share = max(options.cases // 5, least)
    rest = max(options.cases - share * len(FORCED_ENGINES), least)
    forced = [(target, replace(options, cases=share)) for target in FORCED_ENGINES]
    return [(DEFAULT_TARGET, replace(options, cases=rest)), *forced]


def judged(target: str, options: Options) -> Verdict:
    """Return the verdict on one target; progress goes to stderr, so that a pipe has the report."""
    from mha_parity.report.progress import error_console, progress
    from mha_parity.run.check import check as run

    with progress(error_console(), target) as tick, opened(target, options) as candidate:
        return run(candidate, options, target=target, progress=tick)


def identify(asked: argparse.Namespace) -> int:
    """Print the identity card of every target; the files named are written as well."""
    from mha_parity.commands import identify as identifying
    from mha_parity.report import encoding, files, identity_card, identity_page

    options = from_namespace(asked)
    files.writable([asked.json, asked.html])
    targets = asked.targets or [DEFAULT_TARGET]
    cards = [identifying.identify_target(target, options) for target in targets]
    texts = {"JSON": (asked.json, identity_card.as_json), "page": (asked.html, identity_page.page)}
    named = {title: each for title, each in texts.items() if each[0]}
    written = [files.write_text(title, n, make(cards)) for title, (n, make) in named.items()]
    console = Console()
    with encoding.closed_pipe_ignored():
        for card in cards:
            identity_card.show(card, console)
        for line in written:
            console.print(f" {line}", soft_wrap=True, markup=False, highlight=False)
    return int(not all(card.as_torch for card in cards))


def record(asked: argparse.Namespace) -> int:
    """Write the file by which ``check --answers`` judges."""
    from mha_parity.commands import record as recording

    require(TORCH, TORCH)
    return recording.record(asked.targets, asked.output, from_namespace(asked), Console())


def replay(asked: argparse.Namespace) -> int:
    """Show one case in full: inputs, the target's answer, torch's, and the difference."""
    from mha_parity.commands import replay as replaying

    options = from_namespace(asked)
    target = asked.targets or DEFAULT_TARGET
    options = replaying.here(options) if asked.pdb else options
    candidate = opened(target, options)
    return replaying.replay(asked.case, candidate, target, options, Console(), pdb=asked.pdb)


def adapt(asked: argparse.Namespace) -> int:
    """Print the source of an adapter."""
    from mha_parity.commands import adapt as adapting

    sys.stdout.write(adapting.source(asked.target))
    return 0


def bench(asked: argparse.Namespace) -> int:
    """Time attentions next to torch's own, one after the other, and each only if it is right."""
    from mha_parity.bench import command

    require(TORCH, TORCH)
    if asked.plot:
        require("matplotlib", "plot")
    return command.bench(asked, Console())


def mutants(asked: argparse.Namespace) -> int:
    """Run the suite on the catalogue and show the kill matrix."""
    from mha_parity.selftest import mutation_run as matrix

    require(TORCH, TORCH)
    return matrix.main(asked)


def explain(asked: argparse.Namespace) -> int:
    """Tell the story of one bug."""
    from mha_parity.commands import explain as story

    story.show(asked.bug, Console())
    return 0


def listing(asked: argparse.Namespace) -> int:
    """List conventions, features or bugs."""
    from mha_parity.commands import listing as listings

    listings.show(asked.what, Console())
    return 0


COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "check": check,
    "identify": identify,
    "record": record,
    "replay": replay,
    "adapt": adapt,
    "bench": bench,
    "mutants": mutants,
    "explain": explain,
    "list": listing,
}
