"""Outputs that are right but stand elsewhere: the order of samples, heads, rows or columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.padded_queries import marks_positions, padded_rows
from mha_parity.diagnose.experiments.designs.calls import WRONG
from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.designs.other_order import order_along, order_rules
from mha_parity.diagnose.experiments.designs.variants import ROWS_FIRST, SAMPLES_FIRST, SWAP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.candidate import Candidate
    from mha_parity.diagnose.experiments.designs.calls import CallResult

AXES = (("sample", "n", "N"), ("head", "h", "H"), ("row", "i", "L"), ("column", "d", "D"))
LEAST = 3  # indices: two may be exchanged by any rule
IN_ORDER = "keep samples, heads, rows and columns in the order of the inputs: look for flips"
OWN_ARRAY = "give each an array of its own: [[0] * E] * L is one list, L times"
UNSORTED = "put back what was sorted by the inverse of the order: argsort(order), not order"
PADDED_ROWS = Effect(
    "rows of padded queries are 0, expected attention to the visible keys",
    "return all rows as torch does, and let the caller set those of padding to 0",
    understood=False,
)


def index_permutation(trial: CallResult) -> Effect | None:
    """Return at which index of an axis each right output stands; None where that is not all."""
    for axis, (word, letter, size) in enumerate(AXES):
        if (order := _order(trial, axis)) is not None:
            by_place = next(order_rules(order, letter, size), "")
            by_length = "" if by_place else next(_by_length(order, trial, axis), "")
            listed = ", ".join(map(str, order))
            text = f"{word}s 0 … {len(order) - 1} of the output hold those of {word}s {listed}"
            said = ": ".join(filter(None, (text, by_place, by_length)))
            return Effect(said, UNSORTED if by_length else IN_ORDER)
    return None


def moved_alike(trials: Sequence[CallResult]) -> str:
    """Return by which one rule samples or columns stand elsewhere in all trials long enough.

    The weights tell of rows and heads.
    """
    for axis in (0, 3):
        word, letter, _ = AXES[axis]
        long = [each for each in trials if each.expected.shape[axis] >= LEAST]
        orders = [(_order(each, axis), each) for each in long]
        rules = [list(_rules(o, t, axis)) for o, t in orders if o is not None]
        if not rules or len(rules) < len(long):
            continue
        for rule in rules[0]:
            if all(rule in others for others in rules):
                return f"{word} {letter} of the output holds {word} {rule}"
    return ""


def reshaped_rows(trial: CallResult) -> Effect | None:
    """Return that samples and rows of the output are exchanged by a reshape, if that is all."""
    if trial.found is None:
        return None
    found, expected = (
        each.transpose(0, 2, 1, 3).reshape(*each.shape[:3:2], -1)
        for each in (trial.found, trial.expected)
    )
    samples, length, width = expected.shape
    reshaped = {
        SAMPLES_FIRST: expected.reshape(length, samples, width).swapaxes(0, 1),
        ROWS_FIRST: expected.swapaxes(0, 1).reshape(samples, length, width),
    }
    alike = (
        Effect(said, SWAP) for said, each in reshaped.items()
        if np.abs(found - each).max(initial=0) <= WRONG * trial.allowed
    )  # fmt: skip
    return next(alike, None)


def one_for_all(trials: Sequence[CallResult]) -> str:
    """Return which one sample, head or row stands in the place of all in all trials."""
    for axis, (word, _, size) in enumerate(AXES[:3]):
        several = [each for each in trials if each.expected.shape[axis] > 1]
        for place, said in ((-1, f"{size} - 1"), (0, "0")):
            if several and all(_is_one(each, axis, place) for each in several):
                return f"every {word} of the output is {word} {said}"
    return ""


def _is_one(trial: CallResult, axis: int, place: int) -> bool:
    if trial.found is None:
        return False
    own = np.take(trial.expected, [place], axis)
    return bool((np.abs(trial.found - own) <= WRONG * trial.allowed).all())


def _order(trial: CallResult, axis: int) -> Array | None:
    """Return which right index stands at each of an axis, where all are right so; else None."""
    if trial.found is None or not np.isfinite(trial.found).all():
        return None
    for expected in (trial.expected, *without_padded_rows(trial)):
        order = order_along(trial.found, expected, axis, WRONG * trial.allowed)
        if order is not None:
            return order
    return None


def blanked_rows(trial: CallResult) -> Effect | None:
    """Return that rows of padded queries are 0, where all others are right."""
    some = (each for each in without_padded_rows(trial) if trial.found is not None)
    near = (np.abs(trial.found - each) <= WRONG * trial.allowed for each in some)
    return PADDED_ROWS if any(each.all() for each in near) else None


def is_left_out(candidate: Candidate, trial: CallResult) -> bool:
    """Return whether rows of padded queries alone are off, in a run that does not judge them."""
    padded = padded_rows(trial.problem, one_length=marks_positions(candidate))
    if padded is None or not candidate.facts.padding_left_out:
        return False
    return not (trial.off.any(axis=(1, 3)) & ~padded).any()


def without_padded_rows(trial: CallResult) -> Iterator[Array]:
    """Yield what is expected with 0 in padded rows, where queries are padded as keys are."""
    lengths, case = trial.problem.lengths, trial.problem.case
    if lengths is not None and case.queries == case.keys:
        kept = np.arange(case.queries) < np.asarray(lengths)[:, None]
        yield np.where(kept[:, None, :, None], trial.expected, 0)


def _rules(order: Array, trial: CallResult, axis: int) -> Iterator[str]:
    _, letter, size = AXES[axis]
    yield from order_rules(order, letter, size)
    yield from _by_length(order, trial, axis)


def _by_length(order: Array, trial: CallResult, axis: int) -> Iterator[str]:
    if axis == 0 and (lengths := trial.problem.lengths) is not None:
        for sign, said in ((-1, "the longest first"), (1, "the shortest first")):
            by_length = np.argsort(sign * np.asarray(lengths), kind="stable")
            if np.array_equal(order, by_length):
                yield f"they stay sorted by length, {said}"
            if np.array_equal(order, by_length[by_length]):
                text = f"they are sorted by length, {said}, and put back by that order"
                yield f"{text}, not its inverse"
