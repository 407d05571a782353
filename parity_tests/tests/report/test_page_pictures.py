"""Weights and gradients on the page: what is drawn first, in which units and colours."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mha_parity.core.report_arrays import (
    GradientMatrix,
    GradientPicture,
    MatrixAxis,
)
from mha_parity.core.verdict import (
    Failure,
    Verdict,
)
from mha_parity.report import heatmaps, html_page

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

MOST = 1_500_000  # bytes


def test_pictures_of_many_failures_are_small(
    synthetic: Callable[..., Verdict], as_check: Callable[..., Failure]
) -> None:
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
    failures = tuple(as_check(failure, name) for name in checks)
    pictures = tuple(dataclasses.replace(large, check=name) for name in checks)
    whole = html_page.document([synthetic(failures=failures, pictures=pictures)])
    assert 36 == whole.count("<figure>")
    assert len(whole.encode()) < MOST


@pytest.mark.parametrize(
    ("difference", "said"),
    [
        ([[0.5, -2.0]], "up to 2"),
        ([[np.nan, np.nan]], "no number"),
        ([[0.25, np.nan]], "up to 0.25, no number in 1 of 2"),
        (np.zeros((0, 3)), "up to 0"),
    ],
)
def test_a_difference_that_is_no_number_is_said(difference: Any, said: str) -> None:
    """The caption of NaN is no distance of 0."""
    assert said == html_page.reach(np.asarray(difference))


def test_a_picture_of_another_case_says_so(synthetic: Callable[..., Verdict]) -> None:
    """The failing case itself needs no words; a larger one, and one that fails by numbers, do."""
    verdict = synthetic()
    (picture,), (failure,) = verdict.pictures, verdict.failures
    units = np.full(picture.error_units.shape, 2.0)
    case = picture.case.replace(seed=picture.case.seed + 1)
    other = dataclasses.replace(picture, case=case, error_units=units)
    nan = dataclasses.replace(failure.check_result, error=np.inf)
    heading = html_page.picture_heading
    same = dataclasses.replace(failure, case=picture.case)
    assert "" == heading(picture, same)
    assert "The same at sizes that show more" == heading(other, same)
    by_nan = dataclasses.replace(same, check_result=nan)
    assert "Another case that fails, by finite numbers" == heading(other, by_nan)


def test_the_worst_head_comes_first(
    synthetic: Callable[..., Verdict], read_page: Callable[[str], Any]
) -> None:
    """The head with the largest error is drawn at once; the others are folded."""
    (picture,) = synthetic().pictures
    assert [1, 0, 2] == html_page.heads(picture)
    read = read_page(html_page.document([synthetic()]))
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
    assert shown == html_page.format_units(value)
    assert heat == pytest.approx(html_page.excess_colour(value), rel=4 * np.finfo(float).eps)


def test_unknown_weights_are_drawn_as_unknown(synthetic: Callable[..., Verdict]) -> None:
    """Where only torch's weights are known there is one map; a weight not known is a `?`."""
    (picture,) = synthetic().pictures
    without = dataclasses.replace(picture, candidate_weights=None, source="none are returned")
    assert 3 == html_page.document([synthetic(pictures=(without,))]).count("<figure>")
    weights = np.array(picture.reference_weights)
    weights[0, 0, 0] = np.nan
    some = dataclasses.replace(picture, candidate_weights=weights)
    whole = html_page.document([synthetic(pictures=(some,))])
    assert ">?<" in re.sub(r">\s*\?\s*<", ">?<", whole)


@pytest.fixture
def graded(
    synthetic: Callable[..., Verdict], as_check: Callable[..., Failure]
) -> Callable[[np.ndarray, float], Verdict]:
    """Return a function for a verdict whose one failure is a gradient, in blocks and heads."""

    def verdict(reference: np.ndarray, off: float) -> Verdict:
        (failure,) = synthetic().failures
        gradient_matrices = tuple(
            GradientMatrix(name, reference + off, reference) for name in ("head 1", "head 0")
        )
        picture = GradientPicture(
            check="gradient of in_proj_weight",
            case=failure.case,
            sample=-1,
            gradient_matrices=gradient_matrices,
            rows=MatrixAxis("row", ("q", "k", "v"), 2),
            columns=MatrixAxis("column"),
            error_units=np.array([[0.5, 40.0], [0.1, 0.2], [0.3, np.inf]]),
            unit_rows=("q", "k", "v"),
            unit_columns=("head 0", "head 1"),
        )
        failures = (as_check(failure, picture.check),)
        return synthetic(failures=failures, pictures=(), gradient_pictures=(picture,))

    return verdict


def test_a_failing_gradient_is_drawn(
    foreign: Callable[[str], list[str]],
    unheard: Callable[[str], list[str]],
    read_page: Callable[[str], Any],
    graded: Callable[..., Verdict],
) -> None:
    """Target, torch and difference of each plate, the first one open, with a table of errors."""
    verdict = graded(np.random.default_rng(5).normal(size=(6, 4)), 0.25)
    text = html_page.document([verdict])
    read = read_page(text)
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


def test_columns_have_the_numbers_of_the_whole_array(graded: Callable[..., Verdict]) -> None:
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
def test_gradients_of_any_size_have_digits(
    largest: float, said: str, graded: Callable[..., Verdict]
) -> None:
    """Numbers far from 1 are drawn in units of a power of ten, and the caption says which."""
    reference = largest * np.linspace(-1, 1, 24).reshape(6, 4)
    (picture,) = graded(reference, 0.0).gradient_pictures
    (target, torch, _), _ = html_page.gradient_matrices(picture)
    assert (f"the target, head 1{said}", f"torch, head 1{said}") == (target[0], torch[0])


def test_rounding_has_no_colour_beside_an_error(graded: Callable[..., Verdict]) -> None:
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


def test_the_lines_are_explained(graded: Callable[..., Verdict]) -> None:
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
        assert sentence == html_page.separator_caption(changed)


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
    assert shown == heatmaps.cell_text(value)


def test_no_line_of_a_note_breaks_within_an_option() -> None:
    """Options and hyphenated values are whole; words, minus signs and HTML are left alone."""
    text = html_page.unbroken("a - b < c: --strict-overflow fails it, along sdpa-math")
    assert (
        'a - b &lt; c: <span class="unbroken">--strict-overflow</span> fails it, '
        'along <span class="unbroken">sdpa-math</span>'
    ) == text
