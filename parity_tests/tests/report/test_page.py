"""The page: one file that needs no network and no script from elsewhere, and that all can read."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mha_parity.core.case import parse
from mha_parity.core.check_result import CheckResult, Place, Severity
from mha_parity.core.options import Options
from mha_parity.core.pictures import (
    CaseError,
    GradientMatrix,
    GradientPicture,
    MatrixAxis,
    WeightsPicture,
)
from mha_parity.core.verdict import (
    CheckRow,
    Diagnosis,
    Failure,
    FeatureRow,
    Outcome,
    Source,
    Verdict,
)
from mha_parity.report import correlations, heatmaps, html_page, plots
from mha_parity.run.check import check
from mha_parity.targets import load
from mha_parity.targets.bind import bind

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

SUBJECTS = Path(__file__).parents[2] / "subjects"
CASE = parse("mha-N2-L5-S7-H3-D4-cross-causal-float32-s11")
VOID = {"meta", "br", "img", "wbr", "path", "use", "rect", "image", "line", "circle", "stop"}
LOADING = {"src", "href", "xlink:href", "srcset", "poster", "data", "action", "background"}
HOSTILE = '<script src="https://example.org/x.js">alert(1)</script>'
MOST = 1_500_000  # bytes
OWN_SCRIPT = Path(html_page.__file__).with_name("page.js").read_text("utf-8").strip()


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


def judged(target: str, **changes: Any) -> Verdict:
    """Return the verdict of a short run on one of the subjects, in this process."""
    bound = bind(load.load(f"{SUBJECTS}/{target}"))
    return check(bound, Options(**{"cases": 60, "draw": True, **changes}), target=target)


def synthetic(**changes: Any) -> Verdict:
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
        "checks": (CheckRow("output", 200, 40),),
        "failures": (
            Failure(
                check_result=check_result, case=CASE, replay=replay, first_seen=CASE.replace(seed=3)
            ),
        ),
        "diagnosis": (
            Diagnosis(bug="causal-bottom", title="mask at the bottom", remedy="put it on top"),
        ),
        "pictures": (picture,),
        "environment": {"torch": "2.13.0", "numpy": "2.4.6"},
    }
    return Verdict(**{**fields, **changes})


@pytest.fixture(
    scope="module",
    params=[
        "synthetic",
        "passing",
        "wrong_scale",
        "wrong_softmax_axis",
        "crash",
        "two",
        "hostile",
        "gradients",
    ],
)
def text(request: pytest.FixtureRequest) -> str:
    """Return the page of each kind of run."""
    match request.param:
        case "synthetic":
            verdicts = [synthetic()]
        case "passing":
            verdicts = [judged("projected.py:f")]
        case "crash":
            verdicts = [judged("misbehaving.py:raises_over_one_head")]
        case "two":
            verdicts = [synthetic(), judged("projected.py:f", cases=2)]
        case "hostile":
            verdicts = [hostile()]
        case "gradients":
            verdicts = [judged("numpy_vjp.py:ForgetsFirstHead", grad=True)]
        case name:
            verdicts = [judged(f"{name}.py:f")]
    return html_page.document(verdicts)


def hostile() -> Verdict:
    """Return a verdict in which every text tries to become part of the page."""
    (failure,) = synthetic().failures
    check_result = dataclasses.replace(failure.check_result, detail=HOSTILE)
    return synthetic(
        target=HOSTILE,
        failures=(dataclasses.replace(failure, check_result=check_result, replay=HOSTILE),),
        diagnosis=(Diagnosis(bug=HOSTILE, title=HOSTILE, remedy=HOSTILE, evidence=HOSTILE),),
        environment={"torch": HOSTILE},
        notes=(HOSTILE,),
    )


def foreign(text: str) -> list[str]:
    """List what a page would load or run."""
    read = Page(text)
    banned = {"iframe", "link", "object", "embed", "base", "form"}
    found = [tag for tag, _, _ in read.elements if tag in banned]
    # A link loads nothing before somebody follows it.
    for attributes in (a for tag, a, _ in read.elements if tag != "a"):
        loads = {k: v for k, v in attributes.items() if k in LOADING}
        found += [f"{k}={v}" for k, v in loads.items() if not v.startswith(("#", "data:"))]
        found += [k for k in attributes if k.startswith("on")]
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", text, flags=re.DOTALL)
    found += ["script"] * sum(script.strip() != OWN_SCRIPT for script in scripts)
    styles = "".join(re.findall(r"<style>(.*?)</style>", text, flags=re.DOTALL))
    return found + re.findall(r"url\(|@import", styles)


def unheard(text: str) -> list[str]:
    """List what somebody who does not see the page would miss."""
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


def test_nothing_comes_from_elsewhere(text: str) -> None:
    """No frame, sheet, picture or font is loaded; the one script is the page's own."""
    assert [] == foreign(text)


def test_it_is_well_formed(text: str) -> None:
    """What is opened is closed in its order, ids are unique, and anchors lead somewhere."""
    read = Page(text)
    assert [] == read.open
    ids = Counter(a["id"] for _, a, _ in read.elements if "id" in a)
    assert [] == [name for name, count in ids.items() if count > 1]
    inner = {a[k][1:] for _, a, _ in read.elements for k in LOADING if a.get(k, "").startswith("#")}
    assert inner <= set(ids)


def test_it_can_be_heard(text: str) -> None:
    """Pictures have names, tables have headers, headings go down by one, the language is said."""
    assert [] == unheard(text)


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ("<script>1</script>", ["script"]),
        ('<img src="https://example.org/x.png">', ["src=https://example.org/x.png"]),
        ('<p onclick="x()">', ["onclick"]),
        ("<style>p { background: url(x.png) }</style>", ["url("]),
        ("<svg></svg>", ["svg without a name"]),
        ("<th>name</th>", ["th without a scope"]),
        ("<h1>a</h1><h3>b</h3>", ["h3 after h1"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_should_not_be_there_is_found(planted: str, found: list[str]) -> None:
    """The two rules above find each offender that is planted."""
    assert found == foreign(planted) + unheard(planted)


def test_it_is_small(text: str) -> None:
    """The page weighs less than 1.5 MB."""
    assert len(text.encode()) < MOST


def test_pictures_of_many_failures_are_small() -> None:
    """Three failures drawn with four heads of 64 keys stay below 1.5 MB too."""
    (picture,) = synthetic().pictures
    draws = np.random.default_rng(0).dirichlet(np.ones(64), size=(2, 4, 64))
    large = dataclasses.replace(
        picture,
        candidate_weights=draws[0],
        reference_weights=draws[1],
        error_units=np.full((4, 64), 2.0),
    )
    checks = ("output", "weights", "permutation equivariance")
    (failure,) = synthetic().failures
    failures = tuple(replace(failure, name) for name in checks)
    pictures = tuple(dataclasses.replace(large, check=name) for name in checks)
    whole = html_page.document([synthetic(failures=failures, pictures=pictures)])
    assert 36 == whole.count("<figure>")
    assert len(whole.encode()) < MOST


def test_all_that_matters_is_on_it() -> None:
    """Verdict, bug, remedy, place, error, case, replay line, feature, torch: all are shown."""
    subject = synthetic()
    shown = " ".join(Page(html_page.document([subject])).text.split())
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


def test_many_failures_are_folded() -> None:
    """The first shrunk failure is shown at once; what else fails is folded, each or together."""
    (failure,) = synthetic().failures
    others = [replace(failure, f"check {i}", first_seen=None) for i in range(4)]
    shrunk = [replace(failure, f"shrunk {i}") for i in range(2)]
    read = Page(html_page.document([synthetic(failures=(*others, *shrunk))]))
    cards = [
        "details" in (tag, *around)
        for tag, attributes, around in read.elements
        if attributes.get("class") == "card failure"
    ]
    assert [False, True, True, True, True, True] == cards
    assert "4 more of what fails" in read.text


def replace(failure: Failure, name: str, **changes: Any) -> Failure:
    """Return the failure as one of another check."""
    check_result = dataclasses.replace(failure.check_result, check=name)
    return dataclasses.replace(failure, check_result=check_result, **changes)


def test_the_worst_head_comes_first() -> None:
    """The head with the largest error is drawn at once; the others are folded."""
    (picture,) = synthetic().pictures
    assert [1, 0, 2] == html_page.heads(picture)
    read = Page(html_page.document([synthetic()]))
    maps = [
        (a["aria-label"], "details" in around) for tag, a, around in read.elements if tag == "svg"
    ]
    assert 9 == len(maps)
    assert [("weights of the target, head 1", False), ("weights of torch, head 1", False)] == maps[
        :2
    ]
    assert all(folded for _, folded in maps[3:])


@pytest.mark.parametrize(
    ("value", "shown", "heat"),
    [
        (0.0, "0", 0.0),
        (0.01, "<0.1", 0.0),
        (1.0, "1", 0.0),
        (2.0, "2", 0.25 + 0.75 * np.log10(2) / 6),
        (412.0, "412", 0.25 + 0.75 * np.log10(412) / 6),
        (5e7, "5.0e7", 1.0),
        (np.inf, "no number", 1.0),
        (np.nan, "no number", 1.0),
    ],
    ids=str,
)
def test_units_of_the_allowed_error(value: float, shown: str, heat: float) -> None:
    """What is within the allowed error has no heat; above it heat grows with the magnitude."""
    assert shown == html_page.units(value)
    assert heat == pytest.approx(html_page.heat(value), rel=4 * np.finfo(float).eps)


def test_unknown_weights_are_drawn_as_unknown() -> None:
    """Where only torch's weights are known there is one map; a weight not known is a `?`."""
    (picture,) = synthetic().pictures
    without = dataclasses.replace(picture, candidate_weights=None, source="none are returned")
    assert 3 == html_page.document([synthetic(pictures=(without,))]).count("<figure>")
    weights = np.array(picture.reference_weights)
    weights[0, 0, 0] = np.nan
    some = dataclasses.replace(picture, candidate_weights=weights)
    whole = html_page.document([synthetic(pictures=(some,))])
    assert ">?<" in re.sub(r">\s*\?\s*<", ">?<", whole)


def graded(reference: np.ndarray, off: float) -> Verdict:
    """Return a verdict whose one failure is a gradient, drawn in blocks and heads."""
    gradient_matrices = tuple(
        GradientMatrix(name, reference + off, reference) for name in ("head 1", "head 0")
    )
    picture = GradientPicture(
        check="gradient of in_proj_weight",
        case=CASE,
        sample=-1,
        gradient_matrices=gradient_matrices,
        rows=MatrixAxis("row", ("q", "k", "v"), 2),
        columns=MatrixAxis("column"),
        error_units=np.array([[0.5, 40.0], [0.1, 0.2], [0.3, np.inf]]),
        unit_rows=("q", "k", "v"),
        unit_columns=("head 0", "head 1"),
    )
    (failure,) = synthetic().failures
    failures = (replace(failure, picture.check),)
    return synthetic(failures=failures, pictures=(), gradient_pictures=(picture,))


def test_a_failing_gradient_is_drawn() -> None:
    """Target, torch and difference of each plate, the first one open, with a table of errors."""
    verdict = graded(np.random.default_rng(5).normal(size=(6, 4)), 0.25)
    text = html_page.document([verdict])
    read = Page(text)
    svgs = [
        (a["aria-label"], "details" in around) for tag, a, around in read.elements if tag == "svg"
    ]
    named = "gradient of in_proj_weight"
    assert [
        (f"{named}: the target, head 1", False),
        (f"{named}: torch, head 1", False),
        (f"{named}: target − torch, head 1: up to 0.25", False),
    ] == svgs[:3]
    assert [True] * 3 == [folded for _, folded in svgs[3:]]
    assert "thick lines part q, k and v, thin ones the heads" in " ".join(read.text.split())
    cells = re.findall(r'<td class="(within|beyond)"[^>]*>([^<]*)</td>', text)
    assert [
        ("within", "0.5"), ("beyond", "40"), ("within", "0.1"), ("within", "0.2"),
        ("within", "0.3"), ("beyond", "no number"),
    ] == cells  # fmt: skip
    assert [] == foreign(text) + unheard(text)


def test_columns_have_the_numbers_of_the_whole_array() -> None:
    """The columns of a later head are numbered on, as the place of an error names them."""
    (picture,) = graded(np.ones((6, 4)), 1.0).gradient_pictures
    head = dataclasses.replace(picture.gradient_matrices[0], first=70)
    (drawn,) = html_page.gradient_matrices(dataclasses.replace(picture, gradient_matrices=(head,)))
    numbers = re.findall(r">\s*(7\d)\s*<", drawn[0][1])
    assert ["70", "71", "72", "73"] == numbers


@pytest.mark.parametrize(
    ("largest", "said"),
    [(0.5, ""), (3.0, ""), (1e-4, ", in units of 10⁻⁴"), (2.5e12, ", in units of 10¹²")],
    ids=str,
)
def test_gradients_of_any_size_have_digits(largest: float, said: str) -> None:
    """Numbers far from 1 are drawn in units of a power of ten, and the caption says which."""
    reference = largest * np.linspace(-1, 1, 24).reshape(6, 4)
    (picture,) = graded(reference, 0.0).gradient_pictures
    (target, torch, _), _ = html_page.gradient_matrices(picture)
    assert (f"the target, head 1{said}", f"torch, head 1{said}") == (target[0], torch[0])


def test_rounding_has_no_colour_beside_an_error() -> None:
    """What differs by rounding in one head is drawn like 0 where another head is wrong."""
    reference = np.ones((6, 4))
    (picture,) = graded(reference, 0.25).gradient_pictures
    gradient_matrices = (
        picture.gradient_matrices[0],
        GradientMatrix("head 0", reference + 1e-15, reference),
        GradientMatrix("head 2", reference, reference),
    )
    _, rounding, right = html_page.gradient_matrices(
        dataclasses.replace(picture, gradient_matrices=gradient_matrices)
    )
    assert "target − torch, head 0: up to 1.1e-15" == rounding[2][0]
    fills = [set(re.findall(r"fill: #[0-9a-f]{6}", svg)) for _, svg in (rounding[2], right[2])]
    assert fills[0] == fills[1]


def test_the_lines_are_explained() -> None:
    """What is said of the lines in a map follows from what they part."""
    (picture,) = graded(np.ones((6, 4)), 1.0).gradient_pictures
    said = {
        (("q", "k", "v"), 2): "thick lines part q, k and v, thin ones the heads",
        (("q", "k", "v"), 1): "lines part q, k and v",
        ((), 2): "lines part the heads",
        ((), 1): "",
    }
    for (blocks, heads), sentence in said.items():
        changed = dataclasses.replace(picture, rows=MatrixAxis("row", blocks, heads))
        assert sentence == html_page.parted(changed)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (-0.001, "0"),
        (0.5, ".50"),
        (-0.126, "−.13"),
        (10.5, "10.50"),
        (-99.0, "−99.00"),
        (123.4, "1e2"),
        (-4e-9, "0"),
        (6.2e15, "6e15"),
        (np.nan, "?"),
    ],
    ids=str,
)
def test_numbers_in_cells(value: float, shown: str) -> None:
    """Two digits behind the point, the zero before it left out, and powers where it is far."""
    assert shown == heatmaps._short(value)


def test_the_same_verdict_gives_the_same_page() -> None:
    """Nothing of chance and no clock is in the page."""
    assert html_page.document([synthetic()]) == html_page.document([synthetic()])


def luminance(colour: str) -> float:
    """Return the relative luminance of #rrggbb, as WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, 1 to 21."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ink", ["ink", "quiet", "good", "bad", "open", "accent"])
@pytest.mark.parametrize("ground", ["paper", "card"])
def test_text_stands_out(theme: int, ink: str, ground: str) -> None:
    """Every colour of text has the contrast of 4.5 that WCAG asks for, on either ground."""
    css = Path(html_page.__file__).with_name("page.css").read_text("utf-8")
    pairs = re.findall(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", css)
    named = {name: pair[theme] for name, *pair in pairs}
    assert contrast(named[ink], named[ground]) >= 4.5
    assert contrast("#a0a0a0", "#ffffff") < 4.5


def test_the_script_is_in_the_page(text: str) -> None:
    """The page's own script stands in it once: it copies commands and fits a notebook's cell."""
    assert 1 == text.count("<script>")
    assert OWN_SCRIPT in text


def test_seen_in_is_a_link() -> None:
    """A thread of a repository can be followed; a source without an address is text."""
    found = Diagnosis(bug="scale", title="scale", source="a/b#12, the work of students")
    text = html_page.document([synthetic(diagnosis=(found,))])
    links = [a["href"] for a in Page(text).attributes("a")]
    assert ["https://github.com/a/b/issues/12"] == links
    assert "the work of students" in Page(text).text


def test_the_line_that_raised_is_marked() -> None:
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
def test_the_suspect_line_is_marked(line: int, first: str) -> None:
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


def test_what_tells_most_comes_first() -> None:
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


def test_errors_are_plotted() -> None:
    """Both plots are on the page with their names; the allowed error and torch's are drawn."""
    text = html_page.document([synthetic(case_errors=errors())])
    names = [svg["aria-label"] for svg in Page(text).attributes("svg")]
    assert 2 == sum(name.startswith("error") for name in names)
    assert "allowed" in re.findall(r">\s*(\w+)\s*</text>", plots.error_by_size(errors()))
    assert [] == foreign(text) + unheard(text)
    assert "" == plots.accuracy([dataclasses.replace(errors()[0], times_torch=np.nan)])


def test_a_run_keeps_its_errors() -> None:
    """A run with pictures keeps the error of each compared output; others keep none."""
    verdict = judged("wrong_scale.py:f", cases=20, diagnose=False, shrink=False)
    assert verdict.failed == sum(each.fails and each.units > 1 for each in verdict.case_errors)
    assert 20 == len(verdict.case_errors)
    assert any(each.times_torch > 0 for each in verdict.case_errors)
    plain = judged("wrong_scale.py:f", cases=2, diagnose=False, shrink=False, draw=False)
    assert () == plain.case_errors
