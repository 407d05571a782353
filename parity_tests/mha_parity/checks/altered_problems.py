"""Problems to ask of the object that was built for another: other rows, masks and lengths.

Weights, dtype, heads and layout stay: whoever answers the problem answers these as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.head_projections import PROJECTIONS
from mha_parity.core.problem import INPUTS, WEIGHTS, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.core.features import Offer

MIN_LENGTH = 2  # queries and keys, of which half can be left out
MASKS = ("key_padding_mask", "attn_mask")
CASE_AXES = {"key_padding_mask": "padding", "attn_mask": "attn"}


def other_problem(problem: Problem) -> Problem:
    """Return another problem of the same shapes: rows and weights reversed, times -1.5.

    Weights of each head's own channels keep their places.
    """
    weights = ("w_q", "w_k", "w_v", "b_v", "bias_v", "w_out")
    if problem.case.projection in PROJECTIONS:
        other = _changed(problem, INPUTS, lambda a: a[..., ::-1])
        return _changed(other, (*INPUTS, *weights), lambda a: a * a.dtype.type(-1.5))
    return _changed(problem, (*INPUTS, *weights), lambda a: a[..., ::-1] * a.dtype.type(-1.5))


def other_rows(problem: Problem) -> Problem:
    """Return the problem with its rows reversed, or their sign where they have one column.

    Their sums and norms stay: a result that is kept by one of these is taken for theirs.
    """
    several = min(getattr(problem, name).shape[-1] for name in INPUTS) > 1
    return _changed(problem, INPUTS, lambda array: array[..., ::-1] if several else -array)


def scaled_rows(problem: Problem, factor: float) -> Problem:
    """Return the problem with all rows times a factor."""
    return _changed(problem, INPUTS, lambda array: array * array.dtype.type(factor))


def _changed(problem: Problem, names: Iterable[str], change: Callable[[Array], Array]) -> Problem:
    """Return the problem with each of these arrays changed; what was one array stays one."""
    changes: dict[str, Any] = {}
    changed: dict[int, Array] = {}
    for name in names:
        array = getattr(problem, name)
        if array is not None:
            changes[name] = changed.setdefault(id(array), change(array).astype(array.dtype))
    return problem.replace(**changes)


def first_half(problem: Problem) -> Problem | None:
    """Return the problem with the first half of its queries and keys; None where there is none."""
    if min(problem.case.queries, problem.case.keys) < MIN_LENGTH:
        return None
    queries, keys = problem.case.queries // 2, problem.case.keys // 2
    changes: dict[str, object] = {}
    cut: dict[int, Array] = {}
    for name, length in zip(INPUTS, (queries, keys, keys), strict=True):
        array = getattr(problem, name)
        changes[name] = cut.setdefault(id(array), array[:, :length].copy())
    if problem.key_padding_mask is not None:
        changes["key_padding_mask"] = problem.key_padding_mask[:, :keys].copy()
    if problem.attn_mask is not None:
        changes["attn_mask"] = problem.attn_mask[..., :queries, :keys].copy()
    return problem.replace(case=problem.case.replace(queries=queries, keys=keys), **changes)


def first_sample(problem: Problem) -> Problem | None:
    """Return the problem of the first sample alone; None where there are no others."""
    if problem.case.batch < 2 or problem.case.layout == "unbatched":
        return None
    counts = dict.fromkeys((*INPUTS, "key_padding_mask"), 1) | {"attn_mask": problem.num_heads}
    changes: dict[str, object] = {}
    cut: dict[int, Array] = {}
    for name, count in counts.items():
        array = getattr(problem, name)
        if array is not None and not (name == "attn_mask" and array.ndim == 2):
            changes[name] = cut.setdefault(id(array), array[:count].copy())
    return problem.replace(case=problem.case.replace(batch=1), **changes)


def masks_shifted_by_one_key(problem: Problem) -> Problem | None:
    """Return the problem with its masks moved on by one key; None where that changes nothing.

    Lengths hide the last keys and no others: each sample gets another length.
    """
    changes: dict[str, Array] = {}
    for name in MASKS:
        mask = getattr(problem, name)
        if mask is not None:
            lengths = name == "key_padding_mask" and problem.case.padding == "lengths"
            changes[name] = _other_lengths(mask) if lengths else np.roll(mask, 1, axis=-1)
    if all(np.array_equal(mask, getattr(problem, name)) for name, mask in changes.items()):
        return None
    return problem.replace(**changes)


def _other_lengths(hidden: Array) -> Array:
    """Return a mask (N, S) of one key more for each sample, or of one alone where all are seen."""
    keys = hidden.shape[-1]
    lengths = keys - hidden.sum(axis=-1, keepdims=True)
    return np.asarray(np.arange(keys) > lengths % max(keys, 1))


def all_keys_visible(problem: Problem, offer: Offer) -> Problem | None:
    """Return the problem with all keys visible; None where it is, or is not offered."""
    case = problem.case
    hidden = problem.is_causal or any(getattr(problem, name) is not None for name in MASKS)
    if not hidden or not all("none" in offer[axis] for axis in ("padding", "attn")):
        return None
    return problem.replace(case=case.replace(padding="none", attn="none"), **dict.fromkeys(MASKS))


def with_keys_of(problem: Problem, earlier: Problem) -> Problem | None:
    """Return the problem with the keys and values of an earlier one of the same shapes."""
    if problem.key.shape != earlier.key.shape:
        return None
    return problem.replace(key=earlier.key, value=earlier.value)


def with_masks_of(
    problem: Problem, earlier: Problem, names: Sequence[str] = MASKS
) -> Problem | None:
    """Return the problem with some or all masks of an earlier one of the same lengths."""
    masks = {name: getattr(earlier, name) for name in names}
    sizes = [(each.case.queries, each.case.keys) for each in (problem, earlier)]
    if sizes[0] != sizes[1] or all(masks[name] is getattr(problem, name) for name in names):
        return None
    kinds = {CASE_AXES[name]: getattr(earlier.case, CASE_AXES[name]) for name in names}
    return problem.replace(case=problem.case.replace(**kinds), **masks)


def with_masks_joined(problem: Problem, earlier: Problem) -> Problem | None:
    """Return the problem with what an earlier one's masks of booleans hide of its keys besides.

    None where the earlier one is shorter, has other samples, or masks of floats.
    """
    batch, length, keys = problem.case.batch, problem.case.queries, problem.case.keys
    fits = earlier.case.batch == batch and earlier.case.queries >= length
    joined: dict[str, Array] = {}
    kinds: dict[str, str] = {}
    for name in MASKS:
        own, kept = getattr(problem, name), getattr(earlier, name)
        if kept is None:
            continue
        kept = kept[..., :keys] if name == "key_padding_mask" else kept[..., :length, :keys]
        known = kept if own is None else own
        if not (fits and kept.dtype == known.dtype == np.bool_ and kept.shape == known.shape):
            return None
        joined[name] = known | kept
        kinds[CASE_AXES[name]] = getattr(
            (earlier if own is None else problem).case, CASE_AXES[name]
        )
    if not joined or earlier.case.keys < keys:
        return None
    return problem.replace(case=problem.case.replace(**kinds), **joined)


def with_weights_of(problem: Problem, earlier: Problem) -> Problem:
    """Return the problem with the weights of an earlier one of the same widths."""
    return problem.replace(**{name: getattr(earlier, name) for name in WEIGHTS})


def with_more_keys(problem: Problem, other: Problem) -> Problem | None:
    """Return the problem with the keys and values of another behind its own, of as many queries.

    None where masks hide some of them.
    """
    if any(getattr(problem, name) is not None for name in MASKS):
        return None
    alike = problem.key is problem.value
    key, value = (
        np.concatenate((getattr(problem, name), getattr(other, name)), axis=1)
        for name in ("key", "value")
    )
    inputs = "cross" if problem.case.inputs == "self" else problem.case.inputs
    case = problem.case.replace(inputs=inputs, keys=key.shape[1])
    return problem.replace(key=key, value=key if alike else value, case=case)


def after_keys_of(problem: Problem, earlier: Problem) -> Problem | None:
    """Return the problem with the keys and values of an earlier one before its own.

    In self-attention with its rows before those of the problem, which are the last ones then. None
    where masks hide some of them, or the earlier problem has other samples.
    """
    masked = problem.is_causal or any(getattr(problem, name) is not None for name in MASKS)
    if masked or earlier.case.batch != problem.case.batch:
        return None
    names = INPUTS if problem.query is problem.key is problem.value else INPUTS[1:]
    joined: dict[int, Array] = {}
    changes: dict[str, Any] = {}
    for name in names:
        own = getattr(problem, name)
        if id(own) not in joined:
            joined[id(own)] = np.concatenate((getattr(earlier, name), own), axis=1)
        changes[name] = joined[id(own)]
    lengths = {"keys": changes["key"].shape[1]}
    if "query" in changes:
        lengths["queries"] = lengths["keys"]
    return problem.replace(**changes, case=problem.case.replace(**lengths))
