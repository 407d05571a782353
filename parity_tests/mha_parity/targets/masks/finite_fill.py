"""Whether hidden scores are filled with a number that scores of some regimes lie below."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.arrays import split_heads
from mha_parity.core.candidate import CandidateError
from mha_parity.core.features import EXTREME_VALUES
from mha_parity.targets.masks.hidden_keys import mask_problem, weights_shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention

# Scores up to this one are ordinary: exp of them is a number in float64, 709.78.
EXP_RANGE = float(np.log(np.finfo(np.float64).max))
SEEDS = range(3)  # of the problems that show how large a regime's scores are
REASON = "its scores lie below the fill of the masks"
REMARK = (
    "hidden scores are filled with a finite number, and hidden keys attend where all visible "
    "scores lie below it, which cases of larger logits would show and are not asked; fill with "
    "-inf, or with the dtype's lowest number."
)


def take_back_regimes(convention: Convention) -> None:
    """Take back the regimes whose scores lie below the fill of the masks, and say so.

    Of any fill that hides keys from all ordinary scores, whatever its size: one that ordinary
    scores lie below fails. The scores of one array with itself cannot be turned below it.
    """
    below: set[str] = set()
    for problem in _masked(convention):
        with suppress(CandidateError):  # the run says what it raised
            below |= _below(convention, problem)
    if not below:
        return
    kept = tuple(name for name in convention.offer["regime"] if name not in below)
    for name in sorted(below):
        convention.reasons["regime", name] = REASON
    convention.offer = convention.offer | {"regime": kept}
    convention.remarks = (*convention.remarks, REMARK)


def _below(convention: Convention, problem: Problem) -> set[str]:
    """Return the regimes whose scores lie below the fill of what hides the keys of a problem."""
    if problem.case.projection == "one_array" or _hidden_attend(convention, problem, EXP_RANGE):
        return set()
    return {
        name
        for name in convention.offer["regime"]
        if name not in EXTREME_VALUES
        and (largest := _largest(convention, name)) > EXP_RANGE
        and _hidden_attend(convention, problem, largest)
    }


def _masked(convention: Convention) -> Iterator[Problem]:
    """Yield problems with hidden keys, by a mask and by the target's own causal rule.

    Every row sees a key.
    """
    offer = convention.offer
    problem = mask_problem(convention, offer["layout"][-1], square=True)
    case = problem.case
    hidden = _hidden(case.keys)
    if "bool2d" in offer["attn"]:
        yield problem.replace(attn_mask=np.tile(hidden, (case.queries, 1)))
    elif {"bool", "lengths"} & {*offer["padding"]}:
        yield problem.replace(key_padding_mask=np.tile(hidden, (case.batch, 1)))
    if convention.hides_future and case.queries == case.keys:
        yield problem


def _hidden(keys: int) -> Array:
    """Return which keys are hidden: the last ones, as lengths can say it too."""
    return np.asarray(np.arange(keys) >= (keys + 1) // 2)


def _hidden_attend(convention: Convention, problem: Problem, depth: float) -> bool:
    """Return whether hidden keys have weight where all visible scores lie at -``depth`` or below.

    In one row, whose largest visible score is that; those of others may be larger.
    """
    case = problem.case
    visible = np.tri(case.queries, case.keys, dtype=bool)
    if problem.attn_mask is not None or problem.key_padding_mask is not None:
        visible = np.tile(~_hidden(case.keys), (case.queries, 1))
    least = np.where(visible, _scores(problem), np.inf).min(axis=-1).max()  # all are above 0
    name = "query" if problem.w_q is None else "w_q"
    turned = (-depth / least * getattr(problem, name)).astype(problem.dtype)
    large = problem.replace(**{name: turned})
    shown: Array = weights_shown(large, convention(large).output)
    weights = np.where(visible, 0, np.nan_to_num(shown))
    return bool(weights.sum(axis=-1).max() > 0.5)


def _scores(problem: Problem) -> Array:
    """Return the scores (N, H, L, S) of a problem without biases, no key hidden."""
    q, k = _projected(problem)
    heads = problem.num_heads
    return np.asarray(split_heads(q, heads) @ split_heads(k, heads).swapaxes(-1, -2)) * np.float64(
        problem.scale
    )


def _projected(problem: Problem) -> list[Array]:
    """Return queries and keys as they are projected, in float64."""
    parts = (
        (problem.query, problem.w_q, problem.b_q), (problem.key, problem.w_k, problem.b_k)
    )  # fmt: skip
    found = []
    for array, weight, bias in parts:
        rows = array.astype(np.float64)
        rows = rows if weight is None else rows @ weight.T.astype(np.float64)
        found.append(rows if bias is None else rows + bias.astype(np.float64))
    return found


def _largest(convention: Convention, regime: str) -> float:
    """Return the largest score of small problems of a regime, either sign.

    Biases sink the scores of some, and the scores of self-attention are squares in others.
    """
    offer = convention.offer
    case = convention.trial_case().replace(regime=regime, attn="none", bias=offer["bias"][-1])
    return max(
        _score(make_problem(case.replace(seed=seed, inputs=inputs, **_sizes(case, inputs))))
        for seed in SEEDS
        for inputs in offer["inputs"]
    )


def _sizes(case: Case, inputs: str) -> dict[str, int]:
    """Return the sizes that self-attention ties."""
    return {"keys": case.queries} if inputs == "self" else {}


def _score(problem: Problem) -> float:
    """Return a bound of the scores, by the largest numbers of queries and keys."""
    with np.errstate(all="ignore"):  # of the largest number
        q, k = (float(np.abs(each).max(initial=0.0)) for each in _projected(problem))
        return q * k * problem.head_dim * problem.scale
