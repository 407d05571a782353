"""Whether hidden scores are filled with a number that scores of some regimes lie below."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.core.features import EXTREME_VALUES
from mha_parity.targets.masks.experiment import mask_problem, weights_shown

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.conventions.base import Convention

# A fill that scores of thousands lie below is a bug; -1e4 is a habit from float16, -1e6 of a book.
USUAL, HABITUAL = 1e3, 1e8
SEEDS = range(3)  # of the problems that show how large a regime's scores are
REMARK = (
    "hidden scores are filled with a finite number between -1e3 and -1e8, and hidden keys attend "
    "where all visible scores lie below it; fill with -inf, or with the dtype's lowest number."
)


def take_back_regimes(convention: Convention) -> None:
    """Take back the regimes whose scores lie below the fill of the masks, and say so."""
    problem = _masked(convention)
    if problem is None:
        return
    try:
        attend = [_hidden_attend(convention, problem, size) for size in (USUAL, HABITUAL)]
    except CandidateError:
        return  # the run says what it raised
    if attend != [False, True]:
        return
    kept = [
        name
        for name in convention.offer["regime"]
        if name in EXTREME_VALUES or _largest(convention, name) < USUAL  # scores of normal inputs
    ]
    for name in set(convention.offer["regime"]) - set(kept):
        convention.reasons["regime", name] = "its scores lie below the fill of the masks"
    convention.offer = convention.offer | {"regime": tuple(kept)}
    convention.remarks = (*convention.remarks, REMARK)


def _masked(convention: Convention) -> Problem | None:
    """Return a problem with hidden keys, by a mask or the target's own causal rule, or None.

    Every row sees a key.
    """
    offer = convention.offer
    problem = mask_problem(convention, offer["layout"][-1], square=True)
    case = problem.case
    hidden = _hidden(case.keys)
    if "bool2d" in offer["attn"]:
        return problem.replace(attn_mask=np.tile(hidden, (case.queries, 1)))
    if {"bool", "lengths"} & {*offer["padding"]}:
        return problem.replace(key_padding_mask=np.tile(hidden, (case.batch, 1)))
    return problem if convention.hides_future and case.queries == case.keys else None


def _hidden(keys: int) -> Array:
    """Return which keys are hidden: the last ones, as lengths can say it too."""
    return np.asarray(np.arange(keys) >= (keys + 1) // 2)


def _hidden_attend(convention: Convention, problem: Problem, size: float) -> bool:
    """Return whether hidden keys have weight where all scores are negative and of this size."""
    name = "query" if problem.w_q is None else "w_q"
    turned = (-size * getattr(problem, name)).astype(problem.dtype)
    large = problem.replace(**{name: turned})
    shown: Array = weights_shown(large, convention(large).output)
    weights = np.nan_to_num(shown)
    if problem.attn_mask is None and problem.key_padding_mask is None:
        return bool(np.triu(weights, k=1).sum(axis=-1).max() > 0.5)
    hidden = _hidden(problem.case.keys)
    return bool(weights[..., hidden].sum(axis=-1).max() > 0.5)


def _largest(convention: Convention, regime: str) -> float:
    """Return the largest score of small problems of a regime, either sign."""
    case = convention.trial_case().replace(regime=regime, attn="none")
    return max(_score(make_problem(case.replace(seed=seed))) for seed in SEEDS)


def _score(problem: Problem) -> float:
    """Return a bound of the scores, by the largest numbers of queries and keys."""

    def rows(array: Array, weight: Array | None) -> Array:
        return array if weight is None else array @ weight.T

    width = problem.head_dim
    q, k = rows(problem.query, problem.w_q), rows(problem.key, problem.w_k)
    norms = [np.abs(each.astype(np.float64)).max(initial=0.0) for each in (q, k)]
    return float(norms[0] * norms[1] * width * problem.scale)
