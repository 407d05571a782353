"""Gradients that are NaN since the exponential of a hidden score overflows before the mask does.

A backward pass that computes the weights again as exp(score - log-sum-exp) times a mask of 0 and 1
makes NaN of infinity times 0 where a hidden key's score lies far above the visible ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.compare import as_float64
from mha_parity.diagnose.experiments.designs.effect import Effect
from mha_parity.diagnose.experiments.gradients.gradient_remedies import SAME_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mha_parity.core.case import Case
    from mha_parity.diagnose.experiments.designs.calls import Caller, CallResult

KINDS = {"attn": ("causal", "bool2d"), "padding": ("bool",)}
OVERFLOWS = (
    "gradients are NaN where the score of a hidden key passes the visible ones by more than exp "
    "can hold: infinity times 0"
)


def overflowing(caller: Caller, case: Case) -> Effect | None:
    """Return with which masks gradients are NaN at scores past the range of exp, if any are.

    ``case`` has gradients, and no mask but a causal rule of the target's own: without a mask large
    scores have to be answered, and with that rule small ones.
    """
    offer: Mapping[str, tuple[str, ...]] = caller.candidate.offer
    large, own = case.replace(regime="huge"), case.attn != "none"
    if "huge" not in offer["regime"] or not _is_finite(caller, case if own else large):
        return None
    masks = [(axis, k) for axis, kinds in KINDS.items() for k in kinds if k in offer[axis]]
    masks = [("attn", case.attn)] if own else masks
    named = [
        f"{axis}={kind}" for axis, kind in masks if _is_nan(caller, large.replace(**{axis: kind}))
    ]
    return Effect(f"with {', '.join(named)}: {OVERFLOWS}", SAME_KEYS) if named else None


def _gradients(caller: Caller, case: Case) -> CallResult | None:
    trials = caller.ask_problems([make_problem(case)]) if caller.running() else []
    return next((t for t in trials if t.answer is not None and t.answer.gradients), None)


def _is_finite(caller: Caller, case: Case) -> bool:
    """Return whether all gradients are numbers."""
    return (trial := _gradients(caller, case)) is not None and not _has_nan(trial)


def _is_nan(caller: Caller, case: Case) -> bool:
    """Return whether a gradient is NaN, and the output is none."""
    trial = _gradients(caller, case)
    return trial is not None and not trial.wrong and _has_nan(trial)


def _has_nan(trial: CallResult) -> bool:
    gradients = {} if trial.answer is None else trial.answer.gradients or {}
    return any(bool(np.isnan(as_float64(each)).any()) for each in gradients.values())
