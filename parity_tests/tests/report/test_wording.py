"""Sentences that reports share: what a target printed, and why cases are inconclusive."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mha_parity.core.verdict import Verdict
from mha_parity.report import markdown, terminal, wording
from mha_parity.report.json_document import verdict_document

SEVERAL = {"NaN": 2, "too coarse": 30, "float16 overflows": 1}
COUNTED = "too coarse (30 cases) · NaN (2 cases) · float16 overflows (1 case)"


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
    ] == wording.shorten_output(detail, 8).splitlines()


def test_long_last_words_are_cut_and_cleaned() -> None:
    """Of 100 lines the first and the last are shown, without escape codes and marks of place."""
    detail = "\n".join(["raised \x1b[31mError", "    ^^^^~~", *(f"line {i}" for i in range(100))])
    lines = wording.shorten_output(detail, 5).splitlines()
    assert [
        "raised [31mError",
        "  ... 96 lines ...",
        "line 96",
        "line 97",
        "line 98",
        "line 99",
    ] == lines


def test_every_reason_of_inconclusive_cases_is_counted(
    make_verdict: Callable[..., Verdict], shown: Callable[..., str]
) -> None:
    """Of three reasons the sentence has the commonest; a line of each report counts all."""
    verdict = make_verdict(inconclusive=33, reasons=SEVERAL)
    assert COUNTED == wording.inconclusive_reasons(verdict)
    assert re.search(rf"\n inconclusive +{re.escape(COUNTED)}\n", shown(verdict, 120))
    assert f"| inconclusive | {COUNTED} |" in markdown.document([verdict])
    assert SEVERAL == verdict_document(verdict)["cases"]["reasons"]


def test_the_page_counts_every_reason(make_verdict: Callable[..., Verdict]) -> None:
    """What is judged on the page has the same line."""
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    from mha_parity.report import html_page

    page = html_page.document([make_verdict(inconclusive=33, reasons=SEVERAL)])
    assert f"<dt>inconclusive</dt>\n<dd>{COUNTED}</dd>" in page


def test_a_reason_that_the_sentence_has_is_not_repeated(
    make_verdict: Callable[..., Verdict],
) -> None:
    """One reason stands in the sentence of a run that fails, and none is said of no such case."""
    assert not wording.inconclusive_reasons(make_verdict(inconclusive=3, reasons={"NaN": 3}))
    assert not wording.inconclusive_reasons(make_verdict())
