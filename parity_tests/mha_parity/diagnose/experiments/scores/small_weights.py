"""Weights below a constant that are raised to it, or set to 0.

One key of five has a score that is larger by a constant: the weights of the others shrink with it.
The constant from which on the output is wrong gives the weight that is no longer passed on.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.diagnose.experiments.designs.calls import WRONG
from mha_parity.diagnose.experiments.designs.designed_scores import shifted
from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.scores.clipped_scores import REMEDY as UNCLIPPED
from mha_parity.diagnose.experiments.scores.row_factors import shortest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.diagnose.experiments.designs.calls import Caller, CallResult

ADDED = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0, 24.0, 26.0, 28.0, 30.0)
HALVINGS = 30
NEAR = 1e-2  # of a constant: how far the number of fewest digits may be from it
BEYOND = 2.0  # added to the score behind the limit, where the sentence is held against the output
# Rows in which no key has nearly all weight, and some in which one has.
SPREAD: dict[str, object] = {"batch": 1, "queries": 101, "keys": 101, "head_dim": 8}
REGIMES = ("normal", "peaky")
REMEDY = "multiply the values with the weights as the softmax gives them"


def small_weights(caller: Caller) -> Effect | None:
    """Return what becomes of small weights, None where nothing does that is known."""
    right = 0.0
    for added in ADDED:
        trial = _at(caller, added)
        if trial is None or (trial.wrong and added == ADDED[0]):
            return None
        if trial.wrong:
            text = _sentence(caller, right, added)
            remedy = UNCLIPPED if text.startswith("scores") else REMEDY
            return Effect(text, remedy) if text else None
        right = added
    return None


def _sentence(caller: Caller, right: float, wrong: float) -> str:
    for _ in range(HALVINGS):
        trial = _at(caller, (right + wrong) / 2)
        if trial is None:
            return ""
        right, wrong = (right, (right + wrong) / 2) if trial.wrong else ((right + wrong) / 2, wrong)
    limit, beyond = _at(caller, wrong), _at(caller, wrong + BEYOND)
    if limit is None or beyond is None or beyond.found is None:
        return ""
    rules = [
        (text, number, rule)
        for text, number, rule in _rules(limit.right.stages["weights"])
        if _explains(rule, beyond)
    ]
    # A share of the row's largest weight is one of all where one key has nearly all weight. Of
    # such a share, and of the largest so far, no absolute constant explains others.
    others = [each for each in caller.ask([caller.case(**SPREAD, regime=r) for r in REGIMES])
              if each.wrong]  # fmt: skip
    fitting = [
        (-sum(_explains(rule, each) for each in others), _digits(number), text.format(c=number))
        for text, number, rule in rules
    ]
    return min(fitting, key=lambda each: each[:2], default=(0, 0, ""))[2]


def _digits(number: float) -> int:
    return len(f"{number:.2e}".partition("e")[0].rstrip("0"))


def _explains(rule: Callable[[Array], Array], result: CallResult) -> bool:
    """Return whether the output is that of the right weights after a rule."""
    if result.found is None:
        return False
    changed = rule(result.right.stages["weights"])
    expected = changed @ result.right.stages["value heads"]
    return bool(np.abs(result.found - expected).max() <= WRONG * result.allowed)


def _rules(limit: Array) -> Iterator[tuple[str, float, Callable[[Array], Array]]]:
    """Yield what may become of weights below the least one of ``limit``, with the constant."""
    least_of = np.where(limit > 0, limit, np.inf)  # hidden keys have none
    least = shortest(float(least_of.min()), NEAR)
    ratio = float((least_of.min(axis=-1) / limit.max(axis=-1)).min())
    share, below = shortest(ratio, NEAR), shortest(-math.log(ratio), NEAR)
    for text, number, rule in (
        ("weights below {c:.3g} of the largest of their row are set to 0", share,
         partial(_dropped_beside, share=share)),
        ("weights below {c:.3g} are raised to it", least, partial(_raised, least=least)),
        ("weights below {c:.3g} are set to 0", least, partial(_dropped, least=least)),
    ):  # fmt: skip
        yield text, number, rule
        again = partial(_divided, rule=rule)
        yield f"{text}, and each row is divided by its sum again", number, again
    clipped = partial(_divided, rule=partial(_raised_beside, share=math.exp(-below)))
    yield "scores are clipped to {c:.3g} below the largest of their row", below, clipped


def _raised(weights: Array, least: float) -> Array:
    return np.asarray(np.maximum(weights, least) * (weights > 0))


def _dropped(weights: Array, least: float) -> Array:
    return np.where(weights < least, 0, weights)


def _dropped_beside(weights: Array, share: float) -> Array:
    return np.where(weights < share * weights.max(axis=-1, keepdims=True), 0, weights)


def _raised_beside(weights: Array, share: float) -> Array:
    powers = np.maximum(weights / weights.max(axis=-1, keepdims=True), share)
    return np.asarray(powers * (weights > 0))


def _divided(weights: Array, rule: Callable[[Array], Array]) -> Array:
    changed = rule(weights)
    return np.asarray(changed / changed.sum(axis=-1, keepdims=True))


def _at(caller: Caller, added: float) -> CallResult | None:
    problem = shifted(caller, caller.base.dtype, added, "last key")
    if problem is None or not caller.running():
        return None
    return caller.ask_problems([problem])[0]
