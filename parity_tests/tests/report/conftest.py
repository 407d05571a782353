"""What the tests of reports share: verdicts, and what a page has and should not have."""

from __future__ import annotations

import dataclasses
import io
import itertools
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import mha_parity.report
from mha_parity.core.case import parse
from mha_parity.core.check_result import CheckResult, Place, Severity
from mha_parity.core.features import AXES
from mha_parity.core.options import Options
from mha_parity.core.report_arrays import WeightsPicture
from mha_parity.core.verdict import (
    CheckRow,
    Diagnosis,
    Failure,
    FailureGroup,
    FeatureRow,
    Outcome,
    Verdict,
)
from mha_parity.report import terminal
from mha_parity.run.check import check
from mha_parity.run.summary import PARTIAL_BIASES
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from subject_checks import SUBJECTS

CASE = parse("mha-N2-L5-S7-H3-D4-cross-causal-float32-s11")
FIRST = parse("mha-N3-L13-S17-H5-D7-cross-bias-outproj-causal-weights-float32-peaky-fortran-s11")
TARGET = "projects/with/a/long/path.py:attention"
VOID = {"meta", "br", "img", "wbr", "path", "use", "rect", "image", "line", "circle", "stop"}
LOADING = {"src", "href", "xlink:href", "srcset", "poster", "data", "action", "background"}
OWN_SCRIPT = (Path(next(iter(mha_parity.report.__path__))) / "page.js").read_text("utf-8").strip()


class Page(HTMLParser):
    """The elements of a page: tag, attributes and text, with the tags around each."""

    def __init__(self, text: str) -> None:
        """Read a whole page."""
        super().__init__()
        self.elements: list[tuple[str, dict[str, str], tuple[str, ...]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep an element, and remember that it is open."""
        self.elements.append((tag, {k: v or "" for k, v in attrs}, tuple(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep an element that closes itself."""
        self.elements.append((tag, {k: v or "" for k, v in attrs}, tuple(self.open)))

    def handle_endtag(self, tag: str) -> None:
        """Close the innermost element, which has to be this one."""
        if tag in VOID:
            return
        assert self.open
        assert tag == self.open[-1]
        self.open.pop()

    def handle_data(self, data: str) -> None:
        """Keep the text that is shown."""
        if not {"style", "script"} & set(self.open):
            self.text += data

    def attributes(self, *tags: str) -> list[dict[str, str]]:
        """Return the attributes of every element of these kinds."""
        return [attributes for tag, attributes, _ in self.elements if tag in tags]


def _synthetic(**changes: Any) -> Verdict:
    """Return a failing verdict with a picture and a text on everything a report can say."""
    check_result = CheckResult(
        case=CASE,
        check="output",
        severity=Severity.WRONG,
        error=0.5,
        allowed=0.001,
        where=Place(1, 2, 3, 0),
        detail="output is 1.5, but should be 1.0",
    )
    draws = np.random.default_rng(11).dirichlet(np.ones(7), size=(2, 3, 5))
    picture = WeightsPicture(
        check="output",
        case=CASE,
        sample=1,
        averaged=False,
        source="as the target returns them",
        candidate_weights=draws[0],
        reference_weights=draws[1],
        error_units=np.array([[0.2, 0.9, 1.0, 0.0, 0.01], [2.0, 30.0, 400.0, 5e7, np.inf]] * 2)[:3],
    )
    replay = f"mha-parity replay {CASE.id} x:f"
    fields: dict[str, Any] = {
        "target": "x:f",
        "convention": "torch-module",
        "outcome": Outcome.FAIL,
        "run": 200,
        "passed": 160,
        "failed": 40,
        "inconclusive": 0,
        "features": (
            FeatureRow("attn", "none", "pass", 150),
            FeatureRow("attn", "causal", "fail", 50, "40 of 50 fail", 40),
            FeatureRow("attn", "bool2d", "not offered", 0),
        ),
        "failure_groups": (FailureGroup(common=(("attn", ("causal",)),)),),
        "checks": (CheckRow("output", 200, 40),),
        "failures": (
            Failure(
                check_result=check_result,
                case=CASE,
                replay=replay,
                shrunk_from=CASE.replace(seed=3),
            ),
        ),
        "diagnosis": (
            Diagnosis(bug="causal-bottom", title="mask at the bottom", remedy="put it on top"),
        ),
        "pictures": (picture,),
        "environment": {"torch": "2.13.0", "numpy": "2.4.6"},
    }
    return Verdict(**{**fields, **changes})


def _foreign(text: str) -> list[str]:
    """List what a page would load or run."""
    read = Page(text)
    banned = {"iframe", "link", "object", "embed", "base", "form"}
    found = [tag for tag, _, _ in read.elements if tag in banned]
    # A link loads nothing before it is followed.
    for attributes in (a for tag, a, _ in read.elements if tag != "a"):
        loads = {k: v for k, v in attributes.items() if k in LOADING}
        found += [f"{k}={v}" for k, v in loads.items() if not v.startswith(("#", "data:"))]
        found += [k for k in attributes if k.startswith("on")]
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", text, flags=re.DOTALL)
    found += ["script"] * sum(script.strip() != OWN_SCRIPT for script in scripts)
    styles = "".join(re.findall(r"<style>(.*?)</style>", text, flags=re.DOTALL))
    return found + re.findall(r"url\(|@import", styles)


def _unheard(text: str) -> list[str]:
    """List what a reader who does not see the page would miss."""
    read = Page(text)
    found = [tag for tag, a, _ in read.elements if tag == "html" and a.get("lang") != "en"]
    for tag, attributes, _ in read.elements:
        pictured = tag == "svg" or attributes.get("role") == "img"
        if pictured and not attributes.get("aria-label"):
            found.append(f"{tag} without a name")
        if tag == "th" and attributes.get("scope") not in {"row", "col"}:
            found.append("th without a scope")
    levels = [0, *(int(tag[1]) for tag, _, _ in read.elements if re.fullmatch(r"h\d", tag))]
    found += [f"h{low} after h{high}" for high, low in itertools.pairwise(levels) if low > high + 1]
    return found


def _rows(axis: str, **counts: tuple[int, int]) -> list[FeatureRow]:
    """Return the rows of one axis from (cases, failed) by value; other values are not offered."""
    found = []
    for value in (v for v in AXES[axis] if (axis, v) not in PARTIAL_BIASES or v in counts):
        cases, failed = counts.get(value, (-1, 0))
        status = "not offered" if cases < 0 else "fail" if failed else "pass"
        status = "inconclusive" if cases == 0 else status
        found.append(FeatureRow(axis, value, status, max(cases, 0), failed=failed))
    return found


def _common_verdict(run: int = 200, failed: int = 40, **changes: Any) -> Verdict:
    """Return a verdict in which causal cases fail, whatever their dtype and regime."""
    features = [
        *_rows("form", mha=(run, failed)),
        *_rows("dtype", float64=(run // 2, failed // 2), float32=(run // 2, failed // 2)),
        *_rows("attn", none=(run - 50, 0), causal=(50, failed)),
        *_rows("regime", normal=(run - 12, failed - 1), tiny=(9, 1), ties=(3, 0)),
        *_rows("bias", no=(run, failed)),
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
    failure = Failure(check_result=check_result, case=CASE, replay=replay, shrunk_from=FIRST)
    fields: dict[str, Any] = {
        "target": TARGET,
        "convention": "torch-module",
        "outcome": Outcome.FAIL if failed else Outcome.PASS,
        "run": run,
        "passed": run - failed,
        "failed": failed,
        "inconclusive": 0,
        "features": tuple(features),
        "failure_groups": (FailureGroup(common=(("attn", ("causal",)),)),) if failed else (),
        "checks": (),
        "failures": (failure,) if failed else (),
        "environment": {"torch": "2.13.0", "numpy": "2.4.6"},
    }
    return Verdict(**{**fields, **changes})


def _shown(subject: Verdict, width: int = 80, height: int = 100, *, verbose: bool = False) -> str:
    """Return the report as a console of that width prints it."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, height=height, color_system=None)
    terminal.print_verdict(subject, console, verbose=verbose)
    return stream.getvalue()


@pytest.fixture(scope="session")
def judged() -> Callable[..., Verdict]:
    """Return a function that judges one of the subjects in this process, with the options given."""

    def judge(target: str, **options: Any) -> Verdict:
        return check(bind(load.load(f"{SUBJECTS}/{target}")), Options(**options), target=target)

    return judge


@pytest.fixture(scope="session")
def synthetic() -> Callable[..., Verdict]:
    """Return a function that makes a failing verdict with a picture and all that a report says."""
    return _synthetic


@pytest.fixture(scope="session")
def as_check() -> Callable[..., Failure]:
    """Return a function that makes a failure one of another check."""

    def changed(failure: Failure, name: str, **changes: Any) -> Failure:
        check_result = dataclasses.replace(failure.check_result, check=name)
        return dataclasses.replace(failure, check_result=check_result, **changes)

    return changed


@pytest.fixture(scope="session")
def read_page() -> type[Page]:
    """Return what reads a page: its elements, what is left open, and its text."""
    return Page


@pytest.fixture(scope="session")
def foreign() -> Callable[[str], list[str]]:
    """Return a function that lists what a page would load or run."""
    return _foreign


@pytest.fixture(scope="session")
def unheard() -> Callable[[str], list[str]]:
    """Return a function that lists what a reader who does not see a page would miss."""
    return _unheard


@pytest.fixture(scope="session")
def make_rows() -> Callable[..., list[FeatureRow]]:
    """Return a function that makes the rows of one axis from (cases, failed) by value."""
    return _rows


@pytest.fixture(scope="session")
def make_verdict() -> Callable[..., Verdict]:
    """Return a function that makes a verdict in which causal cases fail, or none."""
    return _common_verdict


@pytest.fixture(scope="session")
def shown() -> Callable[..., str]:
    """Return a function that returns the report as a console of some width prints it."""
    return _shown
