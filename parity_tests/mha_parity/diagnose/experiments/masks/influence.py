"""Which keys a query row sees, and which it should."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mha_parity.diagnose.experiments.designs.shortest_rules import (
    EVERYWHERE,
    TILES,
    OffIndices,
    ends_rule,
    index_rule,
    index_runs,
    nearest_edges,
    starts_rule,
)
from mha_parity.diagnose.experiments.scores.transfer_curve import curve, slope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.designs.weights_from_output import SampleWeights

OUT_OF_SUM = "keys that the softmax goes over are left out of the sum of their values"
BEHIND_SOFTMAX = (
    "hidden weights are set to 0 after the softmax, and rows are not divided by their sum again"
)


class KeysRule(NamedTuple):
    """Which keys rows see that should see others, in words.

    ``kind``: "score" where the scores of keys decide, "sum" where the weights are those of a
    softmax over all keys and "softmax" where they are that behind a mask, "causal" of a causal
    mask that is too small, "" of any other rule.
    """

    text: str
    kind: str = ""


def visibility(reading: SampleWeights, *, of_most: bool = False) -> KeysRule | None:
    """Return the rule of the keys that rows see where it is a wrong one; None without a rule.

    ``of_most``: a rule that few rows are exceptions to.
    """
    seen, visible = reading.seen, reading.visible
    lost, leaked = visible & _readable(reading) & ~seen, seen & ~visible
    if not (lost.any() or leaked.any()):
        return None
    if (cut := cut_off(reading, lost)) and not leaked.any():
        return KeysRule(cut, "score")
    pairs = [*zip(seen, visible, strict=True)]
    rules = [r for pair in pairs if (r := (_most_rows if of_most else _rows)(*pair))]
    if len(rules) < len(pairs):
        return None
    first = rules[0]
    rule = first.text if len(set(rules)) == 1 else f"in head 0, {first.text}"
    if not _are_of_all_keys(reading):
        return KeysRule(rule, first.kind)
    # Where nothing is hidden, a loop over the values may end too early as well.
    if reading.visible.all():
        return KeysRule(f"{OUT_OF_SUM}: {rule}", "sum")
    return KeysRule(f"{BEHIND_SOFTMAX}: {rule}", "softmax")


def _are_of_all_keys(reading: SampleWeights) -> bool:
    """Return whether the keys that are seen have the weights of a softmax over all visible ones."""
    left = np.where(reading.seen, reading.expected, 0)
    return bool(np.abs(reading.weights - left).max() <= 10 * reading.noise)


def visible_rule(reading: SampleWeights) -> str:
    """Return which keys row i sees in every head, as formulas: "0 … i"; "" without a rule."""
    rules = {_interval(seen) for seen in reading.seen}
    return rules.pop() if len(rules) == 1 else ""


def irregular(reading: SampleWeights) -> KeysRule | None:
    """Return an example of a row that sees other keys than it should; None where none does."""
    lost = reading.visible & _readable(reading) & ~reading.seen
    odd = lost | (reading.seen & ~reading.visible)
    if not odd.any():
        return None
    head, row = (int(i) for i in np.argwhere(odd.any(axis=-1))[0])
    return KeysRule(_example(reading.seen[head], reading.visible[head], row))


def _readable(reading: SampleWeights) -> Array:
    """Return the keys whose weight is large enough to be missed, whatever scale is applied."""
    found = curve(reading)
    if found is None:
        return np.asarray(reading.expected > 100 * reading.noise)
    slopes, misfit = slope(found)
    factors = np.maximum(slopes if misfit < 1 else 1 + 0 * slopes, 1)[:, None, None]
    scores = np.where(reading.visible, reading.scores, -np.inf)
    powers = np.exp(factors * (scores - scores.max(axis=-1, keepdims=True)))
    return np.asarray(powers > 100 * reading.noise * powers.sum(axis=-1, keepdims=True))


def cut_off(reading: SampleWeights, lost: Array) -> str:
    """Return below which weight or score keys are left out, where that is the rule."""
    kept = reading.visible & reading.seen
    if not lost.any() or not kept.any() or not _by_values(lost):
        return ""
    for name, size in (("weight", reading.expected), ("score", reading.scores)):
        top, bottom = float(size[lost].max()), float(size[kept].min())
        if top < bottom:
            return f"keys whose {name} is below {_between(bottom, top)} get no weight"
    for width in (lost.shape[-1], 1, *TILES):
        below = largest_so_far(reading, width) - reading.scores
        most, least = float(below[kept].max()), float(below[lost].min())
        if most < least:
            by = _between(most, least)
            places = {lost.shape[-1]: "of the row", 1: "so far"}
            of = places.get(width, f"so far, by tiles of {width}")
            return f"keys whose score is more than {by} below the largest {of} get no weight"
    return ""


def _between(low: float, high: float) -> str:
    """Return two numbers as the limits of one, which is said alone where it is known so well."""
    first, last = f"{low:.3g}", f"{high:.3g}"
    return first if first == last else f"{first} … {last}"


def largest_so_far(reading: SampleWeights, width: int) -> Array:
    """Return the largest score of the keys up to the end of each key's tile, (H, L, S)."""
    scores = np.where(reading.visible, reading.scores, -np.inf)
    keys = scores.shape[-1]
    ends = np.minimum(np.arange(keys) // width * width + width, keys) - 1
    return np.asarray(np.maximum.accumulate(scores, axis=-1)[..., ends])


def _by_values(lost: Array) -> bool:
    """Return whether rows and heads lose unlike keys: then no position decides."""
    flat = lost.reshape(-1, lost.shape[-1])
    return len(np.unique(flat, axis=0)) > len(flat) // 2


def largest_kept(readings: Sequence[SampleWeights]) -> str:
    """Return that a row sees only its keys of the largest scores, as many in all readings."""
    counts: set[int] = set()
    most = 0
    for reading in readings:
        lost = reading.visible & _readable(reading) & ~reading.seen
        rows = lost.any(axis=-1)
        if not rows.any() or (reading.seen & ~reading.visible).any():
            continue
        low = np.where(reading.seen, reading.scores, np.inf).min(axis=-1)
        high = np.where(lost, reading.scores, -np.inf).max(axis=-1)
        if (low <= high)[rows].any():
            return ""
        counts |= set(reading.seen.sum(axis=-1)[rows].tolist())
        most = max(most, int(reading.seen.sum(axis=-1).max()))
    if len(counts) != 1 or counts != {most}:  # a row that sees more loses keys by their weight
        return ""
    return f"a row sees only its {counts.pop()} keys with the largest scores"


def keys_lost(readings: Sequence[SampleWeights]) -> str:
    """Return which keys no row sees, by one rule for all readings; "" where a row sees one.

    Rows of which such a key's weight is too small to be read say nothing of it: where there are
    some, only a rule shows that the keys are not left out for their small weights.
    """
    seen, alike = [], True
    for reading in readings:
        lost = reading.visible & _readable(reading) & ~reading.seen
        flat = lost.reshape(-1, lost.shape[-1])
        off = flat.any(axis=0)
        if not off.any() or (reading.seen & off).any():
            return ""
        alike = alike and bool((flat == flat[0]).all())
        seen.append(OffIndices(lost.shape[-1], frozenset(np.flatnonzero(off).tolist())))
    rule = index_rule("key", seen) if seen else None
    if not seen or (rule is None and not alike):
        return ""
    if rule == EVERYWHERE:
        return "no row sees any key: the weights are 0"
    here = f"{index_runs(seen[-1].off)} of {seen[-1].count}"
    return f"no row gives weight to {rule or 'some keys'} (here {here})"


def _rows(seen: Array, visible: Array) -> KeysRule | None:
    """Return which keys row i of one head sees, where that is a rule other than the right one."""
    lost = visible & ~seen
    if not lost.any() and (covered := _covered(seen & ~visible)):
        return KeysRule(covered, "causal")
    rule = _interval(seen)
    expected = _interval(visible) or "the keys that the masks leave"
    if not rule or rule == expected:
        return None
    row = int(np.flatnonzero((seen != visible).any(axis=1))[0])
    example = _example(seen, visible, row)
    return KeysRule(f"row i sees keys {rule} (within 0 … S-1), expected {expected}; {example}")


def _most_rows(seen: Array, visible: Array) -> KeysRule | None:
    """Return which keys row i of one head sees in most rows, and which rows see others; or None."""
    keys = seen.shape[1]
    if not seen.any(axis=1).all():
        return None
    first, last = seen.argmax(axis=1), keys - 1 - seen[:, ::-1].argmax(axis=1)
    if not np.array_equal(last - first + 1, seen.sum(axis=1)):
        return None
    rule, off = nearest_edges(first, last, keys)
    if not rule or not off.any():
        return None
    expected = _interval(visible) or "the keys that the masks leave"
    example = _example(seen, visible, int(np.flatnonzero(off)[0]))
    rows = index_runs(np.flatnonzero(off))
    if rule == expected:
        return KeysRule(f"rows {rows} see other keys than {expected}: {example}")
    return KeysRule(f"row i sees keys {rule}, expected {expected}, but for rows {rows}: {example}")


def _example(seen: Array, visible: Array, row: int) -> str:
    keys = index_runs(np.flatnonzero(seen[row])) or "none"
    return f"row {row} sees keys {keys}, expected {index_runs(np.flatnonzero(visible[row]))}"


def _covered(leaked: Array) -> str:
    """Return that a causal mask covers only its first rows and keys, where that is so."""
    rows, keys = np.indices(leaked.shape)
    if not leaked.any():
        return ""
    size = int(np.maximum(rows, keys)[leaked].min())
    beyond = (keys > rows) & (np.maximum(rows, keys) >= size)
    if size < 2 or not np.array_equal(beyond, leaked):
        return ""
    return f"the causal mask covers only the first {size} rows and keys: beyond, every key is seen"


def _interval(seen: Array) -> str:
    """Return "first … last" as formulas in i, where every row sees a run of keys.

    A row that sees none is one before the first key, or one beyond the last.
    """
    keys = seen.shape[1]
    some: Array = np.asarray(seen.any(axis=1))
    first, last = seen.argmax(axis=1), keys - 1 - seen[:, ::-1].argmax(axis=1)
    if not np.array_equal((last - first + 1)[some], seen.sum(axis=1)[some]):
        return ""
    for none in (0, keys):
        start = starts_rule(np.where(some, first, none), keys)
        end = ends_rule(np.where(some, last, none - 1), keys)
        if start and end:
            return f"{start} … {end}"
    return ""
