"""The report in a terminal: the verdict first, then why, then what was looked at."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.panel import Panel
from rich.text import Text

from mha_parity.core.check_result import Severity
from mha_parity.core.verdict import Outcome
from mha_parity.report import accuracy_table, correlations, wording
from mha_parity.report.columns import Pairs, ReportText

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from mha_parity.core.verdict import Accuracy, CheckRow, Diagnosis, Failure, FeatureRow, Verdict

SHOWN_NAMES = 6  # of what is not offered, without -v
SHOWN_LINES = 8  # of a target's output before it failed


def print_verdict(verdict: Verdict, console: Console, *, verbose: bool = False) -> None:
    """Print the report: verdict, bug, failures, what was judged and what was not.

    ``verbose`` adds every feature and check, and the tables of accuracy. A report longer than the
    window ends with the verdict once more.
    """
    page = ReportText(console.width)
    for number, diagnosis in enumerate(verdict.diagnosis):
        page.block(_diagnosis(diagnosis, () if number else wording.suspect_lines(verdict)))
    full = wording.failures_in_full(verdict)
    full = full if verbose else full[:1]
    for failure in full:
        page.block(_failure(failure))
        page.command("replay", failure.replay)
    page.block([_also(each) for each in wording.failures_in_brief(verdict, full)])
    absent = verbose or not wording.is_explained(verdict)
    page.block(_correlations(verdict, page, absent=absent) if verdict.failed else [])
    page.block(_features(verdict, page) if verbose else [])
    accuracy = _accuracy(verdict, page, verbose) if verbose or not verdict.failed else []
    page.block([*_judged(verdict, page, verbose), *accuracy])
    page.block([("note", Text(note)) for note in verdict.notes])
    console.print()
    console.print(_headline(verdict))
    for line in page.lines:
        console.print(line, soft_wrap=True)
    if not verbose and verdict.features:
        console.print(Text("\n -v lists every feature and check.", "dim"))
    if len(page.lines) > console.height:
        console.print()
        for line in page.wrapped(_closing(verdict)):
            console.print(line, soft_wrap=True)
    console.print()


def print_overview(verdicts: Sequence[Verdict], console: Console) -> None:
    """Print a line for each of several verdicts, where one of them does not hold."""
    if len(verdicts) < 2 or all(each.outcome is Outcome.PASS for each in verdicts):
        return
    page = ReportText(console.width)
    for each in verdicts:
        page.lines += page.wrapped(_closing(each))
    for line in page.lines:
        console.print(line, soft_wrap=True)
    console.print()


def _headline(verdict: Verdict) -> Panel:
    colour = wording.COLOUR[verdict.outcome.value]
    sentence = Text(verdict.sentence, style=f"bold {colour}")
    setting = (wording.environment_line(verdict), "dim")
    return Panel(Text.assemble(sentence, "\n", setting), border_style=colour, expand=False)


def _closing(verdict: Verdict) -> Text:
    """Return the verdict again, and the name of the bug where there is one."""
    sign, colour = wording.SIGN[verdict.outcome.value], wording.COLOUR[verdict.outcome.value]
    said = Text.assemble((f" {sign} {verdict.sentence}", f"bold {colour}"))
    if verdict.diagnosis:
        first = verdict.diagnosis[0]
        said.append(f"\n   {wording.certainty(first)}: {first.title}")
    return said


def _diagnosis(diagnosis: Diagnosis, suspects: Sequence[str]) -> Pairs:
    """Say what the bug is called, or what was measured where no name fits, and the lines of it."""
    name = f"  [{diagnosis.bug}]" if diagnosis.bug else ""
    first = Text.assemble((diagnosis.title, "bold"), (name, "dim"))
    said = (
        ("explains", wording.explains(diagnosis)),
        ("evidence", diagnosis.evidence),
        ("remedy", diagnosis.remedy),
        ("look at", "\n".join(suspects)),
        (wording.ALIASES, ", ".join(diagnosis.aliases)),
        ("seen in", diagnosis.seen_in),
    )
    rest = [(name, Text(text)) for name, text in said if text]
    return [(wording.certainty(diagnosis), first), *rest]


def _failure(failure: Failure) -> Pairs:
    check_result = failure.check_result
    pairs = [
        ("fails", Text(f"{check_result.check}: {check_result.severity.value}", style="bold red"))
    ]
    if check_result.detail:
        pairs.append(("because", Text(wording.shorten_output(check_result.detail, SHOWN_LINES))))
    if check_result.where is not None:
        if str(check_result.where) not in check_result.detail:
            pairs.append(("where", Text(str(check_result.where))))
        if math.isfinite(check_result.error):
            pairs.append(("error", Text(wording.error_words(check_result))))
    pairs.append(("case", Text(failure.case.id)))
    if failure.shrunk_from is not None and failure.shrunk_from != failure.case:
        pairs.append(("shrunk from", Text(failure.shrunk_from.id, "dim")))
    return pairs


def _also(failure: Failure) -> tuple[str, Text]:
    check_result = failure.check_result
    first = wording.shorten_output(check_result.detail, SHOWN_LINES).partition("\n")[0]
    return ("also fails", Text.assemble(f"{check_result.check}: ", (first, "dim")))


def _correlations(verdict: Verdict, page: ReportText, *, absent: bool) -> Pairs:
    """Return the features common to all failing cases, and those that no failing case has.

    ``absent`` ones narrow down an unknown cause, and add nothing to a known one.
    """
    pairs: Pairs = []
    for name, rows in wording.titled_common(verdict):
        pairs.append((name, page.flow(_counted(row) for row in rows)))
    passing = correlations.absent(verdict)
    if passing and absent:
        pairs.append((wording.ABSENT, page.flow(_counted(row) for row in passing)))
    return pairs


def _features(verdict: Verdict, page: ReportText) -> Pairs:
    """Return a line per axis: every value with its count of cases."""
    varied = [axis for axis in correlations.axes(verdict) if axis.varies]
    values = [[_value(row) for row in axis.offered] for axis in varied]
    if values:
        _say_unit(values[0])
    return [(axis.title, page.flow(row)) for axis, row in zip(varied, values, strict=True)]


def _judged(verdict: Verdict, page: ReportText, verbose: bool) -> Pairs:
    """Return what was judged, and what was not: for want of a case, a call or an offer."""
    pairs: Pairs = [("judged", Text(wording.judged_counts(verdict)))]
    if verbose and verdict.checks:
        checks = [_check(row) for row in verdict.checks]
        _say_unit(checks)
        pairs.append(("checks", page.flow(checks)))
    if reasons := wording.inconclusive_reasons(verdict):
        pairs.append(("inconclusive", Text(reasons)))
    untested = wording.untested(verdict)
    if untested:
        pairs.append(("untested", page.flow(_value(row) for row in untested)))
        if not verdict.failed:
            pairs.append(("", Text(wording.untested_sentence(verdict), style="yellow")))
    for status, names in wording.unpassed_parameters(verdict):
        pairs.append((status, page.flow(Text(each) for each in names)))
    pairs += _unasked(verdict, page, verbose)
    if not_drawn := wording.not_drawn(verdict):
        pairs.append(("not drawn", Text(not_drawn, style="dim")))
    if wording.gradients_not_asked(verdict):
        pairs.append(("not asked", Text(wording.GRADIENTS_NOT_ASKED, style="dim")))
    return pairs


def _unasked(verdict: Verdict, page: ReportText, verbose: bool) -> Iterator[tuple[str, Text]]:
    """Yield what the target does not offer, and what options leave out; the first few alone."""
    for title, names in (
        ("not offered", wording.not_offered(verdict, whole_reasons=verbose)),
        ("left out", wording.left_out(verdict)),
    ):
        shown = [Text(each, style="dim") for each in names]
        if len(shown) > SHOWN_NAMES + 1 and not verbose:
            more = Text(f"{len(shown) - SHOWN_NAMES} more with -v", style="dim")
            shown = [*shown[:SHOWN_NAMES], more]
        if shown:
            yield title, page.flow(shown)


def _accuracy(verdict: Verdict, page: ReportText, verbose: bool) -> Pairs:
    """Return the errors next to torch's, the worst of them, and what the cases could have shown."""
    pairs: Pairs = []
    if verdict.accuracy:
        pairs += _tables(verdict, page) if verbose else []
        short = Text(accuracy_table.accuracy_sentence(verdict))
        pairs += [] if verbose else [("accuracy", short)]
        if furthest := accuracy_table.furthest(verdict):
            pairs.append(("least accurate", Text(furthest)))
    worst = verdict.worst
    if worst is not None and verdict.outcome is not Outcome.FAIL:
        bound = ", within the rounding bound" * (worst.severity is Severity.LESS_ACCURATE)
        pairs.append(("worst error", Text(f"{worst.check}: {wording.error_words(worst)}{bound}")))
        pairs.append(("", Text(worst.case.id, "dim")))
    if sensitivity := wording.sensitivity(verdict):
        pairs.append((wording.SENSITIVITY, Text(sensitivity)))
    return pairs


def _tables(verdict: Verdict, page: ReportText) -> Pairs:
    """Return the errors by dtype, and those of torch's other paths."""
    pairs = [
        ("accuracy", Text("errors in units of torch's own in the same dtype", "dim")),
        ("", page.table(list(accuracy_table.accuracy_rows(verdict)))),
    ]
    dtypes = [each.dtype for each in verdict.accuracy]
    paths = [
        {"": path} | {dtype: _times(by_dtype.get(dtype)) for dtype in dtypes}
        for path, by_dtype in accuracy_table.paths(verdict)
    ]
    if paths:
        pairs.append(("torch's paths", page.table(paths)))
    return pairs


def _times(row: Accuracy | None) -> str:
    return f"{row.median_times_torch:.2f}" if row is not None else ""


def _counted(row: FeatureRow) -> Text:
    """Return a feature with how many of its cases fail."""
    status = "fail" if row.failed else "pass"
    none = f" none of {row.cases}" if row.cases else ""
    return _signed(
        status, wording.feature_words(row), f" {row.failed} of {row.cases}" if row.failed else none
    )


def _value(row: FeatureRow) -> Text:
    """Return a feature with its count of cases, and how many of them fail."""
    count = f" {row.failed} of {row.cases}" if row.failed else f" {row.cases}"
    return _signed(row.status, wording.feature_words(row), count)


def _check(row: CheckRow) -> Text:
    count = f" {row.failed} of {row.cases}" if row.failed else f" {row.cases}"
    return _signed("fail" if row.failed else "pass", row.name, count)


def _signed(status: str, what: str, count: str) -> Text:
    return Text.assemble((f"{wording.SIGN[status]} ", wording.COLOUR[status]), what, (count, "dim"))


def _say_unit(items: list[Text]) -> None:
    """Let the first item say what the numbers in all of them count."""
    items[0].append(" cases", "dim")
