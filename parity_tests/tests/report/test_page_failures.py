"""What the page says of failures: the first at once, the line and its source, the errors."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mha_parity.core.case import parse
from mha_parity.core.report_arrays import CaseError
from mha_parity.core.verdict import (
    Diagnosis,
    Failure,
    FeatureRow,
    Source,
    Verdict,
)
from mha_parity.report import correlations, html_page, plots

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

CASE = parse("mha-N2-L5-S7-H3-D4-cross-causal-float32-s11")


def test_all_that_matters_is_on_it(
    synthetic: Callable[..., Verdict], read_page: Callable[[str], Any]
) -> None:
    """Verdict, bug, remedy, place, error, case, replay line, feature, torch: all are shown."""
    subject = synthetic()
    shown = " ".join(read_page(html_page.document([subject])).text.split())
    for each in (
        subject.sentence,
        "mask at the bottom",
        "put it on top",
        "sample 1, head 2, row 3, column 0",
        "0.5, allowed 0.001 (500 times)",
        CASE.id,
        f"mha-parity replay {CASE.id} x:f",
        "causal 40 of 50",
        "2.13.0",
    ):
        assert each in shown


def test_many_failures_are_folded(
    synthetic: Callable[..., Verdict],
    read_page: Callable[[str], Any],
    as_check: Callable[..., Failure],
) -> None:
    """The first shrunk failure is shown at once; what else fails is folded, each or together."""
    (failure,) = synthetic().failures
    others = [as_check(failure, f"check {i}", shrunk_from=None) for i in range(4)]
    shrunk = [as_check(failure, f"shrunk {i}") for i in range(2)]
    read = read_page(html_page.document([synthetic(failures=(*others, *shrunk))]))
    cards = [
        "details" in (tag, *around)
        for tag, attributes, around in read.elements
        if attributes.get("class") == "card failure"
    ]
    assert [False, True, True, True, True, True] == cards
    assert "4 more of what fails" in read.text


def test_seen_in_is_a_link(
    synthetic: Callable[..., Verdict], read_page: Callable[[str], Any]
) -> None:
    """A thread of a repository can be followed; a source without an address is text."""
    found = Diagnosis(bug="scale", title="scale", seen_in="a/b#12, the work of students")
    text = html_page.document([synthetic(diagnosis=(found,))])
    links = [a["href"] for a in read_page(text).attributes("a")]
    assert ["https://github.com/a/b/issues/12"] == links
    assert "the work of students" in read_page(text).text


def test_the_line_that_raised_is_marked(synthetic: Callable[..., Verdict]) -> None:
    """Of a long definition the lines around the one that raised are shown, and it is marked."""
    code = "\n".join(f"line {number}" for number in range(10, 210))
    source = Source("code.py", 10, code, 150)
    text = html_page.document([synthetic(source=source)])
    (marked,) = re.findall(r'<tr class="raised"><th scope="row">(\d+)</th><td>(.*?)</td>', text)
    assert ("150", "line 150") == marked
    numbers = [int(n) for n in re.findall(r'<th scope="row">(\d+)</th><td>line', text)]
    assert list(range(130, 190)) == numbers
    assert "code.py:150" in text


@pytest.mark.parametrize(("line", "first"), [(150, "130"), (3, "3")], ids=("inside", "outside"))
def test_the_suspect_line_is_marked(
    line: int, first: str, synthetic: Callable[..., Verdict]
) -> None:
    """The line of the cause is marked in its definition; one of a helper stands before that."""
    code = "\n".join(f"line {number}" for number in range(10, 210))
    source = Source("code.py", 10, code, suspects=((line, f"line {line}"),))
    text = html_page.document([synthetic(source=source)])
    (marked,) = re.findall(r'<tr class="suspect"><th scope="row">(\d+)</th><td>(.*?)</td>', text)
    assert (str(line), f"line {line}") == marked
    numbers = re.findall(r'<th scope="row">(\d+)</th><td>line', text)
    assert first == numbers[0]
    assert f"Look at this line first: <code>code.py:{line}</code>" in text
    plain = html_page.document([synthetic(source=Source("code.py", 10, code))])
    assert "Look at this line first" not in plain


def test_what_tells_most_comes_first(synthetic: Callable[..., Verdict]) -> None:
    """Axes stand in the order of how unevenly their values fail."""
    rows = (
        FeatureRow("bias", "no", "fail", 100, "", 20),
        FeatureRow("bias", "yes", "fail", 100, "", 25),
        FeatureRow("heads", "one", "pass", 100),
        FeatureRow("heads", "many", "fail", 100, "", 45),
    )
    weighed = correlations.by_concentration(synthetic(features=rows))
    assert ["heads", "bias"] == [axis.name for axis in weighed]


def errors() -> tuple[CaseError, ...]:
    """Return errors of all kinds: zero, allowed, not finite, not measured, in two dtypes."""
    return tuple(
        CaseError(dtype, keys, units, times, units > 1)
        for dtype in ("float64", "float32")
        for keys, units, times in ((1, 0.0, np.nan), (9, 0.5, 0.9), (70, np.inf, 40.0))
    )


def test_errors_are_plotted(
    synthetic: Callable[..., Verdict],
    foreign: Callable[[str], list[str]],
    unheard: Callable[[str], list[str]],
    read_page: Callable[[str], Any],
) -> None:
    """Both plots are on the page with their names; the allowed error and torch's are drawn."""
    text = html_page.document([synthetic(case_errors=errors())])
    names = [svg["aria-label"] for svg in read_page(text).attributes("svg")]
    assert 2 == sum(name.startswith("error") for name in names)
    assert "allowed" in re.findall(r">\s*(\w+)\s*</text>", plots.error_by_size(errors()))
    assert "a dash is its" not in text
    bounded = tuple(dataclasses.replace(each, bound=30.0) for each in errors())
    assert "bound" in re.findall(r">\s*(\w+)\s*</text>", plots.error_by_size(bounded))
    assert "a dash is its rounding-error bound" in plots.size_caption(bounded)
    assert [] == foreign(text) + unheard(text)
    assert "" == plots.accuracy_plot([dataclasses.replace(errors()[0], times_torch=np.nan)])


def test_a_run_keeps_its_errors(judged: Callable[..., Verdict]) -> None:
    """A run with pictures keeps the error of each compared output; others keep none."""
    verdict = judged("wrong_scale.py:f", cases=12, draw=True, diagnose=False, shrink=False)
    assert verdict.failed == sum(each.fails and each.units > 1 for each in verdict.case_errors)
    assert 12 == len(verdict.case_errors)
    assert any(each.times_torch > 0 for each in verdict.case_errors)
    assert all(each.fails == (each.units > each.bound) for each in verdict.case_errors)
    plain = judged("wrong_scale.py:f", cases=2, diagnose=False, shrink=False, draw=False)
    assert () == plain.case_errors
