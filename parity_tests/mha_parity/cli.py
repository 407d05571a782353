"""Subcommands: from parsed arguments to an exit status."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mha_parity.core.environment import TORCH, require_extra
from mha_parity.core.option_flags import from_namespace
from mha_parity.core.options import DEFAULT_TARGET
from mha_parity.report.pipe_console import PipeConsole
from mha_parity.targets.loading.default_target import with_only_name
from mha_parity.worker.open_target import opened

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence


def name_targets(asked: argparse.Namespace) -> None:
    """Give each file that defines one public name alone, and is named without it, that name."""
    for option in ("target", "targets"):
        given = getattr(asked, option, None)
        if isinstance(given, str):
            setattr(asked, option, with_only_name(given))
        elif given:
            setattr(asked, option, [with_only_name(each) for each in given])


def _check_path(path: str | None, targets: Sequence[str]) -> None:
    """Refuse a path through torch's own layer for any other target."""
    if path is not None:
        from mha_parity.selftest import torch_audit

        torch_audit.check_path(path, targets)


def check(asked: argparse.Namespace) -> int:
    """Judge every target and show its verdict; the reports named are written as well."""
    from mha_parity.commands import check as checking
    from mha_parity.commands import shards

    _check_path(asked.path, asked.targets)
    run = shards.check_shard if asked.shard else checking.check
    return run(asked, PipeConsole())


def merge(asked: argparse.Namespace) -> int:
    """Show the verdict over the shards of a run; the reports named are written as well."""
    from mha_parity.commands import shards

    return shards.merge(asked, PipeConsole())


def identify(asked: argparse.Namespace) -> int:
    """Print the identity card of every target; the files named are written as well."""
    from mha_parity.commands import identify as identifying
    from mha_parity.report import files, identity_card, identity_page

    options = from_namespace(asked)
    files.require_writable_files([asked.json, asked.html])
    targets = asked.targets or [DEFAULT_TARGET]
    cards = [identifying.identify_target(target, options) for target in targets]
    texts = {
        "JSON": (asked.json, identity_card.identities_as_json),
        "page": (asked.html, identity_page.render_identity_page),
    }
    named = {title: each for title, each in texts.items() if each[0]}
    written = [files.write_text(title, n, make(cards)) for title, (n, make) in named.items()]
    console = PipeConsole()
    for card in cards:
        identity_card.print_identity_card(card, console)
    for line in written:
        console.print(f" {line}", soft_wrap=True, markup=False, highlight=False)
    return int(not all(card.as_torch for card in cards))


def record(asked: argparse.Namespace) -> int:
    """Write the file by which ``check --answers`` judges."""
    from mha_parity.commands import record as recording

    require_extra(TORCH, TORCH)
    options = from_namespace(asked)
    return recording.record(
        asked.targets, asked.output, options, PipeConsole(), compact=asked.compact
    )


def replay(asked: argparse.Namespace) -> int:
    """Show one case in full: inputs, the target's answer, torch's, and the difference."""
    from mha_parity.commands import replay as replaying

    options = from_namespace(asked)
    target = asked.targets or DEFAULT_TARGET
    _check_path(asked.path, [target])
    options = replaying.in_process(options) if asked.pdb else options
    candidate = opened(target, options)
    return replaying.replay(asked.case, candidate, target, options, PipeConsole(), pdb=asked.pdb)


def adapt(asked: argparse.Namespace) -> int:
    """Print the source of an adapter."""
    from mha_parity.commands import adapt as adapting

    sys.stdout.write(adapting.source_of_adapter(asked.target))
    return 0


def bench(asked: argparse.Namespace) -> int:
    """Time attentions next to torch's own, one after the other, and each only if it is right."""
    from mha_parity.bench import command

    require_extra(TORCH, TORCH)
    if asked.plot:
        require_extra("matplotlib", "plot")
    return command.bench(asked, PipeConsole())


def mutants(asked: argparse.Namespace) -> int:
    """Run the suite on the catalogue and show the kill matrix."""
    from mha_parity.selftest import mutation_run as matrix

    require_extra(TORCH, TORCH)
    return matrix.main(asked)


def audit(asked: argparse.Namespace) -> int:
    """Compare the paths of torch's own layer; the reports named are written as well."""
    from mha_parity.selftest import torch_audit

    return torch_audit.main(asked, PipeConsole())


def explain(asked: argparse.Namespace) -> int:
    """Describe one bug."""
    from mha_parity.commands import explain

    explain.print_bug(asked.bug, PipeConsole())
    return 0


def listing(asked: argparse.Namespace) -> int:
    """List conventions, features, bugs or right variants."""
    from mha_parity.commands import listing as listings

    listings.print_listing(asked.what, PipeConsole())
    return 0


COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "check": check,
    "merge": merge,
    "identify": identify,
    "record": record,
    "replay": replay,
    "adapt": adapt,
    "bench": bench,
    "mutants": mutants,
    "audit": audit,
    "explain": explain,
    "list": listing,
}
