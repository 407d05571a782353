"""The terminal report: the verdict first, what is common to failing cases, and what was judged."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mha_parity.core.case import parse
from mha_parity.core.check_result import SYSTEMATIC, CheckResult, Place, Severity
from mha_parity.core.features import AXES
from mha_parity.core.verdict import (
    Accuracy,
    CheckRow,
    Diagnosis,
    Failure,
    FeatureRow,
    Outcome,
    Verdict,
)
from mha_parity.report import correlations, terminal, wording

CASE = parse("mha-N2-L5-S7-H3-D4-cross-causal-float32-s11")
FIRST = parse("mha-N3-L13-S17-H5-D7-cross-bias-outproj-causal-weights-float32-peaky-fortran-s11")
TARGET = "somebody/with/a/long/path.py:attention"


def rows(axis: str, **counts: tuple[int, int]) -> list[FeatureRow]:
    """Return the rows of one axis from (cases, failed) by value; other values are not offered."""
    found = []
    for value in AXES[axis]:
        cases, failed = counts.get(value, (-1, 0))
        status = "not offered" if cases < 0 else "fail" if failed else "pass"
        status = "inconclusive" if cases == 0 else status
        found.append(FeatureRow(axis, value, status, max(cases, 0), failed=failed))
    return found


def verdict(run: int = 200, failed: int = 40, **changes: Any) -> Verdict:
    """Return a verdict in which causal cases fail, whatever their dtype and regime."""
    features = [
        *rows("form", mha=(run, failed)),
        *rows("dtype", float64=(run // 2, failed // 2), float32=(run // 2, failed // 2)),
        *rows("attn", none=(run - 50, 0), causal=(50, failed)),
        *rows("regime", normal=(run - 12, failed - 1), tiny=(9, 1), ties=(3, 0)),
        *rows("bias", no=(run, failed)),
    ]
    check_result = CheckResult(
        case=CASE,
        check="output",
        severity=Severity.WRONG,
        error=0.5,
        allowed=0.001,
        where=Place(1, 2, 3, 0),
        detail="output is 1.5, but should be 1.0",
    )
    replay = f"mha-parity replay {CASE.id} {TARGET}"
    failure = Failure(check_result=check_result, case=CASE, replay=replay, first_seen=FIRST)
    fields: dict[str, Any] = {
        "target": TARGET,
        "convention": "torch-module",
        "outcome": Outcome.FAIL if failed else Outcome.PASS,
        "run": run,
        "passed": run - failed,
        "failed": failed,
        "inconclusive": 0,
        "features": tuple(features),
        "checks": (),
        "failures": (failure,) if failed else (),
        "environment": {"torch": "2.13.0", "numpy": "2.4.6"},
    }
    return Verdict(**{**fields, **changes})


def shown(subject: Verdict, width: int = 80, height: int = 100, *, verbose: bool = False) -> str:
    """Return the report as a console of that width prints it."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, height=height, color_system=None)
    terminal.show(subject, console, verbose=verbose)
    return stream.getvalue()


@pytest.mark.parametrize("width", [40, 80, 120], ids="width{}".format)
@pytest.mark.parametrize("failed", [0, 40], ids=["passing", "failing"])
def test_fits_the_width(width: int, failed: int) -> None:
    """No line is wider than the console, but the replay line, which has to be copied whole."""
    lines = shown(verdict(failed=failed), width).splitlines()
    wide = [line for line in lines if len(line.rstrip()) > width and "replay" not in line]
    assert [] == wide


def test_verdict_comes_first_and_whole() -> None:
    """The first words are the verdict; diagnosis, failures and features follow in this order."""
    bug = Diagnosis(bug="causal-bottom", title="mask aligned at the bottom", confident=True)
    text = shown(verdict(diagnosis=(bug,)))
    order = ["does not hold", "mask aligned", "output: wrong", "common to all", "not offered"]
    assert sorted(order, key=text.index) == order
    assert "Parity" in text.splitlines()[2]


def test_replay_line_is_one_line() -> None:
    """The command that replays a case is never broken by the report."""
    (line,) = [line for line in shown(verdict(), 60).splitlines() if "mha-parity replay" in line]
    assert line.endswith(verdict().failures[0].replay)


def test_failing_runs_name_what_is_common() -> None:
    """All failing cases are causal; of dtype and regime nothing is said."""
    text = " ".join(shown(verdict()).split())
    assert "common to all failures ✗ causal 40 of 50" in text
    assert "regime" not in text
    assert "✓ float64" not in text


def test_gradients_that_were_not_asked_for_are_said() -> None:
    """Offered and not judged is said; judged, or not offered, is not."""
    assert "not asked gradients: --grad judges them too" in " ".join(
        shown(verdict(failed=0)).split()
    )
    for cases in (-1, 200):
        known = (*verdict(failed=0).features, *rows("gradients", yes=(cases, 0)))
        assert "not asked" not in shown(verdict(failed=0, features=known))


def test_a_systematic_error_says_nothing_beside_a_sure_name() -> None:
    """Of a bug that is surely named one line less; of one that may be, the line stays."""
    over_run = CheckResult(
        case=CASE, check=SYSTEMATIC, severity=Severity.WRONG, detail="over 50 cases"
    )
    failures = (*verdict().failures, Failure(check_result=over_run, case=CASE, replay=""))
    named = Diagnosis(bug="scale-dmodel", title="the scale", confident=True)
    perhaps = dataclasses.replace(named, confident=False)
    for each, said in ((named, False), (perhaps, True)):
        assert said is ("over 50 cases" in shown(verdict(failures=failures, diagnosis=(each,))))


def test_three_tied_keys_prove_nothing() -> None:
    """A value that 3 cases have and none of 40 failing ones is luck; of 150 cases it is not."""
    assert ["attn"] == [axis.name for axis in correlations.common(verdict())]
    few = rows("regime", normal=(50, 40), ties=(150, 0))
    assert ["regime"] == [axis.name for axis in correlations.common(verdict(features=tuple(few)))]


def test_one_failure_shares_nothing() -> None:
    """Of one failing case nothing is said to be common: its own id says what it has."""
    features = tuple(rows("attn", none=(160, 0), causal=(40, 1)))
    subject = verdict(failed=1, features=features)
    assert [] == correlations.common(subject) + correlations.absent(subject)


def test_few_spared_values_are_named_as_such() -> None:
    """Where most values fail and a plain one too, the spared ones are named instead."""
    regime = rows("regime", normal=(60, 30), tiny=(40, 20), huge=(40, 20), constant=(60, 0))
    subject = verdict(failed=70, features=tuple(regime))
    assert ["regime"] == [axis.name for axis in correlations.absent(subject)]
    assert "absent from all failures ✓ constant key rows none of 60" in " ".join(
        shown(subject).split()
    )


def test_passing_runs_are_compact() -> None:
    """One line counts what was judged; -v lists the features of every axis with several values."""
    text = shown(verdict(failed=0), 100)
    assert "judged          200 cases · float64 · float32 · " in text
    assert "✓ float64" not in text
    assert len(text.splitlines()) < 18
    whole = shown(verdict(failed=0), 100, verbose=True)
    assert "multi-head attention with projections" not in whole
    assert "✓ float64 100 cases · ✓ float32 100" in whole


def test_untested_features_say_what_to_do() -> None:
    """A feature that is offered and in no case has a question mark and a remedy."""
    open_row = FeatureRow("attn", "causal", "inconclusive", 0, "no case drawn")
    plain = FeatureRow("attn", "none", "pass", 10)
    subject = verdict(failed=0, features=(plain, open_row), outcome=Outcome.INCONCLUSIVE)
    text = " ".join(shown(subject, verbose=True).split())
    assert "✓ no attn_mask 10 cases · ? causal 0" in text
    assert "untested ? causal 0 1 feature is offered, but no case could have shown a bug" in text
    assert "run more cases (--cases)" in text
    assert [open_row] == wording.untested(subject)


def test_the_sentence_names_few_of_many_untested_features() -> None:
    """Of 12 features that no case could tell about, the verdict names three and counts the rest."""
    open_rows = [FeatureRow("regime", name, "inconclusive", 0) for name in AXES["regime"]]
    subject = verdict(failed=0, features=tuple(open_rows), outcome=Outcome.INCONCLUSIVE)
    assert subject.sentence.endswith(
        f"in regime=normal, regime=tiny, regime=peaky and {len(open_rows) - 3} more."
    )


def test_long_reports_end_with_the_verdict() -> None:
    """What does not fit the window ends with verdict and bug; what fits says them once."""
    bug = Diagnosis(bug="causal-bottom", title="mask aligned at the bottom", confident=True)
    subject = verdict(diagnosis=(bug,))
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
 explains        100% of the failing cases
 remedy          hide key j from query i where j > i

 fails           output: wrong
 because         output is 1.5, but should be 1.0
 where           sample 1, head 2, row 3, column 0
 error           0.5, allowed 0.001 (500 times)
 case            mha-N2-L5-S7-H3-D4-cross-causal-float32-s11
                 shrunk from mha-N3-L13-S17-H5-D7-cross-bias-outproj-
                 causal-weights-float32-peaky-fortran-s11
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
 explains        100% of the failing cases
 remedy          hide key j from query i where j > i

 fails           output: wrong
 because         output is 1.5, but should be 1.0
 where           sample 1, head 2, row 3, column 0
 error           0.5, allowed 0.001 (500 times)
 case            mha-N2-L5-S7-H3-D4-cross-causal-float32-s11
                 shrunk from mha-N3-L13-S17-H5-D7-cross-bias-outproj-causal-weights-float32-peaky-
                 fortran-s11
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
def test_exact_text(width: int) -> None:
    """The whole report, letter by letter, in a narrow window and in a wide one."""
    bug = Diagnosis(
        bug="causal-bottom",
        title="the causal mask is aligned at the bottom right",
        confident=True,
        explains=1.0,
        remedy="hide key j from query i where j > i",
    )
    features = [
        *rows("dtype", float64=(100, 20), float32=(100, 20)),
        *rows("attn", none=(150, 0), causal=(50, 40)),
    ]
    (failure,) = verdict().failures
    line = f"mha-parity replay {CASE.id} path.py:f"
    subject = verdict(
        target="path.py:f",
        diagnosis=(bug,),
        features=tuple(features),
        failures=(dataclasses.replace(failure, replay=line),),
        checks=(CheckRow("output", 200, 40), CheckRow("weights", 50, 0)),
        accuracy=(
            Accuracy(
                dtype="float32", cases=7, median_times_torch=1.25, worst_times_torch=2.5, bits=0.3
            ),
        ),
    )
    assert EXACT[width] == shown(subject, width)


@pytest.mark.parametrize("severity", [Severity.MATCH, Severity.LESS_ACCURATE], ids=str)
def test_a_worst_error_above_what_is_allowed_says_why_it_passes(severity: Severity) -> None:
    """Beside "parity holds" more than the allowed stands with the bound that it is below."""
    worst = CheckResult(case=CASE, check="output", severity=severity, error=2.0, allowed=1.0)
    told = shown(verdict(failed=0, worst=worst))
    assert "output: 2, allowed 1 (2 times)" in told
    assert (severity is Severity.LESS_ACCURATE) == ("within the rounding bound" in told)


@pytest.mark.parametrize("failed", [0, 40], ids=["passing", "failing"])
def test_colours_stay_on_terminals(failed: int) -> None:
    """A terminal gets colours; a pipe gets the same words and no escape code, no trailing blank."""
    stream = io.StringIO()
    coloured = Console(file=stream, width=80, force_terminal=True, color_system="standard")
    terminal.show(verdict(failed=failed), coloured)
    plain = shown(verdict(failed=failed))
    assert "\x1b[" in stream.getvalue()
    assert "\x1b" not in plain
    assert plain == re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue())
    assert [] == [line for line in plain.splitlines() if line != line.rstrip()]


def test_no_color_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR a terminal gets bold and dim, and no colour."""
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    terminal.show(verdict(), Console(file=stream, width=80, force_terminal=True))
    used = set(re.findall(r"\x1b\[([\d;]*)m", stream.getvalue()))
    assert used <= {"0", "1", "2"}


def test_a_crash_shows_the_frames_of_the_target() -> None:
    """Of a fatal error's stacks only what the target did is shown, files named in short."""
    harness = Path(terminal.__file__).parents[1]
    here = Path.cwd()
    detail = f"""ended its process by signal SIGSEGV
Fatal Python error: Segmentation fault

Thread 0x00007fbadcb7d6c0 (most recent call first):
  File "{harness}/worker.py", line 141 in wait
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007fbadd841b80 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "{here}/theirs/kernel.py", line 34 in attend
  File "{harness}/conventions/base.py", line 82 in make"""
    assert [
        "ended its process by signal SIGSEGV",
        "Fatal Python error: Segmentation fault",
        '  File "ctypes/__init__.py", line 519 in string_at',
        '  File "theirs/kernel.py", line 34 in attend',
    ] == wording.formatted(detail, 8).splitlines()


def test_whole_axes_that_are_not_offered_take_one_entry() -> None:
    """An axis with one offered value is named once; single values of others by themselves."""
    assert {"any other form", "any other bias"}.isdisjoint(wording.not_offered(verdict()))
    padding = verdict(features=tuple(rows("padding", none=(10, 0))))
    assert ["any other padding"] == wording.not_offered(padding)
    some = verdict(features=tuple(rows("padding", none=(10, 0), bool=(9, 0), float=(8, 0))))
    assert ["valid lengths per sample"] == wording.not_offered(some)


def test_long_last_words_are_cut_and_cleaned() -> None:
    """Of 100 lines the first and the last are shown, without escape codes and marks of place."""
    detail = "\n".join(["raised \x1b[31mError", "    ^^^^~~", *(f"line {i}" for i in range(100))])
    told = wording.formatted(detail, 5).splitlines()
    assert [
        "raised [31mError",
        "  ... 96 lines ...",
        "line 96",
        "line 97",
        "line 98",
        "line 99",
    ] == told


def test_only_shrunk_failures_are_shown_in_full() -> None:
    """Failures of the whole run, and more than three others, take a line each."""
    (shrunk,) = verdict().failures
    run_check_results = Failure(
        check_result=shrunk.check_result, case=CASE, replay="mha-parity replay"
    )
    text = shown(verdict(failures=(shrunk, run_check_results)))
    assert 1 == text.count("\n fails ") == text.count("\n also fails ")


def test_accuracy_and_sensitivity_stand_in_the_report() -> None:
    """The sensitivity names the gross mistake that fewest cases would fail."""
    text = " ".join(
        shown(verdict(failed=0, power={"zeros": 200, "mean(V)": 150}, weighed=190)).split()
    )
    assert "sensitivity each of 2 gross mistakes would fail 150 or more of 190 cases" in text
    assert "(fewest: mean(V))" in text


def test_what_was_tried_in_vain_comes_first_with_its_reason() -> None:
    """Features of one reason stand together, whole axes too; what was not tried has none."""
    reason = "it is answered in float64"
    features = (
        FeatureRow("dtype", "float64", "pass", 9),
        *(FeatureRow("dtype", each, "not offered", 0, reason) for each in ("float32", "float16")),
        FeatureRow("bias", "no", "pass", 9),
        FeatureRow("bias", "yes", "not offered", 0),
        FeatureRow("scale", "given", "not offered", 0),
    )
    said = wording.not_offered(verdict(features=features))
    assert [f"float32, float16 ({reason})", "in_proj bias", "scale given by the caller"] == said


def test_verbose_features_say_how_many_cases_fail() -> None:
    """With -v a failing feature has its failures and its cases, a passing one its cases."""
    text = shown(
        verdict(features=tuple(rows("attn", none=(150, 0), causal=(50, 40)))), verbose=True
    )
    assert re.search(r"✓ no attn_mask 150 cases · ✗ causal 40 of 50\b", text)
