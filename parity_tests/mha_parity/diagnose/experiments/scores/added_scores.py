"""Terms added to the true scores that depend on the key alone or on the distance i - j.

A key that is counted n times has ln(n) added; a distance in place of a product, c |k|^2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.designs.shortest_rules import index_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.scores.transfer_curve import Curve

ROUNDS = 200  # of alternating fits of rows and keys
MIN_WEIGHTS = 3  # readable weights a term rests on
COUNTED = (
    "take each key once: a tile that is shifted back to end with the last key repeats keys of the "
    "tile before, which have to be masked in it"
)
PRODUCT = "take the product q k^T for the scores, not a distance of q and k"
OTHER_ROWS = (
    "the exponential of row i and key j is divided by the sum of row j, expected that of row i"
)
KEEPDIMS = "divide each row by its own sum: sum(axis=-1, keepdims=True)"
NOTHING = "add nothing to q k^T / sqrt(D) but the masks"


def added(found: Curve) -> Effect | None:
    """Return what is added to the scores and the remedy; None where nothing fits."""
    keys = found.y.shape[-1]
    columns = np.broadcast_to(np.arange(keys), found.y.shape[1:])
    if (terms := _terms(found, columns, keys)) is not None:
        return _by_key(found, terms) if _is_seen(found, terms) else None
    rows = np.arange(found.y.shape[1])[:, None]
    distances = rows - columns + keys - 1
    terms = _terms(found, distances, int(distances.max()) + 1)
    if terms is None or not _is_seen(found, terms):
        return None
    return _by_distance(found, terms, keys)


def _terms(found: Curve, index: Array, count: int) -> Array | None:
    """Return the term of each index, (H, count), NaN where unread; None where they explain less.

    The log-ratios less the true ones are a constant of the row and the term of the index.
    """
    heads = []
    for y, x, usable in zip(found.y, found.x, found.usable, strict=True):
        rest = np.where(usable, y - x, 0)
        some = np.maximum(np.bincount(index[usable], minlength=count), 1)
        by_row = np.maximum(usable.sum(axis=1), 1)
        terms = np.zeros(count)
        for _ in range(ROUNDS):
            constants = (np.where(usable, rest - terms[index], 0)).sum(axis=1) / by_row
            left = (rest - constants[:, None] - terms[index])[usable]
            if np.abs(left).max(initial=0) <= found.atol:
                break
            terms += np.bincount(index[usable], weights=left, minlength=count) / some
        else:
            return None
        seen = np.bincount(index[usable], minlength=count) >= MIN_WEIGHTS
        if seen.sum() < MIN_WEIGHTS or usable.sum() < 2 * (seen.sum() + len(rest)):
            return None
        heads.append(np.where(seen, terms, np.nan))
    return np.array(heads)


def _by_key(found: Curve, terms: Array) -> Effect:
    """Say of a term for each key what it is made of: a count, the key's norm, its place."""
    atol = 20 * found.atol
    counts = np.exp(terms - np.nanmin(terms, axis=1, keepdims=True))
    whole = np.round(counts)
    alike = np.nanmax(np.ptp(terms - terms[:, :1], axis=0)) <= atol if len(terms) > 1 else True
    if alike and np.nanmax(np.abs(counts - whole)) <= atol * np.nanmax(whole):
        times = whole[0]
        more = np.flatnonzero(times > 1).tolist()
        said = " or ".join(str(int(n)) for n in np.unique(times[more]))
        counts_of = "keys {} of {} count" if len(more) > 1 else "key {} of {} counts"
        text = f"{counts_of.format(index_runs(more), len(times))} {said} times, expected once"
        return Effect(text, COUNTED)
    squares = (found.reading.key**2).sum(axis=-1)[-len(terms) :]
    factor = _factor(terms, squares, atol)
    if factor is not None:
        scale = found.reading.problem.scale
        form = f"{factor / scale:.4g} |k|^2 / sqrt(D)"
        text = f"{form} is added to the score of each key"
        if abs(factor / scale + 0.5) <= atol:
            text = f"the score is -|q - k|^2 / (2 sqrt(D)), expected q k^T / sqrt(D): {text}"
        return Effect(text, PRODUCT)
    if _are_sums_of_rows(found, terms, atol):
        return Effect(OTHER_ROWS, KEEPDIMS)
    place = " and of its place, not of its values" if alike and len(terms) > 1 else ""
    text = f"a term of the key alone{place} is added to the scores: it differs by up to "
    return Effect(f"{text}{_spread(terms):.3g}", NOTHING)


def _are_sums_of_rows(found: Curve, terms: Array, atol: float) -> bool:
    """Return whether the term of key j is the negative logarithm of the sum of row j."""
    scores = found.reading.scores
    if scores.shape[-2] != terms.shape[-1]:
        return False
    with np.errstate(divide="ignore"):
        sums = np.log(np.exp(scores - scores.max()).sum(axis=-1))[-len(terms) :]
    rest = terms + sums
    spreads = np.ptp(rest - rest[:, :1], axis=1)
    # A head with a hidden key has no such sums; of which no head is left, none is known.
    known = spreads[np.isfinite(spreads)]
    return bool(known.size and known.max() <= atol)


def _is_seen(found: Curve, terms: Array) -> bool:
    """Return whether the terms of a head differ by more than what they are read to."""
    return _spread(terms) > 20 * found.atol


def _spread(terms: Array) -> float:
    """Return by how much the terms of a head differ."""
    return float(np.nanmax(np.nanmax(terms, axis=1) - np.nanmin(terms, axis=1)))


DISTANCES: Sequence[tuple[str, Callable[[Array], Array]]] = (
    ("(i - j)", lambda d: d),
    ("|i - j|", np.abs),
    ("(i - j)^2", np.square),
)


def _by_distance(found: Curve, terms: Array, keys: int) -> Effect:
    """Say of a term for each distance i - j what function of it that is."""
    distances = np.arange(terms.shape[1]) - (keys - 1.0)
    for name, function in DISTANCES:
        factors = [_factor(each[None], function(distances)[None], 20 * found.atol)
                   for each in terms]  # fmt: skip
        said = [f"{f:.4g}" for f in factors if f is not None]
        if len(said) == len(terms):
            listed = said[0] if len(set(said)) == 1 else f"{', '.join(said)} (by head) times"
            text = f"{listed} {name} is added to the score of row i and key j"
            return Effect(text, NOTHING)
    return Effect("a term of the distance i - j alone is added to the scores", NOTHING)


def _factor(terms: Array, sizes: Array, atol: float) -> float | None:
    """Return c where the terms of each head are c times the sizes, but for a constant."""
    known = np.isfinite(terms)

    def centred(array: Array) -> Array:
        kept = np.where(known, array, 0)
        mean = kept.sum(axis=1, keepdims=True) / known.sum(axis=1, keepdims=True)
        return np.where(known, kept - mean, 0)

    y, x = centred(terms), centred(np.broadcast_to(sizes, terms.shape))
    if not (x * x).sum():
        return None
    factor = float((x * y).sum() / (x * x).sum())
    return factor if np.abs(y - factor * x).max() <= atol * max(1, np.abs(y).max()) else None
