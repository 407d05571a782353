"""Use of a scale that the caller gives: at both signs, and at 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.diagnose.experiments.designs.calls import CallResult, unmixed_problem
from mha_parity.diagnose.experiments.designs.effect import Effect

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.case import Case
    from mha_parity.diagnose.experiments.designs.calls import Caller

# Drawn scales are 0 or negative in some cases alone, which one case need not be.
SCALES = (0.4, 0.7, -0.4, 0.0)
REMEDY = (
    "multiply the scores by the given scale as it is, 0 and negative ones too; "
    "take 1/sqrt(D) only where it is None"
)
# What may be applied in place of the scale s, at the head width D.
MEANINGS: dict[str, Callable[[float, int], float]] = {
    "it has no effect": lambda _, d: d**-0.5,
    "its sign is reversed": lambda s, _: -s,
    "its sign is lost": lambda s, _: abs(s),
    "it is multiplied by 1/sqrt(D) too": lambda s, d: s * d**-0.5,
    "it is divided by 1/sqrt(D)": lambda s, d: s * d**0.5,
    "scores are divided by it": lambda s, _: 1 / s if s else 0.0,
    "it is applied to q and to k": lambda s, _: s * s,
    "its root is applied": lambda s, _: abs(s) ** 0.5,
    "1 is applied in its place": lambda *_: 1.0,
    "0 is applied in its place": lambda *_: 0.0,
}


def given_scale(caller: Caller, case: Case) -> Effect | None:
    """Return what is applied in place of a given scale, and at which signs; None if it is right."""
    problem = unmixed_problem(case)
    trials = caller.ask_problems([problem.replace(given_scale=scale) for scale in SCALES])
    answered = [each for each in trials if each.found is not None]
    wrong = [each for each in answered if each.wrong]
    if not wrong:
        return None
    for among, where in ((answered, ""), (wrong, f"where it is {_signs(wrong)}, ")):
        for text, meaning in MEANINGS.items():
            if all(_is(each, meaning) for each in among):
                return Effect(f"{where}{text}", REMEDY)
    return Effect("the output is wrong", REMEDY)


def _is(trial: CallResult, meaning: Callable[[float, int], float]) -> bool:
    """Return whether an answer is right for the scale that is applied by this meaning."""
    problem = trial.problem
    applied = meaning(problem.scale, problem.head_dim)
    return not CallResult(problem.replace(given_scale=applied), trial.answer).wrong


def _signs(trials: list[CallResult]) -> str:
    scales = [each.problem.scale for each in trials]
    signs = {"0": 0.0 in scales, "negative": min(scales) < 0, "positive": max(scales) > 0}
    return " or ".join(name for name, found in signs.items() if found)
