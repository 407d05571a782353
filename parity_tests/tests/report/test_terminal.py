"""The terminal report: the verdict first, each line whole, and colours on terminals alone."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Callable

import pytest
from rich.console import Console

from mha_parity.core.case import parse
from mha_parity.core.check_result import SYSTEMATIC, CheckResult, Severity
from mha_parity.core.verdict import (
    Accuracy,
    CheckRow,
    Diagnosis,
    Failure,
    FeatureRow,
    Verdict,
)
from mha_parity.report import terminal
from mha_parity.report.accuracy_table import accuracy_sentence

CASE = parse("mha-N2-L5-S7-H3-D4-cross-causal-float32-s11")


@pytest.mark.parametrize("width", [40, 80, 120], ids="width{}".format)
@pytest.mark.parametrize("failed", [0, 40], ids=["passing", "failing"])
def test_fits_the_width(
    width: int, failed: int, make_verdict: Callable[..., Verdict], shown: Callable[..., str]
) -> None:
    """No line is wider than the console, but ids and replay lines, which are copied whole."""
    verdict = make_verdict(failed=failed)
    lines = shown(verdict, width).splitlines()
    assert re.sub(r"\s", "", verdict.sentence) in re.sub(r"[\s│]", "", "".join(lines))
    wide = [line for line in lines if len(line.rstrip()) > width and "replay" not in line]
    assert not [
        line for line in wide if not re.fullmatch(r" *((case|shrunk from) +)?mha-[\w-]+", line)
    ]


def test_no_word_is_broken(make_verdict: Callable[..., Verdict], shown: Callable[..., str]) -> None:
    """In 40 columns the ids of a case and of the one it was shrunk from stay whole words."""
    failure = make_verdict().failures[0]
    shrunk_from = parse("mha-N8-L70-S70-H16-D16-outproj-boolmask-padding-float64-huge-s7")
    longer = dataclasses.replace(failure, shrunk_from=shrunk_from)
    words = shown(make_verdict(failures=(longer,)), 40).split()
    assert {failure.case.id, shrunk_from.id} <= set(words)


def test_verdict_comes_first_and_whole(
    make_verdict: Callable[..., Verdict], shown: Callable[..., str]
) -> None:
    """The first words are the verdict; diagnosis, failures and features follow in this order."""
    bug = Diagnosis(bug="causal-bottom", title="mask aligned at the bottom", confident=True)
    text = shown(make_verdict(diagnosis=(bug,)))
    order = ["does not hold", "mask aligned", "output: wrong", "common to all", "not offered"]
    assert sorted(order, key=text.index) == order
    assert "Parity" in text.splitlines()[2]


def test_replay_line_is_one_line(
    make_verdict: Callable[..., Verdict], shown: Callable[..., str]
) -> None:
    """The command that replays a case is never broken by the report."""
    (line,) = [
        line for line in shown(make_verdict(), 60).splitlines() if "mha-parity replay" in line
    ]
    assert line.endswith(make_verdict().failures[0].replay)


def test_a_systematic_error_says_nothing_beside_a_sure_name(
    make_verdict: Callable[..., Verdict], shown: Callable[..., str]
) -> None:
    """Of a bug that is surely named one line less; of one that may be, the line stays."""
    over_run = CheckResult(
        case=CASE, check=SYSTEMATIC, severity=Severity.WRONG, detail="over 50 cases"
    )
    failures = (*make_verdict().failures, Failure(check_result=over_run, case=CASE, replay=""))
    named = Diagnosis(bug="scale-dmodel", title="the scale", confident=True)
    perhaps = dataclasses.replace(named, confident=False)
    for each, said in ((named, False), (perhaps, True)):
        assert said is (
            "over 50 cases" in shown(make_verdict(failures=failures, diagnosis=(each,)))
        )


def test_passing_runs_are_compact(
    make_verdict: Callable[..., Verdict], shown: Callable[..., str]
) -> None:
    """One line counts what was judged; -v lists the features of every axis with several values."""
    text = shown(make_verdict(failed=0), 100)
    assert "judged          200 cases · float64 · float32 · " in text
    assert "✓ float64" not in text
    assert len(text.splitlines()) < 18
    whole = shown(make_verdict(failed=0), 100, verbose=True)
    assert "multi-head attention with projections" not in whole
    assert "✓ float64 100 cases · ✓ float32 100" in whole


def test_long_reports_end_with_the_verdict(
    make_verdict: Callable[..., Verdict], shown: Callable[..., str]
) -> None:
    """What does not fit the window ends with verdict and bug; what fits says them once."""
    bug = Diagnosis(bug="causal-bottom", title="mask aligned at the bottom", confident=True)
    subject = make_verdict(diagnosis=(bug,))
    long, short = shown(subject, 120, 10), shown(subject, 120, 100)
    assert long.startswith(
        short.rstrip().removesuffix("-v lists every feature and check.").rstrip()
    )
    assert [
        f" ✗ {subject.sentence}",
        "   the bug: mask aligned at the bottom",
    ] == long.rstrip().splitlines()[-2:]


EXACT = {
    72: """
╭──────────────────────────────────────────────────────────────────────╮
│ Parity does not hold: path.py:f fails 40 of 200 cases.               │
│ calling convention torch-module · torch 2.13.0 · numpy 2.4.6 · 0.0 s │
╰──────────────────────────────────────────────────────────────────────╯

 the bug         the causal mask is aligned at the bottom right
                 [causal-bottom]
 explains        100% of the failing answers compared
 remedy          hide key j from query i where j > i

 fails           output: wrong
 because         output is 1.5, but should be 1.0
 where           sample 1, head 2, row 3, column 0
 error           0.5, allowed 0.001 (500 times)
 case            mha-N2-L5-S7-H3-D4-cross-causal-float32-s11
 shrunk from     mha-N3-L13-S17-H5-D7-cross-bias-outproj-causal-weights-float32-peaky-fortran-s11
 replay          mha-parity replay mha-N2-L5-S7-H3-D4-cross-causal-float32-s11 path.py:f

 common to all failures
                 ✗ causal 40 of 50

 judged          200 cases · float64 · float32 · 4 features · 2 checks
 not offered     float16 · bfloat16 · boolean attn_mask (L, S)
                 float attn_mask (L, S)
                 boolean attn_mask per sample and head
                 float attn_mask per sample and head
 not asked       gradients: --grad judges them too

 -v lists every feature and check.

""",
    100: """
╭──────────────────────────────────────────────────────────────────────╮
│ Parity does not hold: path.py:f fails 40 of 200 cases.               │
│ calling convention torch-module · torch 2.13.0 · numpy 2.4.6 · 0.0 s │
╰──────────────────────────────────────────────────────────────────────╯

 the bug         the causal mask is aligned at the bottom right  [causal-bottom]
 explains        100% of the failing answers compared
 remedy          hide key j from query i where j > i

 fails           output: wrong
 because         output is 1.5, but should be 1.0
 where           sample 1, head 2, row 3, column 0
 error           0.5, allowed 0.001 (500 times)
 case            mha-N2-L5-S7-H3-D4-cross-causal-float32-s11
 shrunk from     mha-N3-L13-S17-H5-D7-cross-bias-outproj-causal-weights-float32-peaky-fortran-s11
 replay          mha-parity replay mha-N2-L5-S7-H3-D4-cross-causal-float32-s11 path.py:f

 common to all failures
                 ✗ causal 40 of 50

 judged          200 cases · float64 · float32 · 4 features · 2 checks
 not offered     float16 · bfloat16 · boolean attn_mask (L, S) · float attn_mask (L, S)
                 boolean attn_mask per sample and head · float attn_mask per sample and head
 not asked       gradients: --grad judges them too

 -v lists every feature and check.

""",
}


@pytest.mark.parametrize("width", EXACT, ids="width{}".format)
def test_exact_text(
    width: int,
    make_verdict: Callable[..., Verdict],
    make_rows: Callable[..., list[FeatureRow]],
    shown: Callable[..., str],
) -> None:
    """The whole report, letter by letter, in a narrow window and in a wide one."""
    bug = Diagnosis(
        bug="causal-bottom",
        title="the causal mask is aligned at the bottom right",
        confident=True,
        explains=1.0,
        remedy="hide key j from query i where j > i",
    )
    features = [
        *make_rows("dtype", float64=(100, 20), float32=(100, 20)),
        *make_rows("attn", none=(150, 0), causal=(50, 40)),
    ]
    (failure,) = make_verdict().failures
    line = f"mha-parity replay {CASE.id} path.py:f"
    subject = make_verdict(
        target="path.py:f",
        diagnosis=(bug,),
        features=tuple(features),
        failures=(dataclasses.replace(failure, replay=line),),
        checks=(CheckRow("output", 200, 40), CheckRow("weights", 50, 0)),
        accuracy=(
            Accuracy(
                dtype="float32",
                cases=7,
                median_times_torch=1.25,
                worst_times_torch=2.5,
                bits_lost=0.3,
            ),
        ),
    )
    assert EXACT[width] == shown(subject, width)


@pytest.mark.parametrize("severity", [Severity.MATCH, Severity.LESS_ACCURATE], ids=str)
def test_a_worst_error_above_what_is_allowed_says_why_it_passes(
    severity: Severity, make_verdict: Callable[..., Verdict], shown: Callable[..., str]
) -> None:
    """Beside "parity holds" more than the allowed stands with the bound that it is below."""
    worst = CheckResult(case=CASE, check="output", severity=severity, error=2.0, allowed=1.0)
    text = shown(make_verdict(failed=0, worst=worst))
    assert "output: 2, allowed 1 (2 times)" in text
    assert (severity is Severity.LESS_ACCURATE) == ("within the rounding bound" in text)


@pytest.mark.parametrize(
    ("worst", "said"),
    [(2.5, "2.50 times at worst"), (float("inf"), "above 0 in a case in which torch's is 0")],
    ids=str,
)
def test_an_error_where_torchs_is_0_is_no_multiple(
    worst: float, said: str, make_verdict: Callable[..., Verdict]
) -> None:
    """Kills "inf times at worst"."""
    row = Accuracy(
        dtype="float16", cases=7, median_times_torch=1.25, worst_times_torch=worst, bits_lost=0.3
    )
    assert said in accuracy_sentence(make_verdict(failed=0, accuracy=(row,)))


@pytest.mark.parametrize("failed", [0, 40], ids=["passing", "failing"])
def test_colours_stay_on_terminals(
    failed: int, make_verdict: Callable[..., Verdict], shown: Callable[..., str]
) -> None:
    """A terminal gets colours; a pipe gets the same words and no escape code, no trailing blank."""
    stream = io.StringIO()
    coloured = Console(file=stream, width=80, force_terminal=True, color_system="standard")
    terminal.print_verdict(make_verdict(failed=failed), coloured)
    plain = shown(make_verdict(failed=failed))
    assert "\x1b[" in stream.getvalue()
    assert "\x1b" not in plain
    assert plain == re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue())
    assert [] == [line for line in plain.splitlines() if line != line.rstrip()]


def test_no_color_is_heard(
    monkeypatch: pytest.MonkeyPatch, make_verdict: Callable[..., Verdict]
) -> None:
    """With NO_COLOR a terminal gets bold and dim, and no colour."""
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    terminal.print_verdict(make_verdict(), Console(file=stream, width=80, force_terminal=True))
    used = set(re.findall(r"\x1b\[([\d;]*)m", stream.getvalue()))
    assert used <= {"0", "1", "2"}


def test_only_shrunk_failures_are_shown_in_full(
    make_verdict: Callable[..., Verdict], shown: Callable[..., str]
) -> None:
    """Failures of the whole run, and more than three others, take a line each."""
    (shrunk,) = make_verdict().failures
    run_check_results = Failure(
        check_result=shrunk.check_result, case=CASE, replay="mha-parity replay"
    )
    text = shown(make_verdict(failures=(shrunk, run_check_results)))
    assert 1 == text.count("\n fails ") == text.count("\n also fails ")


def test_accuracy_and_sensitivity_stand_in_the_report(
    make_verdict: Callable[..., Verdict], shown: Callable[..., str]
) -> None:
    """The sensitivity names the gross mistake that fewest cases would fail."""
    text = " ".join(
        shown(
            make_verdict(failed=0, sensitivity={"zeros": 200, "mean(V)": 150}, measured_cases=190)
        ).split()
    )
    assert "sensitivity each of 2 gross mistakes would fail 150 or more of 190 cases" in text
    assert "(fewest: mean(V))" in text
