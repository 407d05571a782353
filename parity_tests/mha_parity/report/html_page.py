"""The verdict as one page for people: a file that needs no network and no script from elsewhere."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.report import (
    accuracy_table,
    correlations,
    heatmaps,
    plots,
    source_view,
    wording,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.report_arrays import GradientMatrix, GradientPicture, WeightsPicture
    from mha_parity.core.verdict import Failure, Refusal, Verdict

TEMPLATE = "page.html.jinja"
LINES = 24  # of what a target said before it broke
HEADS = 4  # drawn of a picture, the worst first
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
DECADES = 6.0  # errors of 10^6 times what is allowed, and larger ones, have the full colour


def document(
    verdicts: Sequence[Verdict] = (),
    pictures: Sequence[WeightsPicture] = (),
    refused: Sequence[Refusal] = (),
) -> str:
    """Return the HTML of a page of verdicts and of targets that were refused, or of pictures alone.

    Needs jinja2 and matplotlib.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    helpers = {
        "words": wording,
        "correlations": correlations,
        "precision": accuracy_table,
        "plots": plots,
        "source_lines": source_view.source_lines,
        "formatted": lambda detail: wording.shorten_output(detail, LINES),
        "picture_of_failure": picture_of_failure,
        "unbroken": unbroken,
        "picture_heading": picture_heading,
        "gradient_of": gradient_of,
        "heads": heads,
        "panels": panels,
        "gradient_matrices": gradient_matrices,
        "separator_caption": separator_caption,
        "unit_rows": unit_rows,
        "unit_columns": unit_columns,
        "format_units": format_units,
        "excess_colour": excess_colour,
        "share": css_percentage,
        "breakable": breakable,
    }
    template = environment.get_template(TEMPLATE)
    shown = {"verdicts": verdicts, "pictures": pictures, "refused": refused}
    return template.render(**shown, **helpers) + "\n"


def picture_of_failure(verdict: Verdict, failure: Failure) -> WeightsPicture | None:
    """Return the picture of one failure, if there is one."""
    found = (p for p in verdict.pictures if p.check == failure.check_result.check)
    return next(found, None) if failure.shrunk_from is not None else None


def gradient_of(verdict: Verdict, failure: Failure) -> GradientPicture | None:
    """Return the picture of one failing gradient, if there is one."""
    found = (p for p in verdict.gradient_pictures if p.check == failure.check_result.check)
    return next(found, None) if failure.shrunk_from is not None else None


def heads(picture: WeightsPicture) -> list[int]:
    """Return the heads to draw, the one with the largest error first."""
    count = len(picture.reference_weights)
    if len(picture.error_units) != count:
        return list(range(count))[:HEADS]
    worst = np.nan_to_num(picture.error_units, nan=np.inf).max(axis=1)
    return [int(head) for head in np.argsort(-worst, kind="stable")][:HEADS]


def panels(picture: WeightsPicture, head: int) -> list[tuple[str, str]]:
    """Return caption and SVG of the target's weights, of torch's, and of their difference."""
    where = "averaged over heads" if picture.averaged else f"head {head}"
    reference = picture.reference_weights[head]
    own: Array = reference if picture.candidate_weights is None else picture.candidate_weights[head]
    finite = np.concatenate([own, reference])[np.isfinite(np.concatenate([own, reference]))]
    most = float(np.clip(finite.max(initial=0), 0.01, 1))
    torch = (f"torch, {where}", heatmaps.weights_map(reference, f"weights of torch, {where}", most))
    if picture.candidate_weights is None:
        return [torch]
    with np.errstate(invalid="ignore"):
        difference = own - reference
    caption = f"target − torch, {where}: {reach(difference)}"
    return [
        (
            f"the target, {where}",
            heatmaps.weights_map(own, f"weights of the target, {where}", most),
        ),
        torch,
        (caption, heatmaps.difference_map(difference, caption, _least(picture))),
    ]


def reach(difference: Array) -> str:
    """Say how large the elements of a difference are, and how many are no number."""
    known = np.isfinite(difference)
    missing = int(difference.size - known.sum())
    if missing == difference.size and missing:
        return "no number"
    up_to = f"up to {np.abs(difference[known]).max(initial=0):.2g}"
    return f"{up_to}, no number in {missing} of {difference.size}" if missing else up_to


def picture_heading(picture: WeightsPicture, failure: Failure) -> str:
    """Say which case a picture shows, where it is another than that of its failure."""
    if picture.case == failure.case:
        return ""
    finite = np.isfinite(picture.error_units).all()
    if finite and not math.isfinite(failure.check_result.error):
        return "Another case that fails, by finite numbers"
    return "The same at sizes that show more"


def gradient_matrices(picture: GradientPicture) -> list[list[tuple[str, str]]]:
    """Return caption and SVG of target, torch and difference, of each head that is drawn."""
    largest = max(_furthest(_difference(matrix)) for matrix in picture.gradient_matrices) or 1.0
    return [
        _gradient_maps(picture, matrix, largest) for matrix in picture.gradient_matrices[:HEADS]
    ]


def _gradient_maps(
    picture: GradientPicture, matrix: GradientMatrix, largest: float
) -> list[tuple[str, str]]:
    """Return the three maps of one head.

    The target's has the colours of torch's range; a difference of ``largest`` has the full colour.
    """
    sides = (picture.rows, dataclasses.replace(picture.columns, first=matrix.first))
    where = f", {matrix.name}" if matrix.name else ""
    most = _furthest(matrix.reference) or _furthest(matrix.candidate) or 1.0
    difference = _difference(matrix)
    caption = f"target − torch{where}: up to {_furthest(difference):.2g}"
    parts = (
        (f"the target{where}", matrix.candidate, most, heatmaps.gradient_map),
        (f"torch{where}", matrix.reference, most, heatmaps.gradient_map),
        (caption, difference, largest, heatmaps.gradient_difference_map),
    )
    drawn = []
    for caption, array, most, draw in parts:
        unit, said = _unit(most)
        title = f"{picture.check}: {caption}"
        drawn.append((caption + said, draw(array / unit, title, most / unit, sides)))
    return drawn


def _difference(matrix: GradientMatrix) -> Array:
    with np.errstate(invalid="ignore"):
        return np.asarray(matrix.candidate - matrix.reference)


def _furthest(array: Array) -> float:
    return float(np.abs(array[np.isfinite(array)]).max(initial=0))


def _unit(largest: float) -> tuple[float, str]:
    """Return what to divide by so that two digits behind the point tell something, in words too."""
    power = math.floor(math.log10(largest))
    return (1.0, "") if power in {-1, 0} else (10.0**power, f", in units of 10{_raised(power)}")


def _raised(power: int) -> str:
    """Return a power in small raised digits, which no line breaks."""
    return str(power).translate(RAISED)


def separator_caption(picture: GradientPicture) -> str:
    """Say what the lines in the maps part."""
    sides = (picture.rows, picture.columns)
    blocks = any(side.blocks for side in sides)
    are_heads_separate = any(side.heads > 1 for side in sides)
    if blocks and are_heads_separate:
        return "thick lines part q, k and v, thin ones the heads"
    return (
        "lines part q, k and v" if blocks else "lines part the heads" if are_heads_separate else ""
    )


def _least(picture: WeightsPicture) -> float:
    """Return which difference is to have the full colour: rounding alone is to have none."""
    return 0.1 if (picture.error_units <= 1).all() else 0.0


def unit_rows(picture: WeightsPicture) -> list[str]:
    """Return the names of the rows of the output's errors: the heads."""
    by_head = len(picture.error_units) == picture.case.heads_count
    return [f"head {i}" if by_head else "all heads" for i in range(len(picture.error_units))]


def unit_columns(picture: WeightsPicture) -> list[str]:
    """Return the names of their columns: the rows of the output."""
    return [f"row {row}" for row in range(picture.error_units.shape[1])]


def breakable(text: str) -> str:
    """Return HTML in which long names may break behind their punctuation."""
    import markupsafe

    pieces = re.split(r"(?<=[/:._])(?=\w)", text)
    return markupsafe.Markup("<wbr>").join(pieces)


def unbroken(text: str) -> str:
    """Return HTML in which no line breaks at a hyphen of an option or a name."""
    import markupsafe

    pieces = re.split(r"((?<![\w-])-{0,2}[A-Za-z]\w*(?:-\w+)+)", text)
    marked = [
        markupsafe.Markup('<span class="unbroken">{}</span>').format(piece) if at % 2 else piece
        for at, piece in enumerate(pieces)
    ]
    return markupsafe.Markup("").join(marked)


def format_units(value: float) -> str:
    """Return a number of allowed errors in few characters."""
    if not math.isfinite(value):
        return "no number"
    if value < 0.095:
        return "0" if value == 0 else "<0.1"
    if value < 1000:
        return f"{value:.2g}" if value < 10 else f"{value:.0f}"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def excess_colour(value: float) -> float:
    """Return how far an error is beyond what is allowed, 0 (within) to 1 (``DECADES`` beyond)."""
    if not value > 1:
        return 1.0 if math.isnan(value) else 0.0
    return min(0.25 + 0.75 * math.log10(value) / DECADES, 1.0)


def css_percentage(part: int, whole: int) -> str:
    """Return a part as a percentage for CSS."""
    return f"{100 * part / whole:.2f}%" if whole else "0%"
