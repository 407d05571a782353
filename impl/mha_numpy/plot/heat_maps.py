"""Heat maps of attention weights, one panel a head (needs matplotlib, the extra `plot`).

Figures are made without pyplot: no display is needed, no state outlives the call. In a notebook the
returned figure shows itself; `path` saves it, in the format its ending names.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from mha_numpy.plot.simulated import (
    EXAMPLE_MEANING,
    EXAMPLE_SYNTAX,
    EXAMPLE_TOKENS,
    Links,
    simulated_heads,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

__all__ = ["attention_heads", "specialised_heads"]

Array: TypeAlias = npt.NDArray[Any]

# Inches: a cell wide enough for its token, a panel neither smaller than its title nor larger than
# a screen. More labels than fit an axis at the smallest readable size are thinned out.
CELL, PANEL_LEAST, PANEL_MOST = 0.3, 2.0, 9.0
MARGIN_WIDTH, MARGIN_HEIGHT, BAR = 0.6, 1.2, 0.15
LABELS_MOST = 60
# Beyond this many cells a side the gaps between them hide more than they separate.
GAPS_MOST = 32
HIDDEN_COLOUR = "0.85"


def attention_heads(
    weights: npt.ArrayLike | Sequence[Array],
    tokens: Sequence[str] | None = None,
    path: str | Path | None = None,
    *,
    key_tokens: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    columns: int = 4,
) -> Figure:
    """Return a figure with the weights of each head as a heat map: queries by keys.

    All panels share one colour scale, from 0 to the largest weight, so that heads can be compared.
    Cells that are not a number (rows with every key hidden) are grey.

    Parameters
    ----------
    weights
        (H, L, S), a list of H arrays (L, S), or (L, S) for a single head.
    tokens, key_tokens
        L labels for the queries, and S for the keys; `tokens` for both where only they are given.
    path
        where to save the picture; not saved where it is not given.
    names
        H titles of the panels; "head 0", "head 1", ... where they are not given.
    columns
        how many panels stand side by side at most.

    Raises
    ------
    ImportError, ValueError
        matplotlib is not installed; shapes or numbers of labels do not fit each other.
    """
    heads = _stacked(weights)
    count, num_queries, num_keys = heads.shape
    key_tokens = tokens if key_tokens is None else key_tokens
    names = [f"head {head}" for head in range(count)] if names is None else names
    _require_count("names", names, count, "heads")
    _require_count("tokens", tokens, num_queries, "queries")
    _require_count("key_tokens", key_tokens, num_keys, "keys")
    figure, panels = _panels(count, columns, (num_queries, num_keys))
    largest = float(np.nanmax(heads, initial=0.0)) or 1.0
    images = [_draw(*each, largest) for each in zip(panels, heads, names, strict=True)]
    for panel in panels:
        _label(panel.yaxis, tokens)
        _label(panel.xaxis, key_tokens, rotation=45, ha="right", rotation_mode="anchor")
    thickness = figure.get_figheight() / BAR
    figure.colorbar(images[0], ax=panels, label="attention weight", aspect=thickness, pad=0.02)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def specialised_heads(
    tokens: Sequence[str] = EXAMPLE_TOKENS,
    path: str | Path | None = None,
    *,
    syntax: Links = EXAMPLE_SYNTAX,
    meaning: Links = EXAMPLE_MEANING,
) -> Figure:
    """Draw the six heads of `simulated_heads`, which see there for the arguments."""
    heads = simulated_heads(tokens, syntax=syntax, meaning=meaning)
    return attention_heads(list(heads.values()), tokens, path, names=list(heads), columns=3)


def _stacked(weights: npt.ArrayLike | Sequence[Array]) -> npt.NDArray[np.float64]:
    heads = np.asarray(weights, dtype=np.float64)
    heads = heads[None] if heads.ndim == 2 else heads
    if heads.ndim != 3 or 0 in heads.shape:
        raise ValueError(
            f"`weights` have shape {heads.shape}, but should be (H, L, S), or (L, S) for one head, "
            "with no empty axis; pick one sample of a batch, weights[n]."
        )
    return heads


def _require_count(name: str, labels: Sequence[str] | None, size: int, axis: str) -> None:
    if labels is not None and len(labels) != size:
        raise ValueError(
            f"`{name}` holds {len(labels)} labels, but should hold {size}, one for each of the "
            f"{axis}; pass as many as `weights` has."
        )


def _panels(count: int, columns: int, sizes: tuple[int, int]) -> tuple[Figure, list[Axes]]:
    """Return a figure and `count` panels on it, in rows of `columns` at most."""
    if columns < 1:
        raise ValueError(
            f"`columns` is {columns}, but should be at least 1; pass how many panels share a row."
        )
    columns = min(columns, count)
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ImportError(
            "matplotlib is not installed, but heat maps are drawn with it; "
            "run: pip install 'mha-parity[plot]'."
        ) from None
    rows = math.ceil(count / columns)
    height, width = (min(max(CELL * size, PANEL_LEAST), PANEL_MOST) for size in sizes)
    size = (columns * (width + MARGIN_WIDTH) + 1, rows * (height + MARGIN_HEIGHT))
    figure = Figure(figsize=size, layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in grid[count:]:
        unused.remove()
    for panel in grid[:count:columns]:
        panel.set_ylabel("query")
    for panel in grid[max(count - columns, 0) : count]:
        panel.set_xlabel("key")
    return figure, grid[:count]


def _draw(panel: Axes, head: npt.NDArray[np.float64], name: str, largest: float) -> AxesImage:
    panel.set_title(name, fontsize=10, parse_math=False)
    panel.set_facecolor(HIDDEN_COLOUR)
    image = panel.imshow(np.ma.masked_invalid(head), cmap="Blues", vmin=0.0, vmax=largest)
    if max(head.shape) <= GAPS_MOST:
        panel.set_xticks(np.arange(1, head.shape[1]) - 0.5, minor=True)
        panel.set_yticks(np.arange(1, head.shape[0]) - 0.5, minor=True)
        panel.grid(which="minor", color="white", linewidth=1.5)
    panel.tick_params(which="both", length=0)
    panel.spines[:].set_visible(False)
    return image


def _label(axis: Axis, tokens: Sequence[str] | None, **style: Any) -> None:  # noqa: ANN401 (matplotlib types the properties of a text so)
    if tokens is None:
        axis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg] # of MaxNLocator, which images have
        return
    step = math.ceil(len(tokens) / LABELS_MOST)
    shown = range(0, len(tokens), step)
    axis.set_ticks(shown, tokens[::step], fontsize=8, parse_math=False, **style)
