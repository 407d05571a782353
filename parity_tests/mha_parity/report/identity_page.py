"""An identity card as one page: lines, the transfer curve as a plot, influence as matrices."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.report import wording
from mha_parity.report.identity_card import STATUS, named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.identity_card import IdentityCard, InfluenceMatrix, TransferPoints

SIZE = 320  # of the plot, in units of its own
CELL = 11
LETTER = 6  # the width of a letter of a label
MARGIN = 42


def render_identity_page(cards: list[IdentityCard]) -> str:
    """Return the page's HTML."""
    style = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    body = "\n".join("\n".join(_article(card)) for card in cards)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(cards[0].target)}: identity</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _article(card: IdentityCard) -> Iterator[str]:
    status = STATUS[card.as_torch]
    yield f'<article>\n<section class="verdict {status}">'
    yield f"<h1>{escape(_title(card))}</h1>"
    if card.causes:
        yield f"<p>{escape(card.sentence)}</p>"
    setting = f"{card.target} · {card.convention} · {card.calls} calls"
    yield f'<p class="setting">{escape(setting)}</p>\n</section>'
    for cause in card.causes:
        rows = (("evidence", cause.evidence), ("remedy", cause.remedy))
        listed = "".join(f"<dt>{n}</dt><dd>{escape(text)}</dd>" for n, text in rows if text)
        yield f'<section class="card"><h3>{escape(cause.title)}</h3><dl>{listed}</dl></section>'
    yield '<h2>Experiments</h2>\n<dl class="rows">'
    for each in card.measures:
        sign = STATUS[each.as_torch]
        mark = (
            f'<span class="sign {sign}" role="img" aria-label="{sign}">{wording.SIGN[sign]}</span>'
        )
        name, sentence = named(each)
        yield f"<dt>{mark} {escape(name)}</dt><dd>{escape(sentence)}</dd>"
    yield "</dl>"
    if card.transfer is not None:
        yield "<h2>Transfer curve</h2>\n<figure>" + transfer_plot(card.transfer)
        yield "<figcaption>log of the weight over the true score, both relative to a key of the "
        yield "same row: the target's points on torch's line</figcaption></figure>"
    if card.influence:
        yield '<h2>Influence</h2>\n<div class="maps">'
        for matrix in card.influence:
            yield f"<figure>{influence_map(matrix)}<figcaption>{escape(matrix.title)}"
            yield f"{_departures(matrix)}</figcaption></figure>"
        yield "</div>"
    yield "</article>"


def _title(card: IdentityCard) -> str:
    """Return what it computes, or that it departs from torch: the causes follow one by one."""
    if not card.causes:
        return card.sentence
    times = f" in {len(card.causes)} ways" if len(card.causes) > 1 else ""
    return f"Departs from torch{times}"


def _departures(matrix: InfluenceMatrix) -> str:
    count = int((matrix.reached != matrix.expected).sum())
    return f"; {count} squares depart (outlined)" if count else ""


def transfer_plot(points: TransferPoints) -> str:
    """Return the target's points on torch's line, as SVG."""
    both = np.concatenate([points.scores, points.found[np.isfinite(points.found)], [0.0]])
    low, high = float(both.min()), float(both.max())
    span = (high - low) or 1.0

    def along(value: float) -> float:
        return round(MARGIN + (value - low) / span * (SIZE - MARGIN - 8), 1)

    first, last = along(low), along(high)
    dots = "".join(
        f'<circle cx="{along(x)}" cy="{SIZE - along(y):.1f}" r="2.2"/>'
        for x, y in zip(points.scores.tolist(), points.found.tolist(), strict=True)
        if np.isfinite(y)
    )
    return (
        f'<svg role="img" aria-label="transfer curve" viewBox="0 0 {SIZE} {SIZE}" '
        f'style="max-width:26rem" fill="none" font-size="11">'
        f'<path d="M{first} {SIZE - first}L{last} {SIZE - last}" stroke="var(--quiet)"/>'
        f'<g fill="var(--accent)" fill-opacity="0.6">{dots}</g>'
        f'<g fill="var(--quiet)"><text x="{first}" y="{SIZE - 8}">{low:.4g}</text>'
        f'<text x="{last}" y="{SIZE - 8}" text-anchor="end">score {high:.4g}</text>'
        f'<text x="4" y="{SIZE - last}">log weight</text></g></svg>'
    )


def influence_map(matrix: InfluenceMatrix) -> str:
    """Return a matrix of squares, filled where reached and outlined where that departs, as SVG."""
    rows, columns = matrix.reached.shape
    squares = []
    for (i, j), reached in np.ndenumerate(matrix.reached):
        fill = "var(--accent)" if reached else "var(--line)"
        odd = ' stroke="var(--bad)" stroke-width="2"' if reached != matrix.expected[i, j] else ""
        squares.append(
            f'<rect x="{j * CELL + 16}" y="{i * CELL + 16}" width="{CELL - 2}" height="{CELL - 2}" '
            f'fill="{fill}"{odd}/>'
        )
    # Labels have one size in all matrices, and room for it.
    width = max(columns * CELL, LETTER * len(matrix.columns)) + 18
    height = max(rows * CELL, LETTER * len(matrix.rows)) + 18
    return (
        f'<svg role="img" aria-label="{escape(matrix.title)}" viewBox="0 0 {width} {height}" '
        f'style="width:{width / 10}rem;max-width:100%" font-size="10" fill="var(--quiet)">'
        f'<text x="16" y="11">{escape(matrix.columns)}</text>'
        f'<text transform="rotate(-90)" x="-{height - 2}" y="11">{escape(matrix.rows)}</text>'
        f"{''.join(squares)}</svg>"
    )
