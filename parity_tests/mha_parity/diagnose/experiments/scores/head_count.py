"""With how many heads a target computes, where that is not the number that was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.diagnose.experiments.designs.calls import unmixed_problem
from mha_parity.diagnose.experiments.designs.variants import is_answered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mha_parity.core.problem import Problem
    from mha_parity.diagnose.experiments.designs.calls import Caller, CallResult

# E = 24 in both: the number of heads changes, and what is made of H and D with it.
SIZES = (
    {"batch": 2, "queries": 5, "keys": 7, "heads_count": 4, "head_dim": 6},
    {"batch": 2, "queries": 5, "keys": 7, "heads_count": 6, "head_dim": 4},
)


def _constant(heads: int) -> Callable[[int, int], int]:
    return lambda _h, _d: heads


LAWS: Mapping[str, Callable[[int, int], int]] = {
    "one head of width E": _constant(1),
    "H / 2 heads of width 2 D": lambda h, _d: h // 2,
    "2 H heads of width D / 2": lambda h, _d: 2 * h,
    "D heads of width H: num_heads and head_dim are exchanged": lambda _h, d: d,
    "E heads of width 1": lambda h, d: h * d,
    **{f"{n} heads of width E / {n}, whatever H": _constant(n) for n in (2, 3, 8, 12)},
}


def head_count(caller: Caller) -> str:
    """Return with which heads both problems are answered; "" where that is no other number."""
    offer = caller.candidate.offer
    if "many" not in offer["heads"] or caller.base.kv_heads == "fewer":
        return ""
    trials = caller.ask_problems([unmixed_problem(caller.case(**sizes)) for sizes in SIZES])
    if len(trials) < len(SIZES) or not all(each.wrong for each in trials):
        return ""
    for said, law in LAWS.items():
        for more in ("", ", scaled by 1/sqrt(D)"):
            if all(_is_that(t, law, scaled=bool(more)) for t in trials):
                return said + more
    return ""


def _is_that(trial: CallResult, law: Callable[[int, int], int], *, scaled: bool) -> bool:
    """Return whether an answer is that of other heads, which have to divide the width."""
    case = trial.problem.case
    heads = law(case.heads_count, case.head_dim)
    if not heads or case.embed_dim % heads:
        return False
    return is_answered(trial, _with_heads(trial.problem, law, scaled=scaled))


def _with_heads(problem: Problem, law: Callable[[int, int], int], *, scaled: bool) -> Problem:
    """Return the problem with other heads, scaled by their own width or by D."""
    case = problem.case
    heads = law(case.heads_count, case.head_dim)
    other = case.replace(heads_count=heads, head_dim=case.embed_dim // heads)
    return problem.replace(case=other, given_scale=problem.scale if scaled else None)
