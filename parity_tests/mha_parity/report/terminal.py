"""The report in a terminal: the verdict first, then why, then what was looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from mha_parity.report import telling, words
from mha_parity.verdict import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from mha_parity.verdict import CheckRow, Diagnosis, Failure, FeatureRow, Verdict

COLOUR = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.INCONCLUSIVE: "yellow"}
SIGN_COLOUR = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
SHOWN_FAILURES = 3
SHOWN_LINES = 8  # of what a target said before it broke
NAMES = 14  # the column of names, as wide as the longest of them
MARGIN = 1
GAP = 2


def show(verdict: Verdict, console: Console) -> None:
    """Print the report on one verdict."""
    page = _Page(console)
    console.print()
    console.print(_headline(verdict))
    for diagnosis in verdict.diagnosis:
        page.block(_diagnosis(diagnosis))
    full = [failure for failure in verdict.failures if failure.first_seen is not None]
    full = (full or list(verdict.failures))[:SHOWN_FAILURES]
    for failure in full:
        page.block(_failure(failure))
        page.replay(failure)
    page.block([_also(each) for each in verdict.failures if each not in full])
    page.block(page.apart(verdict) if verdict.failed else page.features(verdict))
    page.block([*page.limits(verdict), *page.facts(verdict)])
    console.print()


Pairs = list[tuple[str, Text]]


class _Page:
    """The width of one console, and what is laid out to fit it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._width = max(console.width - MARGIN - NAMES - GAP, 20)

    def block(self, pairs: Pairs) -> None:
        """Print names and what each says, after an empty line."""
        if not pairs:
            return
        table = Table.grid(padding=(0, GAP, 0, 0))
        table.add_column(style="dim", no_wrap=True, width=NAMES)
        table.add_column(overflow="fold")
        for name, text in pairs:
            table.add_row(name, text)
        self._console.print(Padding(table, (1, 0, 0, MARGIN)))

    def replay(self, failure: Failure) -> None:
        """Print the command as one line, however long, so that it can be copied."""
        name = " " * MARGIN + f"{'replay':<{NAMES + GAP}}"
        line = Text.assemble((name, "dim"), (failure.replay, "cyan"))
        self._console.print(line, soft_wrap=True)

    def flow(self, items: Iterable[Text], between: str = " · ") -> Text:
        """Join items into lines; no item is broken unless it is longer than a line."""
        lines: list[Text] = []
        for item in items:
            fits = lines and len(lines[-1]) + len(between) + len(item) <= self._width
            if fits:
                lines[-1] = Text.assemble(lines[-1], (between, "dim"), item)
            else:
                lines.append(item)
        return Text("\n").join(lines)

    def apart(self, verdict: Verdict) -> Pairs:
        """Say what all failing cases have, what none has, and where they are like all others."""
        pairs: Pairs = []
        for number, axis in enumerate(telling.shared(verdict)):
            name = "failing have" if number == 0 else "and"
            pairs.append((name, self.flow(_counted(row) for row in axis.failing)))
        spared = [row for axis in telling.absent(verdict) for row in axis.spared]
        if spared:
            pairs.append(("failing lack", self.flow(_counted(row) for row in spared)))
        alike = [Text(axis.title) for axis in telling.alike(verdict)]
        if alike:
            pairs.append(("no matter", self.flow(alike)))
        return [(name, text) for name, text in pairs if text]

    def features(self, verdict: Verdict) -> Pairs:
        """Return a line an axis: every value with its count of cases."""
        return [
            (axis.title, self.flow(_value(row) for row in axis.offered))
            for axis in telling.axes(verdict)
            if axis.varies
        ]

    def limits(self, verdict: Verdict) -> Pairs:
        """Return what was not looked at: for want of a case, or of an offer."""
        pairs: Pairs = []
        if verdict.failed and words.untested(verdict):
            pairs.append(("untested", self.flow(_value(row) for row in words.untested(verdict))))
        missing = [Text(each, style="dim") for each in words.not_offered(verdict)]
        if missing:
            pairs.append(("not offered", self.flow(missing)))
        return pairs

    def facts(self, verdict: Verdict) -> Pairs:
        """Return checks, accuracy, the worst error, power and notes."""
        pairs: Pairs = []
        if verdict.checks:
            pairs.append(("checks", self.flow(_check(row) for row in verdict.checks)))
        for number, each in enumerate(verdict.accuracy):
            line = Text.assemble(
                f"{each.dtype:<9}", words.accuracy(each), (f" {each.cases}", "dim")
            )
            pairs.append(("" if number else "accuracy", line))
        worst = verdict.worst
        if worst is not None and verdict.outcome is not Outcome.FAIL:
            pairs.append(("worst error", Text(f"{worst.check}: {words.error(worst)}")))
            pairs.append(("", Text(worst.case.id, style="dim")))
        if power := words.power(verdict):
            pairs.append(("power", Text(power)))
        return pairs + [("note", Text(note)) for note in verdict.notes]


def _headline(verdict: Verdict) -> Panel:
    colour = COLOUR[verdict.outcome]
    sentence = Text(verdict.sentence, style=f"bold {colour}")
    setting = (words.setting(verdict), "dim")
    return Panel(Text.assemble(sentence, "\n", setting), border_style=colour, expand=False)


def _diagnosis(diagnosis: Diagnosis) -> Pairs:
    """Say what the bug is called, or what was measured where no name fits."""
    name = f"  [{diagnosis.bug}]" if diagnosis.bug else ""
    first = Text.assemble((diagnosis.title, "bold"), (name, "dim"))
    said = (
        ("explains", words.explains(diagnosis)),
        ("evidence", diagnosis.evidence),
        ("remedy", diagnosis.remedy),
        ("same output", ", ".join(diagnosis.aliases)),
        ("seen in", diagnosis.source),
    )
    rest = [(name, Text(text)) for name, text in said if text]
    return [(words.certainty(diagnosis), first), *rest]


def _failure(failure: Failure) -> Pairs:
    judgement = failure.judgement
    pairs = [("fails", Text(f"{judgement.check}: {judgement.severity.value}", style="bold red"))]
    if judgement.detail:
        pairs.append(("because", Text(words.told(judgement.detail, SHOWN_LINES))))
    if judgement.where is not None:
        if str(judgement.where) not in judgement.detail:
            pairs.append(("where", Text(str(judgement.where))))
        pairs.append(("error", Text(words.error(judgement))))
    pairs.append(("case", _case(failure)))
    return pairs


def _also(failure: Failure) -> tuple[str, Text]:
    judgement = failure.judgement
    first = words.told(judgement.detail, SHOWN_LINES).partition("\n")[0]
    return ("also fails", Text.assemble(f"{judgement.check}: ", (first, "dim")))


def _case(failure: Failure) -> Text:
    if failure.first_seen is None or failure.first_seen == failure.case:
        return Text(failure.case.id)
    return Text.assemble(failure.case.id, (f"\nshrunk from {failure.first_seen.id}", "dim"))


def _counted(row: FeatureRow) -> Text:
    """Return a feature with how many of its cases fail."""
    status = "fail" if row.failed else "pass"
    count = f" {row.failed} of {row.cases}" if row.failed else f" {row.cases}"
    return _signed(status, words.words(row), count)


def _value(row: FeatureRow) -> Text:
    """Return a feature with its count of cases, or why it has none."""
    note = f" {row.note}" if row.status == "inconclusive" else f" {row.cases}"
    return _signed(row.status, words.words(row), note)


def _check(row: CheckRow) -> Text:
    if row.failed:
        return _signed("fail", row.name, f" {row.failed} of {row.cases}")
    return _signed("pass", row.name, f" {row.cases}")


def _signed(status: str, what: str, count: str) -> Text:
    colour = SIGN_COLOUR[status]
    return Text.assemble((f"{words.SIGN[status]} ", colour), what, (count, "dim"))
