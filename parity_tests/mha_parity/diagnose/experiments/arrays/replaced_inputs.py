"""Which arrays stand in the place of q, k, v or the inputs: the output is right for those.

Each change is held against whole outputs, at several sizes: what fits all of them is the bug.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.core.arrays import softmax
from mha_parity.core.problem import INPUTS, Problem
from mha_parity.diagnose.experiments.arrays.moved_elements import (
    IN_ORDER,
    OWN_ARRAY,
    moved_alike,
    one_for_all,
)
from mha_parity.diagnose.experiments.arrays.packed_rows import REMEDY as SEGMENTS
from mha_parity.diagnose.experiments.arrays.packed_rows import gives, rows_of_others
from mha_parity.diagnose.experiments.arrays.replaced_weights import WEIGHTS, weight_variants
from mha_parity.diagnose.experiments.designs.variants import is_answered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.designs.calls import CallResult

    Heads = tuple[Array, Array, Array]

TRIALS = 6  # wrong outputs that one change has to explain
OWN = "read query, key and value each from its own argument, whatever shapes they have"
SKIPPED = "apply every projection, at all sizes"
OPERANDS = "compute softmax(q k^T / sqrt(D)) v from the projected q, k and v as they are"


def replaced(wrong: Sequence[CallResult]) -> tuple[str, str]:
    """Return what stands in place of what in all wrong outputs, and the remedy; "" where nothing.

    An output that is right but for its order is known by that order.
    """
    chosen = [each for each in wrong if each.found is not None]
    chosen = chosen[:: max(len(chosen) // TRIALS, 1)][:TRIALS]
    if not chosen:
        return "", ""
    if text := moved_alike(chosen):
        return text, IN_ORDER
    if text := one_for_all(chosen):
        return text, OWN_ARRAY
    if text := rows_of_others(chosen):
        return text, SEGMENTS
    kinds = ((input_variants, OWN), (skipped_variants, SKIPPED), (weight_variants, WEIGHTS))
    for changes, remedy in kinds:
        if text := common_variant(chosen, changes):
            return text, remedy
    return (text, OPERANDS) if (text := _operands(chosen)) else ("", "")


def common_variant(
    trials: Sequence[CallResult], variants: Callable[[Problem], Iterator[tuple[str, Problem]]]
) -> str:
    """Return the first change with which all trials are right that rounding cannot explain."""
    telling = [each for each in trials if each.wrong and each.found is not None]
    if not telling:
        return ""
    first, *others = telling
    for text, changed in variants(first.problem):
        if is_answered(first, changed) and all(
            is_answered(each, dict(variants(each.problem)).get(text, each.problem))
            for each in others
        ):
            return text
    return ""


def input_variants(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Yield which of query, key and value may be read in place of others of the same shape.

    And which two of them in each other's place, where they are projected: else they are q, k, v.
    """
    arrays = {name: getattr(problem, name) for name in INPUTS}
    for source in INPUTS:
        others = [name for name in INPUTS if arrays[name] is not arrays[source]]
        for taken in ([others] if len(others) > 1 else []) + [[name] for name in others]:
            if all(arrays[name].shape == arrays[source].shape for name in taken):
                text = " and ".join(taken)
                verb, their = ("are", "their") if len(taken) > 1 else ("is", "its")
                yield (
                    f"{text} {verb} not read: {source} is taken in {their} place",
                    problem.replace(**dict.fromkeys(taken, arrays[source])),
                )
    for one, other in [] if problem.w_q is None else combinations(INPUTS, 2):
        if arrays[one] is not arrays[other] and arrays[one].shape == arrays[other].shape:
            exchanged = {one: arrays[other], other: arrays[one]}
            yield f"{one} and {other} are exchanged", problem.replace(**exchanged)


def skipped_variants(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Yield which projection may be left out, with its bias or without."""
    words = {"out": "the output", "v": "v", "q": "q", "k": "k"}
    for name, word in words.items():
        weight, bias = (getattr(problem, f"{kind}_{name}") for kind in "wb")
        if weight is None or weight.shape[0] != weight.shape[1]:
            continue
        none = {f"w_{name}": np.eye(len(weight), dtype=weight.dtype)}
        zero = {} if bias is None else {f"b_{name}": np.zeros_like(bias)}
        yield (
            f"{word} is not projected: {_input_of(name)} stands there",
            problem.replace(**none | zero),
        )
        if zero:
            yield f"{word} is not projected: its bias alone is added", problem.replace(**none)
            yield f"the bias of {word} is not added", problem.replace(**zero)


def _input_of(name: str) -> str:
    return {"out": "what the heads give", "v": "value", "q": "query", "k": "key"}[name]


def _unit(x: Array) -> Array:
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))


def _standard(x: Array) -> Array:
    return np.asarray((x - x.mean(axis=-1, keepdims=True)) / x.std(axis=-1, keepdims=True))


def _rms(x: Array) -> Array:
    return np.asarray(_unit(x) * np.sqrt(x.shape[-1]))


# What the heads of q, k and v may be in place of themselves; arrays (N, H, T, D).
CHANGED: Mapping[str, Callable[[Array, Array, Array], Heads]] = {
    "q and k are exchanged: the scores are transposed": lambda q, k, v: (k, q, v),
    "k is taken in place of q": lambda _q, k, v: (k, k, v),
    "q is taken in place of k": lambda q, _k, v: (q, q, v),
    "k is taken in place of v": lambda q, k, _v: (q, k, k),
    "v is taken in place of k": lambda q, _k, v: (q, v, v),
    "q is taken in place of v": lambda q, k, _v: (q, k, q),
    "v is added to k": lambda q, k, v: (q, k + v, v),
    "k is added to v": lambda q, k, v: (q, k, v + k),
    "k is added to q": lambda q, k, v: (q + k, k, v),
    "q is added to k": lambda q, k, v: (q, k + q, v),
    "q is added to v": lambda q, k, v: (q, k, v + q),
    "v is divided by its norm": lambda q, k, v: (q, k, _unit(v)),
    "v is divided by its root mean square": lambda q, k, v: (q, k, _rms(v)),
    "v is normalised to mean 0 and variance 1": lambda q, k, v: (q, k, _standard(v)),
    "q and k are divided by their norms": lambda q, k, v: (_unit(q), _unit(k), v),
    # A root mean square is the norm over sqrt(D), which the scale of the scores takes back once.
    "the scores are the cosines of q and k": lambda q, k, v: (_rms(q), _unit(k), v),
    "q and k are divided by their root mean squares": lambda q, k, v: (_rms(q), _rms(k), v),
    "q and k are normalised to mean 0 and variance 1": lambda q, k, v: (
        _standard(q), _standard(k), v,
    ),
    "q is divided by its norm": lambda q, k, v: (_unit(q), k, v),
    "q is divided by its root mean square": lambda q, k, v: (_rms(q), k, v),
    "k is divided by its norm": lambda q, k, v: (q, _unit(k), v),
    "k is divided by its root mean square": lambda q, k, v: (q, _rms(k), v),
}  # fmt: skip


def _operands(trials: Sequence[CallResult]) -> str:
    """Return which change of the heads of q, k and v gives all outputs."""
    return next(
        (text for text, change in CHANGED.items() if all(_gives(change, t) for t in trials)), ""
    )


def _gives(change: Callable[[Array, Array, Array], Heads], trial: CallResult) -> bool:
    """Return whether the changed heads give the answer, with the weights' hidden keys as they are.

    Heads whose shapes do not allow the change give nothing.
    """
    stages = trial.right.stages
    heads = (stages[f"{name} heads"].astype(np.float64) for name in INPUTS)
    hidden = np.isneginf(stages["masked scores"])
    if trial.found is None or not np.array_equal(
        stages["scores"][~hidden], stages["masked scores"][~hidden]
    ):
        return False
    try:
        with np.errstate(all="ignore"):
            q, k, v = change(*heads)
            scores = np.where(hidden, -np.inf, trial.problem.scale * q @ k.swapaxes(-1, -2))
            return gives(softmax(scores) @ v, trial)
    except ValueError:  # shapes that cannot be added or multiplied
        return False
