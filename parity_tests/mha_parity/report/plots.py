"""Plots of a whole run: error against size, and accuracy next to torch's as a distribution."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.features import AXES
from mha_parity.report.heatmaps import INK, inline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.report_arrays import CaseError

SIZE = (6.4, 2.6)  # inches
FAILS, PASSES = "#d2483d", "#4a93cc"  # stand out on light and dark
SMALLEST, LARGEST = 1e-3, 1e16  # of the allowed error: what lies beyond is drawn at the edge
TIMES = 16.0  # times torch's error, likewise
MARKS = dict(zip(AXES["dtype"], "osD^", strict=True))
SPREAD = 0.32  # of the row of a dtype that its cases fill


def error_by_size(errors: Sequence[CaseError]) -> str:
    """Return the plot of each case's error in units of the allowed one over its number of keys."""
    figure, axes = _empty()
    units = np.clip(_no_number([each.units for each in errors], LARGEST), SMALLEST, LARGEST)
    keys = np.maximum([each.keys for each in errors], 1)
    fails = np.array([each.fails for each in errors])
    for dtype, mark in MARKS.items():
        own = np.array([each.dtype == dtype for each in errors])
        for bad, colour in ((False, PASSES), (True, FAILS)):
            chosen = own & (fails == bad)
            if chosen.any():
                label = f"{dtype}{', fails' if bad else ''}"
                axes.scatter(
                    keys[chosen], units[chosen], s=11, marker=mark, color=colour, alpha=0.65,
                    linewidths=0, label=label,
                )  # fmt: skip
    _draw_bounds(axes, errors)
    axes.axhline(1, color=INK, linewidth=1)
    axes.annotate(
        "allowed", (1, 1), (-2, 3), xycoords=("axes fraction", "data"), color=INK, ha="right",
        textcoords="offset points", fontsize=8,
    )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(min(float(units.min()), 1e-2) / 2, max(float(units.max()), 1.0) * 5)
    axes.set_xlabel("keys S", color=INK)
    axes.set_ylabel("error / allowed error", color=INK)
    axes.legend(frameon=False, labelcolor=INK, fontsize=7, bbox_to_anchor=(1, 1), loc="upper left")
    return _drawn(figure, "error of each case over the allowed one, against its number of keys")


def _draw_bounds(axes: Any, errors: Sequence[CaseError]) -> None:
    """Draw the rounding-error bound of each case, where it was noted, as a dash over its keys."""
    known = [each for each in errors if np.isfinite(each.bound)]
    if known:
        bounds = np.clip([each.bound for each in known], SMALLEST, LARGEST)
        axes.scatter(
            np.maximum([each.keys for each in known], 1), bounds, s=26, marker="_", color=INK,
            alpha=0.45, linewidths=0.8, label="bound",
        )  # fmt: skip


def size_caption(errors: Sequence[CaseError]) -> str:
    """Say what ``error_by_size`` shows."""
    said = "each case: the largest error of its output in units of what is allowed there"
    if not any(np.isfinite(each.bound) for each in errors):
        return said
    return f"{said}; a dash is its rounding-error bound, beyond which an answer is wrong"


def accuracy_plot(errors: Sequence[CaseError]) -> str:
    """Return the distribution of errors in units of torch's own, a row per dtype; "" if none."""
    known = [each for each in errors if np.isfinite(each.times_torch)]
    dtypes = [dtype for dtype in MARKS if any(each.dtype == dtype for each in known)]
    if not dtypes:
        return ""
    figure, axes = _empty(height=0.6 + 0.42 * len(dtypes))
    for row, dtype in enumerate(dtypes):
        times = np.clip(
            [each.times_torch for each in known if each.dtype == dtype], 1 / TIMES, TIMES
        )
        rank = np.linspace(-SPREAD, SPREAD, len(times)) if len(times) > 1 else np.zeros(1)
        axes.scatter(np.sort(times), row + rank, s=9, color=PASSES, alpha=0.65, linewidths=0)
        axes.plot([np.median(times)] * 2, [row - SPREAD, row + SPREAD], color=INK, linewidth=1.6)
    axes.axvline(1, color=INK, linewidth=0.8, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.set_xlim(1 / TIMES / 1.15, TIMES * 1.15)
    ticks = [2.0**power for power in range(-4, 5)]
    axes.set_xticks(ticks, [f"{each:g}" if each >= 1 else f"1/{1 / each:g}" for each in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(dtypes)), dtypes)
    axes.invert_yaxis()
    axes.set_xlabel("error / torch's error", color=INK)
    return _drawn(figure, "errors in units of torch's own, the cases of each dtype in order")


def _no_number(values: Sequence[float], instead: float) -> Array:
    return np.asarray(np.nan_to_num(np.array(values, float), nan=instead, posinf=instead))


def _empty(height: float = SIZE[1]) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(SIZE[0], height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.tick_params(which="both", colors=INK, labelsize=7.5)
    axes.xaxis.label.set_fontsize(8)
    axes.yaxis.label.set_fontsize(8)
    return figure, axes


def _drawn(figure: Any, title: str) -> str:
    import matplotlib as mpl

    stream = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": title, "font.size": 8}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    return inline(stream.getvalue(), title)
