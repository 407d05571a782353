"""Heat maps of attention weights as SVG that stands inside a page, in its light and its dark."""

from __future__ import annotations

import hashlib
import html
import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mha_parity.values import Array

CELL = 0.34  # inches
SMALLEST, LARGEST = 1.6, 3.4
FRAME = 0.62  # for the labels of both axes
NUMBERED = 9  # columns: in wider maps numbers in the cells would not be legible
MOST_SHAPES = 1000  # cells: more of them are one embedded image
WEIGHTS = "cividis"  # grows brighter evenly, and alike for people who see two colours
DIFFERENCE = "PuOr"  # two hues that all eyes tell apart
INK = "#010203"  # stands for the page's own text colour


def weights_map(weights: Array, title: str, most: float = 1.0) -> str:
    """Return attention weights (L, S') between 0 and ``most``, which has the brightest colour."""
    return _svg(weights, title, WEIGHTS, 0.0, most)


def difference_map(difference: Array, title: str, least: float = 0.0) -> str:
    """Return signed differences (L, S') around 0; ``least`` has the full colour, or the largest."""
    finite = np.abs(difference[np.isfinite(difference)])
    reach = float(finite.max(initial=least)) or 1.0
    return _svg(difference, title, DIFFERENCE, -reach, reach)


def _svg(values: Array, title: str, colours: str, low: float, high: float) -> str:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows, columns = values.shape
    width, height = (min(max(n * CELL, SMALLEST), LARGEST) for n in (columns, rows))
    # The salt makes ids that are the same on every run, and unlike those of other maps in a page.
    salt = hashlib.sha256(title.encode() + np.ascontiguousarray(values).tobytes()).hexdigest()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 8}):
        figure = Figure(figsize=(width + FRAME, height + FRAME))
        axes = figure.add_axes((FRAME * 0.8 / (width + FRAME), 0.04, *_share(width, height)))
        mesh = axes.pcolormesh(values, cmap=colours, vmin=low, vmax=high)
        mesh.set_rasterized(values.size > MOST_SHAPES)
        _label(axes, rows, columns)
        if columns <= NUMBERED:
            _numbers(axes, values, mesh)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    return _inline(stream.getvalue(), title)


def _share(width: float, height: float) -> tuple[float, float]:
    return width / (width + FRAME), height / (height + FRAME)


def _label(axes: Any, rows: int, columns: int) -> None:
    axes.invert_yaxis()
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("key", color=INK)
    axes.set_ylabel("query", color=INK)
    step = max(1, max(rows, columns) // 10)
    axes.set_xticks(np.arange(0, columns, step) + 0.5, [str(i) for i in range(0, columns, step)])
    axes.set_yticks(np.arange(0, rows, step) + 0.5, [str(i) for i in range(0, rows, step)])
    axes.tick_params(length=0, colors=INK)
    axes.set_frame_on(False)


def _numbers(axes: Any, values: Array, mesh: Any) -> None:
    """Write every value into its cell, dark on bright and bright on dark."""
    for (row, column), value in np.ndenumerate(values):
        red, green, blue, _ = mesh.to_rgba(value)
        bright = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
        axes.text(
            column + 0.5, row + 0.5, _short(float(value)), ha="center", va="center",
            fontsize=6.5, color=INK if np.isnan(value) else "black" if bright else "white",
        )  # fmt: skip


def _short(value: float) -> str:
    """Return two digits behind the point, without the zero before it."""
    if np.isnan(value):
        return "?"
    text = f"{value:.2f}".replace("0.", ".", 1)
    return "0" if text in {".00", "-.00"} else text.replace("-", "\N{MINUS SIGN}")


def _inline(svg: str, title: str) -> str:
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
