"""Which of query, key and value a target reads where two of them are one array."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.core.problem import INPUTS, Problem
from mha_parity.diagnose.experiments.arrays.replaced_inputs import input_variants
from mha_parity.diagnose.experiments.designs.calls import unmixed_problem
from mha_parity.diagnose.experiments.designs.variants import answered_variant

if TYPE_CHECKING:
    from mha_parity.diagnose.experiments.designs.calls import Caller, CallResult

# Which arrays are one: each gets the array of the name that stands for it.
SHARED = {
    "query is key": ("query", "query", "value"),
    "query is value": ("query", "key", "query"),
    "key is value": ("query", "key", "key"),
}
LENGTH = 6
REMEDY = (
    "read query, key and value from their own arguments: two that are one array say nothing of the "
    "third"
)


def shared_arrays(caller: Caller) -> str:
    """Return what is read in place of an argument where two are one array; "" if nothing is.

    Three arrays of their own have to be answered rightly: what is wrong there is another matter.
    """
    case = caller.case(inputs="distinct", queries=LENGTH, keys=LENGTH)
    if "distinct" not in caller.candidate.offer["inputs"]:
        return ""
    separate = unmixed_problem(case)
    problems = [_passed(separate, given) for given in SHARED.values()]
    trials = caller.ask_problems([separate, *problems])
    if len(trials) <= len(SHARED) or trials[0].crashed or trials[0].wrong:
        return ""
    wrong = [(name, t) for name, t in zip(SHARED, trials[1:], strict=True) if t.wrong]
    return f"where {wrong[0][0]}, {_read(wrong[0][1])}" if wrong else ""


def _passed(separate: Problem, given: tuple[str, ...]) -> Problem:
    arrays = {name: getattr(separate, source) for name, source in zip(INPUTS, given, strict=True)}
    return separate.replace(**arrays)


def _read(trial: CallResult) -> str:
    """Return which argument is not read, and which is in its place."""
    return answered_variant(trial, input_variants(trial.problem)) or "the output is wrong"
