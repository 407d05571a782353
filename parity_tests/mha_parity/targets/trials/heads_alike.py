"""Functions of rows that answer arrays with an axis of heads otherwise than each head alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError, TargetError
from mha_parity.core.problem import INPUTS
from mha_parity.targets.interpretations.try_interpretations import (
    NOT_FINITE,
    is_rounding,
    trial_problem,
)
from mha_parity.targets.static.documented_layout import (
    documents_heads_before_rows,
    documents_rows_alone,
    documents_samples_of_heads,
)

if TYPE_CHECKING:
    from mha_parity.targets.interpretations.interpretation import Interpretation
    from mha_parity.targets.interpretations.try_interpretations import InterpretationResult, Search


class UnlikeHeads(TargetError):  # noqa: N818  (named by what is wrong, as TargetError's others)
    """A function of one sequence answers arrays with heads otherwise than each of them alone."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"got {name}, which answers arrays (N, H, L, D) otherwise than each of their heads "
            "alone, but should answer heads alike; mend that, or say with `--convention qkv` that "
            "it is for one head."
        )


def documented_heads(function: Any) -> str:
    """Return the arrangement of arrays with heads that a function documents; "" for none."""
    if documents_heads_before_rows(function):
        return "heads"
    return "rows_of_heads" if documents_samples_of_heads(function) else ""


def with_documented_heads(
    best: InterpretationResult, search: Search, function: Any, name: str
) -> InterpretationResult:
    """Return the nearest fit with heads for one of rows alone, if heads are documented, else it.

    Attention over another axis than the keys' is right of arrays that lack the other axes. What
    answers each head as it answers it alone is wrong by the values, and is judged with heads.

    Raises
    ------
    UnlikeHeads
        One sequence alone is answered rightly, arrays with heads otherwise, and no documentation
        says of which arrays the function is.

    """
    how = best.interpretation
    of_rows = best.exact and how.arrangement == "rows" and not how.many_heads
    if not of_rows or how.roles.weights or how.roles.heads:
        return best
    answered = [
        each
        for each in search.trials
        if each.interpretation.of_heads
        and each.interpretation.roles == how.roles
        and each.correlation >= NOT_FINITE
    ]
    documented = documented_heads(function)
    demanded = documented or "heads"
    near = (each for each in answered if each.interpretation.arrangement == demanded)
    found = max(near, key=lambda each: each.correlation, default=None)
    if found is None or documented:
        return found or best
    if how.layout != "unbatched" or documents_rows_alone(function):
        return best
    if answers_heads_alike(search, found.interpretation, how):
        return found
    raise UnlikeHeads(name)


def answers_heads_alike(search: Search, of_heads: Interpretation, alone: Interpretation) -> bool:
    """Return whether each head of an answer is the answer to that head alone."""
    problem = trial_problem(of_heads, "cross", search.dtype, search.base)
    case = problem.case.replace(batch=1, heads_count=1, layout="unbatched")
    try:
        whole = search.ask(of_heads, problem).output
        for sample in range(problem.case.batch):
            for head in range(problem.case.heads_count):
                width = slice(head * case.head_dim, (head + 1) * case.head_dim)
                rows = {name: getattr(problem, name)[[sample], :, width] for name in INPUTS}
                one = search.ask(alone, make_problem(case).replace(**rows)).output
                if not is_rounding(one[0], whole[sample, :, width]):
                    return False
    except CandidateError:
        return False
    return True
