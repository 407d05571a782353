"""Shortest rules for sizes, places and visible keys: each fits all that it was given, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mha_parity.core.arrays import Array

    Edges = Callable[[Array, Array, int], Iterator[tuple[str, Array]]]
    Indices = Callable[[int], Sequence[int]]

MODULI = (2, 3, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256)
MANY = 16  # values tried: of fewer one alone may be right by luck
FEW = 8  # rows, of which one may be an exception to a rule
ROWS = 24  # fewer leave formulas with tiles to luck
TILES = (2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
EVERYWHERE = "everywhere"


def size_rule(
    letter: str, off: Mapping[int, bool], others: Mapping[str, int] | None = None
) -> str | None:
    """Return for which values of a size the flag is set: "S > 64 and S % 64 != 0".

    ``others`` are the sizes held fixed, by letter: one equal value may be their coincidence. None
    where the flag is always or never set, or no rule fits all values.
    """
    values = np.array(sorted(off))
    flags = np.array([off[value] for value in values.tolist()])
    if flags.all() or not flags.any():
        return None
    rules = _size_rules(letter, values, flags, others or {})
    return next((text for text, said in rules if np.array_equal(said, flags)), None)


def _size_rules(
    letter: str, values: Array, flags: Array, others: Mapping[str, int]
) -> Iterator[tuple[str, Array]]:
    lowest, highest = int(values[flags].min()), int(values[flags].max())
    several = {name: size for name, size in others.items() if size > 1}
    for name, size in several.items():
        yield f"{letter} != {name} = {size}", values != size
        yield f"{letter} = {name} = {size}", values == size
        if {letter, name} == {"L", "S"}:  # of others a number is likelier: theirs, by chance
            yield from _limits(letter, f"{name} = {size}", values, size)
    below = values[values < lowest].max(initial=0)
    yield f"{letter} > {below}", values > below
    yield f"{letter} <= {highest}", values <= highest
    for name, size in several.items():
        yield from _limits(letter, f"{name} = {size}", values, size)
    yield f"{letter} = {lowest}", values == lowest
    if (~flags).sum() == 1 and len(flags) >= MANY:
        yield f"{letter} != {values[~flags][0]}", flags
    yield f"{letter} is no power of two", (values & (values - 1)) != 0
    yield f"{letter} is a power of two", (values & (values - 1)) == 0
    for m in MODULI:
        rest = values % m
        name = {2: f"{letter} is odd"}.get(m, f"{letter} % {m} != 0")
        yield name, rest != 0
        yield f"{letter} % {m} = 0", rest == 0
        if m > 2:
            yield f"{letter} % {m} = 1", rest == 1
            yield f"{letter} > 1 and {letter} % {m} = 1", (rest == 1) & (values > 1)
        for t in sorted({m, int(below)}):
            yield f"{letter} > {t} and {name}", (values > t) & (rest != 0)
        yield f"{letter} % {m} > {m // 2} or = 0", (rest > m // 2) | (rest == 0)
        yield f"{letter} % {m} is 1 … {m // 2}", (rest >= 1) & (rest <= m // 2)


def _limits(letter: str, name: str, values: Array, size: int) -> Iterator[tuple[str, Array]]:
    yield f"{letter} > {name}", values > size
    yield f"{letter} < {name}", values < size
    yield f"{letter} >= {name}", values >= size


@dataclass(frozen=True)
class OffIndices:
    """Which of ``count`` indices of an axis are off in one answer."""

    count: int
    off: frozenset[int]


def index_rule(word: str, seen: Sequence[OffIndices], right: Sequence[int] = ()) -> str | None:
    """Return which indices of an axis are off, the same rule in every answer: "the last head".

    ``EVERYWHERE`` where all are; None where no rule fits. At the sizes ``right`` none is off: a
    rule about what a block leaves over has none over there, or its first block is no whole one.
    """
    if all(len(each.off) == each.count for each in seen):
        return EVERYWHERE
    for text, rule in _place_rules(word, seen):
        multiple = rule.args[0] if isinstance(rule, partial) and rule.func is _tail else 0
        if multiple and any(size % multiple and size > multiple for size in right):
            continue
        if all(each.off == _within(rule, each.count) for each in seen):
            return text
    return None


def _within(rule: Indices, count: int) -> frozenset[int]:
    return frozenset(i for i in rule(count) if 0 <= i < count)


def _tail(multiple: int, count: int) -> Sequence[int]:
    return range(count - count % multiple, count)


def _every(step: int, first: int, count: int) -> Sequence[int]:
    return range(first, count, step)


def _place_rules(word: str, seen: Sequence[OffIndices]) -> Iterator[tuple[str, Indices]]:
    yield f"the first {word} (0)", lambda _: [0]
    yield f"the last {word}", lambda n: [n - 1]
    yield f"all {word}s but the first", lambda n: range(1, n)
    yield f"all {word}s but the last", lambda n: range(n - 1)
    first = min(min(each.off, default=0) for each in seen)
    yield f"{word}s from {first} on", lambda n: range(first, n)
    last = max(max(each.off, default=0) for each in seen)
    yield f"{word}s 0 … {last}", lambda _: range(last + 1)
    yield f"{word} {first}", lambda _: [first]
    for m in MODULI:
        yield f"the last {word}s beyond a multiple of {m}", partial(_tail, m)
        for r in range(min(m, 16)):
            yield f"{word}s {r}, {r + m}, … (one in {m})", partial(_every, m, r)
    yield f"the second half of the {word}s", lambda n: range(n // 2, n)
    yield f"the first half of the {word}s", lambda n: range(n // 2)


def index_runs(indices: Iterable[int]) -> str:
    """Return indices as runs: "0–3, 7"."""
    found: list[list[int]] = []
    for i in sorted(indices):
        if found and found[-1][1] == i - 1:
            found[-1][1] = i
        else:
            found.append([i, i])
    runs = [str(a) if a == b else f"{a}–{b}" for a, b in found]
    return ", ".join(runs[:4]) + (" …" if len(runs) > 4 else "")


def ends_rule(last: Array, keys: int) -> str | None:
    """Return which key is the last that row i sees, as a formula in i, where one fits all rows.

    ``last`` has for each row the last visible key, -1 where none is.
    """
    return _edge(last, keys, _last_keys)


def starts_rule(first: Array, keys: int) -> str | None:
    """Return which key is the first that row i sees, as a formula in i."""
    return _edge(first, keys, _first_keys)


def nearest_edges(first: Array, last: Array, keys: int) -> tuple[str, Array]:
    """Return which keys most rows see, as formulas in i, and the rows that see others.

    The rows are those that see some key. More than one in `FEW` of them are no exceptions: then the
    formula is "".
    """
    rows, texts, off = np.arange(len(first)), [], np.zeros(len(first), dtype=bool)
    for edge, shapes in ((first, _first_keys), (last, _last_keys)):
        fits = [(text, np.clip(value, 0, keys) != edge) for text, value in shapes(rows, edge, keys)]
        text, unlike = min(fits, key=lambda each: int(each[1].sum()))
        texts.append(text)
        off = off | unlike
    return (" … ".join(texts) if FEW * off.sum() < len(off) else ""), off


def _edge(edge: Array, keys: int, shapes: Edges) -> str | None:
    rows = np.arange(len(edge))
    for text, value in shapes(rows, edge, keys):
        if np.array_equal(np.clip(value, -1, keys), np.clip(edge, -1, keys)):
            return text
    return None


def _tiled(rows: Array, t: int, u: int) -> Array:
    """Return t * (row of tiles that row i is in, of u rows each)."""
    return np.asarray(t * (rows // u))


def _last_keys(rows: Array, edge: Array, keys: int) -> Iterator[tuple[str, Array]]:
    """Yield formulas for the last visible key."""
    end = keys - 1
    yield "S-1", np.full(len(rows), end)
    yield "i", np.minimum(rows, end)
    seen = edge[(edge < end) & (edge >= 0)]
    if seen.size:
        shift = int(np.median(edge[edge < end] - rows[edge < end]))
        shortfall = keys - len(rows)
        aligned = {shortfall: " = i + (S - L)", -shortfall: " = i - (S - L)"} if shortfall else {}
        yield f"i{shift:+d}{aligned.get(shift, '')}", np.minimum(rows + shift, end)
        yield f"max(0, i{shift:+d})", np.clip(rows + shift, 0, end)
        top = int(seen.max())
        yield str(top), np.minimum(top, end) + 0 * rows
        yield f"min(i, {top})", np.minimum(rows, top)
    if len(rows) < ROWS:
        return
    for t in TILES:
        yield f"i % {t} (counted from the start of its tile of {t} rows)", rows % t
        for u in TILES:
            for more in (0, 1, 2, 3):
                tile = _tiled(rows, t, u) + more * t - 1
                name = f"{t} * (i // {u}{f' + {more}' if more else ''}) - 1"
                yield name, np.minimum(tile, end)
                yield f"min(i, {name})", np.minimum(rows, tile)
            if u < t:
                ended = np.minimum(_tiled(rows, t, t) + u - 1, end)
                name = f"{t} * (i // {t}) + {u - 1}"
                yield (
                    f"min(i, {name}): blocks of keys that it needs are skipped",
                    np.minimum(rows, ended),
                )
    for t in TILES:
        last = np.minimum(t * (rows // t + 1), len(rows))
        name = (
            f"i + (S - e), e the end of its tile of {t} rows: each tile is masked as the last one"
        )
        yield name, rows + keys - last
    for t in TILES:
        for u in TILES:
            ends = np.minimum(u * (rows // u + 1), len(rows))
            name = f"{t} * max(1, e // {t}) - 1) with e the end of the tile of {u} rows"
            yield f"min(i, {name}", np.minimum(rows, t * np.maximum(1, ends // t) - 1)


def _first_keys(rows: Array, edge: Array, keys: int) -> Iterator[tuple[str, Array]]:
    """Yield formulas for the first visible key."""
    yield "0", 0 * rows
    inner = edge > 0
    if inner.any():
        shift = int(np.median((rows - edge)[inner]))
        yield f"i{-shift:+d}" if shift else "i", np.clip(rows - shift, 0, keys)
    for t in TILES:
        for less in (0, 1, 2):
            start = np.maximum(_tiled(rows, t, t) - less * t, 0)
            yield f"{t} * (i // {t}{f' - {less}' if less else ''})", start
