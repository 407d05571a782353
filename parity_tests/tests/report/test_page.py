"""The page: one file that needs no network and no script from elsewhere, and that all can read."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mha_parity.core.verdict import (
    Diagnosis,
    Verdict,
)
from mha_parity.report import html_page

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

LOADING = {"src", "href", "xlink:href", "srcset", "poster", "data", "action", "background"}
HOSTILE = '<script src="https://example.org/x.js">alert(1)</script>'
MOST = 1_500_000  # bytes
OWN_SCRIPT = Path(html_page.__file__).with_name("page.js").read_text("utf-8").strip()


@pytest.fixture(
    scope="module",
    params=[
        "synthetic",
        "passing",
        "wrong_scale",
        "crash",
        "two",
        "hostile",
        "gradients",
    ],
)
def text(
    request: pytest.FixtureRequest,
    synthetic: Callable[..., Verdict],
    judged: Callable[..., Verdict],
) -> str:
    """Return the page of each kind of run."""
    few = {"cases": 30, "draw": True}
    match request.param:
        case "synthetic":
            verdicts = [synthetic()]
        case "passing":
            verdicts = [judged("projected.py:f", **few)]
        case "crash":
            verdicts = [judged("misbehaving.py:raises_over_one_head", **few)]
        case "two":
            verdicts = [synthetic(), judged("projected.py:f", cases=2, draw=True)]
        case "hostile":
            verdicts = [hostile(synthetic)]
        case "gradients":
            verdicts = [judged("numpy_vjp.py:ForgetsFirstHead", grad=True, **few)]
        case name:
            verdicts = [judged(f"{name}.py:f", **few)]
    return html_page.document(verdicts)


def hostile(synthetic: Callable[..., Verdict]) -> Verdict:
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


def test_nothing_comes_from_elsewhere(text: str, foreign: Callable[[str], list[str]]) -> None:
    """No frame, sheet, picture or font is loaded; the one script is the page's own."""
    assert [] == foreign(text)


def test_it_is_well_formed(text: str, read_page: Callable[[str], Any]) -> None:
    """What is opened is closed in its order, ids are unique, and anchors lead somewhere."""
    read = read_page(text)
    assert [] == read.open
    ids = Counter(a["id"] for _, a, _ in read.elements if "id" in a)
    assert [] == [name for name, count in ids.items() if count > 1]
    inner = {a[k][1:] for _, a, _ in read.elements for k in LOADING if a.get(k, "").startswith("#")}
    assert inner <= set(ids)


def test_it_can_be_heard(text: str, unheard: Callable[[str], list[str]]) -> None:
    """Pictures have names, tables have headers, headings go down by one, the language is said."""
    assert [] == unheard(text)


@pytest.mark.repeats(2)
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
def test_what_should_not_be_there_is_found(
    planted: str,
    found: list[str],
    foreign: Callable[[str], list[str]],
    unheard: Callable[[str], list[str]],
) -> None:
    """The two rules above find each offender that is planted."""
    assert found == foreign(planted) + unheard(planted)


def test_it_is_small(text: str) -> None:
    """The page weighs less than 1.5 MB."""
    assert len(text.encode()) < MOST


def test_the_same_verdict_gives_the_same_page(synthetic: Callable[..., Verdict]) -> None:
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
