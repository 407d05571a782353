"""Refuse what departs from attention by what torch's layer lacks, and say which parts do."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError, TargetError
from mha_parity.targets.calls.target_call import as_they_stand
from mha_parity.targets.convention_base.norm_positions import inner_norms
from mha_parity.targets.interpretations.try_interpretations import attention_in_float64, is_rounding
from mha_parity.targets.layers.removed_parts import PASSING_ON, Bypass
from mha_parity.targets.static.without_counterpart import (
    kept_parts_without_counterpart,
    lacks_counterpart,
    parts_without_counterpart,
)
from mha_parity.targets.trials.fitted_target import Fitted
from mha_parity.targets.trials.modified_scores import bends_scores
from mha_parity.targets.trials.refusals import (
    refusal_without_counterpart,
    refuse_other_kind,
    refuse_separate_kernels,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mha_parity.core.arrays import Array
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention

EVEN_HEAD_DIM = 8  # of the call that is watched: rotary positions halve a head


def refuse_without_counterpart(bound: Convention) -> None:
    """Refuse what departs from attention by what torch's layer cannot express.

    What bends scores alone is judged: a score's function is found, and said with its numbers.

    Raises
    ------
    TargetError
        A small call runs what is called after it; the sentence names that. Or it has no scores.

    """
    refuse_other_kind(bound.name)
    case = bound.trial_case().replace(head_dim=EVEN_HEAD_DIM)
    try:
        problem = make_problem(case)
        call = bound.prepare(problem)
    except CandidateError:
        return  # the run says what it raised
    layer = call.function
    modules: Iterable[tuple[str, Any]] = getattr(layer, "named_modules", tuple)()
    # What stands where a LayerNorm, or a part by its name, was taken out.
    taken_out = {"Identity", PASSING_ON}
    paths = {id(each): path for path, each in modules if type(each).__name__ not in taken_out}
    named, around = parts_without_counterpart(call.make, paths)
    named = named or kept_parts_without_counterpart(
        layer, lambda: bound.answer(problem, call.make()).output
    )
    if named and not _turns_nothing(bound, problem, around):
        if bends_scores(lambda other: _output(bound, other), problem):
            return
        parts = _parts_to_take_out(bound, problem, around)
        raise TargetError(refusal_without_counterpart(bound.name, named, parts=parts))
    refuse_separate_kernels(bound)


def _turns_nothing(bound: Convention, problem: Problem, around: tuple[str, ...]) -> bool:
    """Return whether a call that gets a rotation by 0 answers the same without a part so named."""
    if not isinstance(bound, Fitted) or not bound.how.roles.rotations:
        return False
    whole = _output(bound, problem)

    def is_the_same(bypass: Bypass) -> bool:
        return is_rounding(_output(bound, problem), whole) and bool(bypass.used)

    return bool(first_part_without(bound, around, is_the_same))


def first_part_without(
    bound: Convention, around: tuple[str, ...], holds: Callable[[Bypass], bool]
) -> str:
    """Return the first part without which something holds of a target; "" if there is none."""
    for part in around:
        bypass = Bypass(bound.subject, (part,))
        # Not as programs that were compiled with the part in them.
        with suppress(CandidateError), as_they_stand(on=True), bypass:
            if holds(bypass):
                return part
    return ""


def _parts_to_take_out(
    bound: Convention, problem: Problem, around: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the first part without which a target computes attention, and norms of q and k.

    Without such a part, the first that has a name of these and can return what it is given.
    """
    expected = [attention_in_float64(problem, causal=causal) for causal in (False, True)]
    nearest: tuple[str, ...] = ()
    for part in around:
        bypass = Bypass(bound.subject, (part,))
        # Not as programs that were compiled with the part in them.
        with suppress(CandidateError), as_they_stand(on=True), bypass:
            output = _output(bound, problem)
            if bypass.unlike or not bypass.found:
                continue
            if any(is_rounding(output, each) for each in expected):
                norms: tuple[str, ...] = ()
                if isinstance(bound, Fitted) and bound.how.norms:
                    norms = inner_norms(bound, problem)
                return part, *(path.removeprefix("params.") for path in norms)
            nearest = nearest or (part,) * lacks_counterpart(part)
    return nearest


def _output(bound: Convention, problem: Problem) -> Array:
    return bound.answer(problem, bound.prepare(problem).make()).output
