"""A cap of tanh on the scores that no option asks for is judged, and said with its number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import TargetError
from mha_parity.core.case import Case
from mha_parity.targets.interpretations.try_interpretations import attention_in_float64
from mha_parity.targets.trials.modified_scores import bends_scores
from subject_checks import check_subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem

LAYER = Case(
    seed=3, batch=2, queries=5, keys=5, heads_count=2, head_dim=4, form="mha",
    projection="packed", inputs="self",
)  # fmt: skip


@pytest.mark.repeats(1)
@pytest.mark.parametrize(
    ("name", "cap"),
    [
        ("capped", "30"),
        ("capped_low", "2"),
        ("Capped", "50"),
        ("CappedLow", "1.5"),
        ("CappedHeads", "30"),
        ("Unnamed", "40"),
    ],
)
def test_the_cap_is_said(name: str, cap: str) -> None:
    """Of functions, of Linears with names and without, and of a class with masks."""
    verdict = check_subject(f"capped_scores.py:{name}", cases=40, diagnose=True)
    assert verdict.failures
    titles = [each.title for each in verdict.diagnosis]
    assert [f"scores are capped by {cap} tanh(score / {cap})"] == titles


@pytest.mark.parametrize("name", ["uncapped", "Uncapped"])
def test_what_has_no_cap_passes(name: str) -> None:
    """The same function and layer without a cap are right, and nothing is said of them."""
    verdict = check_subject(f"capped_scores.py:{name}", cases=40, diagnose=True)
    assert ((), ()) == (verdict.failures, verdict.diagnosis)


@pytest.mark.parametrize(
    ("name", "said"),
    [("Activated", "`tanh` has no counterpart"), ("UnnamedActivated", "do not say so")],
)
def test_activated_projections_are_refused(name: str, said: str) -> None:
    """What is no function of the score has no counterpart in torch's layer, and is not judged."""
    with pytest.raises(TargetError, match=said):
        check_subject(f"capped_scores.py:{name}", cases=40)


def bent(problem: Problem) -> Array:
    """Return attention with scores capped by 2 tanh(score / 2)."""
    return _attention(problem, lambda scores: 2 * np.tanh(scores / 2))


def scaled(problem: Problem) -> Array:
    """Return attention with scores times 1.01: they differ where they are small, too."""
    return _attention(problem, lambda scores: 1.01 * scores)


def rectified(problem: Problem) -> Array:
    """Return attention with negative scores cut off: no smooth function at 0."""
    return _attention(problem, lambda scores: np.maximum(scores, 0))


def activated(problem: Problem) -> Array:
    """Return attention of activated queries and keys: no function of the score."""
    return _attention(problem, lambda scores: scores, np.tanh)


def _attention(
    problem: Problem,
    bend: Callable[[Array], Array],
    activation: Callable[[Array], Array] = np.asarray,
) -> Array:
    case, x = problem.case, problem.query
    q, k, v = (
        (x @ w.T).reshape(case.batch, -1, case.heads_count, case.head_dim).swapaxes(1, 2)
        for w in (problem.w_q, problem.w_k, problem.w_v)
        if w is not None
    )
    powers = np.exp(bend(activation(q) @ activation(k).swapaxes(-1, -2) * problem.scale))
    mixed = powers / powers.sum(axis=-1, keepdims=True) @ v
    return np.asarray(mixed.swapaxes(1, 2).reshape(problem.output_shape))


@pytest.mark.parametrize(
    ("answer", "bends"), [(bent, True), (scaled, False), (rectified, False), (activated, False)]
)
def test_only_a_smooth_function_of_the_score_bends_it(
    answer: Callable[[Problem], Array], bends: bool
) -> None:
    """Another scale, a kink at 0 and activated projections are not taken for a cap of tanh."""
    problem = make_problem(LAYER)
    assert not np.allclose(answer(problem), attention_in_float64(problem, causal=False))
    assert bends is bends_scores(answer, problem)
    assert not bends_scores(answer, problem.replace(case=LAYER.replace(kv_heads_count=1)))
