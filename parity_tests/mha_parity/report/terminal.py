"""The report in a terminal: the verdict first, then why, then what was looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from mha_parity.features import AXES, label
from mha_parity.verdict import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from mha_parity.judgement import Judgement
    from mha_parity.verdict import CheckRow, Diagnosis, Failure, FeatureRow, Verdict

COLOUR = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.INCONCLUSIVE: "yellow"}
SIGN = {"pass": ("✓", "green"), "fail": ("✗", "red"), "inconclusive": ("?", "yellow")}
SHOWN_FAILURES = 4


def show(verdict: Verdict, console: Console) -> None:
    """Print the report on one verdict."""
    console.print()
    console.print(_headline(verdict))
    for diagnosis in verdict.diagnosis:
        console.print(_diagnosis(diagnosis))
    for failure in verdict.failures[:SHOWN_FAILURES]:
        console.print(_failure(failure))
    more = len(verdict.failures) - SHOWN_FAILURES
    if more > 0:
        console.print(f"  and {more} more kinds of failure; --json lists them all\n")
    console.print(_features(verdict.features))
    console.print(_facts(verdict))


def _headline(verdict: Verdict) -> Panel:
    colour = COLOUR[verdict.outcome]
    sentence = Text(verdict.sentence, style=f"bold {colour}")
    environment = verdict.environment
    parts = [f"{name} {environment[name]}" for name in ("torch", "numpy") if name in environment]
    parts += [f"called as {verdict.convention}", f"{verdict.seconds:.1f} s"]
    return Panel(
        Text.assemble(sentence, "\n", (" · ".join(parts), "dim")), border_style=colour, expand=False
    )


def _diagnosis(diagnosis: Diagnosis) -> Padding:
    """Say what the bug is called, or what was measured where no name fits."""
    table = _pairs()
    if diagnosis.bug:
        surely = "the bug" if diagnosis.confident else "perhaps"
        table.add_row(surely, Text(f"{diagnosis.title}  [{diagnosis.bug}]", style="bold"))
        table.add_row("explains", f"{diagnosis.explains:.0%} of the failing cases")
    else:
        table.add_row("measured", Text(diagnosis.title, style="bold"))
    for name, text in (("evidence", diagnosis.evidence), ("remedy", diagnosis.remedy)):
        if text:
            table.add_row(name, text)
    if diagnosis.aliases:
        table.add_row("or", ", ".join(diagnosis.aliases) + " (the same output)")
    if diagnosis.source:
        table.add_row("seen in", diagnosis.source)
    return Padding(table, (1, 0, 0, 1))


def _failure(failure: Failure) -> Padding:
    judgement = failure.judgement
    table = _pairs()
    table.add_row("fails", Text(f"{judgement.check}: {judgement.severity.value}", style="bold red"))
    if judgement.detail:
        table.add_row("because", Text(judgement.detail))
    if judgement.where is not None:
        table.add_row("where", str(judgement.where))
        table.add_row("error", _error(judgement))
    table.add_row("case", _case(failure))
    table.add_row("replay", Text(failure.replay, style="cyan"))
    return Padding(table, (1, 0, 0, 1))


def _error(judgement: Judgement) -> str:
    error, allowed = judgement.error, judgement.allowed
    times = f" ({error / allowed:.3g} times)" if allowed > 0 else ""
    return f"{error:.3g}, allowed {allowed:.3g}{times}"


def _case(failure: Failure) -> Text:
    if failure.first_seen is None or failure.first_seen == failure.case:
        return Text(failure.case.id)
    return Text.assemble(failure.case.id, (f"\nshrunk from {failure.first_seen.id}", "dim"))


def _features(rows: Iterable[FeatureRow]) -> Padding:
    """Return a line an axis: every value with its sign and its count of cases."""
    by_axis: dict[str, list[FeatureRow]] = {}
    for row in rows:
        by_axis.setdefault(row.axis, []).append(row)
    table = _pairs()
    for axis, values in by_axis.items():
        offered = [row for row in values if row.status != "not offered"]
        if len(AXES[axis]) > 1 and offered:
            table.add_row(axis.replace("_", " "), Text(" · ").join(_value(r) for r in offered))
    missing = [
        label(row.axis, row.value)
        for values in by_axis.values()
        for row in values
        if row.status == "not offered"
    ]
    if missing:
        table.add_row("not offered", Text(", ".join(missing), style="dim"))
    return Padding(table, (1, 0, 0, 1))


def _value(row: FeatureRow) -> Text:
    sign, colour = SIGN[row.status]
    words = label(row.axis, row.value).replace(" ", "\N{NO-BREAK SPACE}")
    count = row.note.removesuffix(" fail") if row.status == "fail" else str(row.cases)
    return Text.assemble((f"{sign}\N{NO-BREAK SPACE}", colour), words, (f" {count}", "dim"))


def _facts(verdict: Verdict) -> Padding:
    table = _pairs()
    table.add_row("checks", Text(" · ").join(_check(row) for row in verdict.checks))
    for each in verdict.accuracy:
        table.add_row(
            f"{each.dtype}",
            f"error {each.median_times_torch:.2f} times torch's own in the median, "
            f"{each.worst_times_torch:.2f} at worst, over {each.cases} cases",
        )
    if verdict.worst is not None and verdict.outcome is not Outcome.FAIL:
        worst = verdict.worst
        table.add_row("worst error", f"{_error(worst)} in {worst.check}: {worst.where}")
        table.add_row("", Text(worst.case.id, style="dim"))
    if verdict.power:
        least = min(verdict.power, key=lambda name: verdict.power[name])
        table.add_row(
            "power",
            f"each of {len(verdict.power)} gross errors would have shown in "
            f"{verdict.power[least]} cases or more ({least} in fewest)",
        )
    for note in verdict.notes:
        table.add_row("note", note)
    return Padding(table, (1, 0, 1, 1))


def _check(row: CheckRow) -> Text:
    sign, colour = SIGN["fail" if row.failed else "pass"]
    count = f"{row.failed} of {row.cases}" if row.failed else str(row.cases)
    words = row.name.replace(" ", "\N{NO-BREAK SPACE}")
    return Text.assemble((f"{sign}\N{NO-BREAK SPACE}", colour), words, (f" {count}", "dim"))


def _pairs() -> Table:
    """Return a grid of a word and what it says."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table
