"""Heat maps of weights and gradients as SVG inside a page, in its light and its dark."""

from __future__ import annotations

import hashlib
import html
import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.report_arrays import MatrixAxis

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array

    Sides = tuple[MatrixAxis, MatrixAxis]

BAR, BAR_GAP, BAR_ROOM = 0.09, 0.08, 0.42  # of the colour bar: its width, before it, for its ticks
CELL = 0.34  # inches
SMALLEST, LARGEST = 1.6, 3.4
FRAME = 0.62  # for the labels of both axes
NUMBERED = (30, 9)  # rows and columns: in larger maps numbers in the cells would not be legible
NAMES = 0.16  # for the names of blocks of rows
MOST_SHAPES = 1000  # cells: more of them are one embedded image
WEIGHTS = "cividis"  # grows brighter evenly, and alike for people who see two colours
DIFFERENCE = "PuOr"  # two hues that differ for the colour-blind too
SIGNED = "RdBu"  # as well, and no hues of a difference
INK = "#010203"  # stands for the page's own text colour
TWO_DECIMALS_BELOW = 99.995  # from here on two digits behind the point do not fit into a cell
PARTED = "#222222"  # a line over cells, which have the same colours in the dark
QUERIES, KEYS = MatrixAxis("query"), MatrixAxis("key")


def weights_map(weights: Array, title: str, most: float = 1.0) -> str:
    """Return attention weights (L, S') between 0 and ``most``, which has the brightest colour."""
    return _svg(weights, title, WEIGHTS, (0.0, most))


def difference_map(difference: Array, title: str, least: float = 0.0) -> str:
    """Return signed differences (L, S') around 0; ``least`` has the full colour, or the largest."""
    finite = np.abs(difference[np.isfinite(difference)])
    reach = float(finite.max(initial=least)) or 1.0
    return _svg(difference, title, DIFFERENCE, (-reach, reach))


def gradient_map(gradient: Array, title: str, most: float, sides: Sides) -> str:
    """Return signed numbers; ``most`` and what is larger have the full colour."""
    return _svg(gradient, title, SIGNED, (-most, most), sides)


def gradient_difference_map(difference: Array, title: str, most: float, sides: Sides) -> str:
    """Return the same in the colours of a difference."""
    return _svg(difference, title, DIFFERENCE, (-most, most), sides)


def _svg(
    values: Array,
    title: str,
    colours: str,
    between: tuple[float, float],
    sides: Sides = (QUERIES, KEYS),
) -> str:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows, columns = values.shape
    width = min(max(columns * CELL, SMALLEST), LARGEST)
    height = min(max(rows * CELL, min(SMALLEST, width * rows / columns)), LARGEST)
    names = NAMES if len(sides[0].blocks) not in {0, rows} else 0
    whole = width + FRAME + names + BAR_GAP + BAR_ROOM
    # The salt makes ids that are the same on every run, and unlike those of other maps in a page.
    salt = hashlib.sha256(title.encode() + np.ascontiguousarray(values).tobytes()).hexdigest()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 8}):
        figure = Figure(figsize=(whole, height + FRAME))
        share = (width / whole, height / (height + FRAME))
        axes = figure.add_axes((FRAME * 0.8 / whole, 0.04, *share))
        mesh = axes.pcolormesh(values, cmap=colours, vmin=between[0], vmax=between[1])
        mesh.set_rasterized(values.size > MOST_SHAPES)
        left = FRAME * 0.8 + width + names + BAR_GAP
        _bar(figure, mesh, (left / whole, 0.04, BAR / whole, share[1]))
        _label(axes, values.shape, sides)
        _part(axes, values.shape, sides)
        if rows <= NUMBERED[0] and columns <= NUMBERED[1]:
            _numbers(axes, values, mesh)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    return inline(stream.getvalue(), title)


def _bar(figure: Any, mesh: Any, place: tuple[float, float, float, float]) -> None:
    """Draw which number has which colour, with the ends and the middle named."""
    least, most = mesh.get_clim()
    ticks = [least, (least + most) / 2, most]
    bar = figure.colorbar(mesh, cax=figure.add_axes(place), ticks=ticks)
    bar.ax.set_yticklabels([cell_text(value) for value in ticks])
    bar.ax.tick_params(length=0, colors=INK, labelsize=6.5, pad=2)
    bar.outline.set_visible(False)
    bar.solids.set_rasterized(True)


def _label(axes: Any, shape: tuple[int, ...], sides: Sides) -> None:
    rows, columns = shape
    axes.invert_yaxis()
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel(sides[1].label, color=INK)
    axes.set_ylabel(sides[0].label, color=INK)
    step = max(1, max(rows, columns) // 10)
    along = range(0, columns, step)
    axes.set_xticks(np.arange(0, columns, step) + 0.5, [str(sides[1].first + i) for i in along])
    named = sides[0].blocks if len(sides[0].blocks) == rows else ()
    numbers = [str(i) for i in range(0, rows, step)] if sides[0].label else [""] * rows
    axes.set_yticks(np.arange(0, rows, step) + 0.5, named or numbers)
    axes.tick_params(length=0, colors=INK)
    axes.set_frame_on(False)


def _part(axes: Any, shape: tuple[int, ...], sides: Sides) -> None:
    """Draw thick lines between blocks and thin ones between heads; name blocks of rows."""
    for size, side, line in zip(shape, sides, (axes.axhline, axes.axvline), strict=True):
        blocks = max(len(side.blocks), 1)
        parts = blocks * side.heads
        for part in range(1, parts):
            thick = part % side.heads == 0
            line(part * size / parts, color=PARTED, linewidth=2.0 if thick else 0.7)
    rows, columns = shape
    for index, name in enumerate(sides[0].blocks if len(sides[0].blocks) < rows else ()):
        middle = (index + 0.5) * rows / len(sides[0].blocks)
        axes.annotate(
            name, (columns, middle), (5, 0), textcoords="offset points", va="center", color=INK,
            fontweight="bold", annotation_clip=False,
        )  # fmt: skip


def _numbers(axes: Any, values: Array, mesh: Any) -> None:
    """Write every value into its cell, dark on bright and bright on dark."""
    for (row, column), value in np.ndenumerate(values):
        red, green, blue, _ = mesh.to_rgba(value)
        bright = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
        axes.text(
            column + 0.5, row + 0.5, cell_text(float(value)), ha="center", va="center",
            fontsize=6.5, color=INK if np.isnan(value) else "black" if bright else "white",
        )  # fmt: skip


def cell_text(value: float) -> str:
    """Return two digits behind the point, without the zero before it; fewer of large numbers."""
    if np.isnan(value):
        return "?"
    if abs(value) >= TWO_DECIMALS_BELOW:
        text = f"{value:.0e}".replace("e+0", "e").replace("e+", "e")
    else:
        text = re.sub(r"^(-?)0\.", r"\1.", f"{value:.2f}")
    return "0" if text in {".00", "-.00"} else text.replace("-", "\N{MINUS SIGN}")


def inline(svg: str, title: str) -> str:
    """Return the element alone, named for screen readers, in the page's font and ink."""
    svg = svg[svg.index("<svg") :]
    head, _, body = svg.partition(">")
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    head = head.replace("<svg", f'<svg role="img" aria-label="{html.escape(title)}"', 1)
    # Names of groups and rules of style would hold for the whole page.
    body = re.sub(r"<(metadata|style)\b.*?</\1>", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    body = re.sub(r"font-family: [^;]*; ", "", body)
    body = re.sub(r"\s*\n\s*", " ", body)
    return f"{head}>{body}".replace(INK, "currentColor")
