"""The report in a terminal: the verdict first, then why, then what was looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.panel import Panel
from rich.text import Text

from mha_parity.report import precision, telling, words
from mha_parity.report.layout import Layout, Pairs
from mha_parity.verdict import Outcome

if TYPE_CHECKING:
    from rich.console import Console

    from mha_parity.verdict import Accuracy, CheckRow, Diagnosis, Failure, FeatureRow, Verdict

SHOWN_LINES = 8  # of what a target said before it broke


def show(verdict: Verdict, console: Console) -> None:
    """Print the report; a long one ends with the verdict once more, where the eye is."""
    page = Layout(console.width)
    for diagnosis in verdict.diagnosis:
        page.block(_diagnosis(diagnosis))
    for failure in words.in_full(verdict):
        page.block(_failure(failure, page))
        page.command("replay", failure.replay)
    page.block([_also(each) for each in words.also(verdict)])
    page.block(_apart(verdict, page) if verdict.failed else _features(verdict, page))
    page.block([*_limits(verdict, page), *_facts(verdict, page)])
    console.print()
    console.print(_headline(verdict))
    for line in page.lines:
        console.print(line, soft_wrap=True)
    if len(page.lines) > console.height:
        console.print()
        for line in page.wrapped(_closing(verdict)):
            console.print(line, soft_wrap=True)
    console.print()


def _headline(verdict: Verdict) -> Panel:
    colour = words.COLOUR[verdict.outcome.value]
    sentence = Text(verdict.sentence, style=f"bold {colour}")
    setting = (words.setting(verdict), "dim")
    return Panel(Text.assemble(sentence, "\n", setting), border_style=colour, expand=False)


def _closing(verdict: Verdict) -> Text:
    """Return the verdict again, and the name of the bug where there is one."""
    sign, colour = words.SIGN[verdict.outcome.value], words.COLOUR[verdict.outcome.value]
    said = Text.assemble((f" {sign} {verdict.sentence}", f"bold {colour}"))
    if verdict.diagnosis:
        first = verdict.diagnosis[0]
        said.append(f"\n   {words.certainty(first)}: {first.title}")
    return said


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


def _failure(failure: Failure, page: Layout) -> Pairs:
    judgement = failure.judgement
    pairs = [("fails", Text(f"{judgement.check}: {judgement.severity.value}", style="bold red"))]
    if judgement.detail:
        pairs.append(("because", Text(words.told(judgement.detail, SHOWN_LINES))))
    if judgement.where is not None:
        if str(judgement.where) not in judgement.detail:
            pairs.append(("where", Text(str(judgement.where))))
        pairs.append(("error", Text(words.error(judgement))))
    pairs.append(("case", page.case(failure.case)))
    if failure.first_seen is not None and failure.first_seen != failure.case:
        pairs.append(("", page.case(failure.first_seen, "shrunk from ", "dim")))
    return pairs


def _also(failure: Failure) -> tuple[str, Text]:
    judgement = failure.judgement
    first = words.told(judgement.detail, SHOWN_LINES).partition("\n")[0]
    return ("also fails", Text.assemble(f"{judgement.check}: ", (first, "dim")))


def _apart(verdict: Verdict, page: Layout) -> Pairs:
    """Say what all failing cases have, what none has, and where they are like all others."""
    pairs: Pairs = []
    for number, axis in enumerate(telling.shared(verdict)):
        name = "failing have" if number == 0 else "and"
        pairs.append((name, page.flow(_counted(row) for row in axis.failing)))
    spared = [row for axis in telling.absent(verdict) for row in axis.spared]
    if spared:
        pairs.append(("failing lack", page.flow(_counted(row) for row in spared)))
    alike = [Text(axis.title) for axis in telling.alike(verdict)]
    if alike:
        pairs.append(("no matter", page.flow(alike)))
    return [(name, text) for name, text in pairs if text]


def _features(verdict: Verdict, page: Layout) -> Pairs:
    """Return a line an axis: every value with its count of cases."""
    varied = [axis for axis in telling.axes(verdict) if axis.varies]
    values = [[_value(row) for row in axis.offered] for axis in varied]
    if values:
        _say_unit(values[0])
    return [(axis.title, page.flow(row)) for axis, row in zip(varied, values, strict=True)]


def _limits(verdict: Verdict, page: Layout) -> Pairs:
    """Return what was not looked at: for want of a case, or of an offer."""
    pairs: Pairs = []
    untested = words.untested(verdict)
    if untested and verdict.failed:
        pairs.append(("untested", page.flow(_value(row) for row in untested)))
    elif untested:
        pairs.append(("untested", Text(words.untold(verdict), style="yellow")))
    missing = [Text(each, style="dim") for each in words.not_offered(verdict)]
    if missing:
        pairs.append(("not offered", page.flow(missing)))
    return pairs


def _facts(verdict: Verdict, page: Layout) -> Pairs:
    """Return checks, accuracy, the worst error, power and notes."""
    pairs: Pairs = []
    if verdict.checks:
        checks = [_check(row) for row in verdict.checks]
        _say_unit(checks)
        pairs.append(("checks", page.flow(checks)))
    if verdict.accuracy:
        pairs += _beside_torch(verdict, page)
    worst = verdict.worst
    if worst is not None and verdict.outcome is not Outcome.FAIL:
        pairs.append(("worst error", Text(f"{worst.check}: {words.error(worst)}")))
        pairs.append(("", page.case(worst.case, style="dim")))
    if power := words.power(verdict):
        pairs.append(("power", Text(power)))
    return pairs + [("note", Text(note)) for note in verdict.notes]


def _beside_torch(verdict: Verdict, page: Layout) -> Pairs:
    """Return the accuracy beside torch's, that of torch's other paths, and the worst feature."""
    pairs = [
        ("accuracy", Text("errors in units of torch's own in the same dtype", "dim")),
        ("", page.table(list(precision.table(verdict)))),
    ]
    dtypes = [each.dtype for each in verdict.accuracy]
    paths = [
        {"": path} | {dtype: _times(by_dtype.get(dtype)) for dtype in dtypes}
        for path, by_dtype in precision.paths(verdict)
    ]
    if paths:
        pairs.append(("torch's paths", page.table(paths)))
    if furthest := precision.furthest(verdict):
        pairs.append(("by feature", Text(furthest)))
    return pairs


def _times(row: Accuracy | None) -> str:
    return f"{row.median_times_torch:.2f}" if row is not None else ""


def _counted(row: FeatureRow) -> Text:
    """Return a feature with how many of its cases fail."""
    status = "fail" if row.failed else "pass"
    none = f" none of {row.cases}" if row.cases else ""
    return _signed(
        status, words.words(row), f" {row.failed} of {row.cases}" if row.failed else none
    )


def _value(row: FeatureRow) -> Text:
    """Return a feature with its count of cases."""
    return _signed(row.status, words.words(row), f" {row.cases}")


def _check(row: CheckRow) -> Text:
    count = f" {row.failed} of {row.cases}" if row.failed else f" {row.cases}"
    return _signed("fail" if row.failed else "pass", row.name, count)


def _signed(status: str, what: str, count: str) -> Text:
    return Text.assemble((f"{words.SIGN[status]} ", words.COLOUR[status]), what, (count, "dim"))


def _say_unit(items: list[Text]) -> None:
    """Let the first item say what the numbers in all of them count."""
    items[0].append(" cases", "dim")
