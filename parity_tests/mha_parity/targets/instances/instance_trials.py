"""Trials of a layer that is built already, with its own weights and with others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.cases.sizes import LONG, SHORT
from mha_parity.core.candidate import CandidateError, TargetError, without_place
from mha_parity.core.compare import equal_up_to_rounding
from mha_parity.core.global_state import seeded_generators
from mha_parity.targets.calls.error_origin import attributed
from mha_parity.targets.calls.target_call import target_errors
from mha_parity.targets.loading.callables import layer_inside
from mha_parity.targets.trials.refusals import refusal_without_counterpart

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.instance_calls import InstanceCalls

LENGTHS = tuple(sorted({1, *SHORT, *LONG}))  # of drawn cases
FEW = 4  # queries, or keys, next to many of the other
MATRICES = ("w_q", "w_k", "w_v", "w_out")


def built_case(bound: InstanceCalls) -> Case:
    """Return a small case in the sizes of the layer, without biases, as it can be asked."""
    assert bound.own_weights is not None  # noqa: S101  (whoever asks has given the layer)
    case = bound.own_weights.case(bound.plain_case()).replace(bias="no")
    layout, inputs = bound.offer["layout"], bound.offer["inputs"]
    return case.replace(
        layout=case.layout if case.layout in layout else layout[0],
        inputs=case.inputs if case.inputs in inputs else inputs[0],
    )


def without_effect(bound: InstanceCalls) -> str:
    """Say which weights a copy of the layer is given without effect, or what that raises.

    "" where each matrix has an effect. A function that was put into the layer may hold the layer
    itself, and a layer may keep what it made of its weights: such copies say nothing.
    """
    case = built_case(bound)
    problem, other = (make_problem(case.replace(seed=case.seed + more)) for more in (0, 1))
    assert bound.own_weights is not None  # noqa: S101
    held = [name for name in MATRICES if name in bound.own_weights.arrays]
    try:
        output = bound(problem).output
        for name in held:
            changed = bound(problem.replace(**{name: getattr(other, name)})).output
            if np.array_equal(output, changed, equal_nan=True):
                return f"another {name} has no effect in a copy of the layer"
    except CandidateError as error:
        return str(error).partition("\n")[0].rstrip(".")
    return ""


def refuse_left_over(bound: InstanceCalls) -> None:
    """Refuse a layer whose parameters besides the weights of attention change its output.

    Raises
    ------
    TargetError
        It names their modules, as the refusal of a class does that always has them.

    """
    assert bound.instance is not None  # noqa: S101  (whoever asks has given the layer)
    layer = layer_inside(bound.instance.called)
    parameters = getattr(layer, "named_parameters", None)
    owned = {name for name, _ in parameters()} if callable(parameters) else set()
    left = [name for name in bound.instance.own.left_over if name in owned]
    if not left:
        return
    problem = own_problem(bound, built_case(bound))
    try:
        output = _output(bound, problem, "")
        telling = [n for n in left if not equal_up_to_rounding(output, _output(bound, problem, n))]
    except CandidateError:
        return  # the run says what it raised
    if telling:
        places = dict.fromkeys(name.rpartition(".")[0] or name for name in telling)
        raise TargetError(refusal_without_counterpart(f"an instance of {bound.name}", [*places]))


def _output(bound: InstanceCalls, problem: Problem, changed: str) -> Array:
    """Return the output of a copy of the layer in which one parameter has other numbers."""
    assert bound.instance is not None  # noqa: S101
    copy = bound.instance.copied()
    inner = layer_inside(copy)
    with seeded_generators(0), target_errors():
        if changed:
            state = inner.state_dict()
            array = state[changed]
            drawn = np.random.default_rng(0).standard_normal(tuple(array.shape))
            more = array.new_tensor(drawn)
            inner.load_state_dict({**state, changed: array + more})
        call = bound.call_of(copy, problem)
        return bound.answer(problem, call.make()).output


def own_problem(bound: InstanceCalls, case: Case) -> Problem:
    """Return the problem of a case with the layer's own weights."""
    assert bound.instance is not None  # noqa: S101
    own = bound.instance.own
    return own.problem(make_problem(own.case(case)))


def length_limit(bound: InstanceCalls) -> tuple[int, str]:
    """Return the most queries and keys that the layer takes, and what it raises beyond; or 0, "".

    It has a limit where it answers every length up to that and raises one kind of exception at
    every greater one: what raises between lengths that it answers is a failure of the layer.
    """
    longest = _raised(bound, LENGTHS[-1])
    if not longest:
        return 0, ""
    raised = {length: _raised(bound, length) for length in LENGTHS[:-1]} | {LENGTHS[-1]: longest}
    answered = [length for length in LENGTHS if not raised[length]]
    beyond = [length for length in LENGTHS if raised[length]]
    kinds = {raised[length].partition(":")[0] for length in beyond}
    if not answered or answered[-1] > beyond[0] or len(kinds) > 1:
        return 0, ""
    last, first = answered[-1], beyond[0]
    while last + 1 < first:
        middle = (last + first) // 2
        raised[middle] = _raised(bound, middle)
        last, first = (last, middle) if raised[middle] else (middle, first)
    return last, raised[first]


def _raised(bound: InstanceCalls, length: int) -> str:
    """Return what a copy of the layer raises at a length of queries, or of keys; "" if nothing.

    What the harness raises is none of the layer's.
    """
    assert bound.instance is not None  # noqa: S101
    case = built_case(bound)
    other = next((each for each in ("cross", "distinct") if each in bound.offer["inputs"]), "")
    sizes = [(length, FEW), (FEW, length)] if other else [(length, length)]
    for queries, keys in sizes:
        problem = own_problem(
            bound, case.replace(batch=1, queries=queries, keys=keys, inputs=other or case.inputs)
        )
        try:
            with attributed(bound.subject):
                _output(bound, problem, "")
        except CandidateError as error:
            if error.severity == "crash":
                return without_place(str(error).partition("\n")[0]).rstrip(".")
    return ""
