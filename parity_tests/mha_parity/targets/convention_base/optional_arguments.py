"""Optional arguments of a call: keys and values, the axis of samples, a factor of the scores."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.core.compare import equal_up_to_rounding
from mha_parity.targets.interpretations.try_interpretations import (
    Search,
    attention_in_float64,
    is_rounding,
    trial_problem,
)
from mha_parity.targets.static import call_parameters

if TYPE_CHECKING:
    from mha_parity.core.arrays import Array
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention
    from mha_parity.targets.convention_base.interpreted import InterpretedCalls
    from mha_parity.targets.interpretations.interpretation import Interpretation
    from mha_parity.targets.interpretations.try_interpretations import Ask

GIVEN_SCALE = 0.375  # of a trial: neither 0 nor 1 / sqrt(head_dim)
OTHERWISE = (
    "without {} it answers otherwise than with the queries in that place; self-attention was asked "
    "without."
)
# Names that keys and values have together, which may be a pair of another layer's or call's.
PAIR = re.compile(r"^(kv|key_?values?)(_|s?$)")
# A name that says what is scaled; `scale` may be anything's.
SCALE_OF_SCORES = re.compile(r"^(sm|softmax|attn|attention|qk|score)_?scal(e|ing)")


def takes_scale(convention: InterpretedCalls, case: Case, default: object) -> bool:
    """Return whether a scale that the caller gives is to be judged as a factor of the scores.

    It is one; or its name says so, and it is nothing else that it may be. A parameter of that
    name may mean something else: then it is left at its default.
    """
    if not convention.scale_parameter:
        return False
    problem = make_problem(case).replace(given_scale=GIVEN_SCALE)
    try:
        output = convention(problem).output
    except CandidateError as error:
        convention.reasons["scale", "given"] = str(error)
        return False
    # Without a number for a default it stands in for 1 / sqrt(D), and does not multiply it.
    factors = {"": GIVEN_SCALE, "divides the scores": 1 / GIVEN_SCALE}
    if isinstance(default, int | float):
        factors["multiplies the scaled scores"] = GIVEN_SCALE / problem.head_dim**0.5
    for said, factor in factors.items():
        given = problem.replace(given_scale=factor)
        if is_rounding(output, attention_in_float64(given, causal=convention.hides_future)):
            convention.reasons["scale", "given"] = f"`{convention.scale_parameter}` {said}"
            return not said
    name = convention.scale_parameter
    convention.reasons["scale", "given"] = f"`{name}` is no factor of the scores"
    return bool(SCALE_OF_SCORES.search(name))


def without_unread_pair(how: Interpretation, ask: Ask, dtype: str) -> Interpretation:
    """Return an interpretation without keys and values of an earlier call, if rows are not read.

    Another name, as `context`, says that rows are read: then ignoring them is the mistake.
    """
    left = tuple(each for each in how.roles.inputs if not PAIR.search(each[0]))
    if how.construction is None or len(left) == len(how.roles.inputs):
        return how
    fewer = replace(how, roles=replace(how.roles, inputs=left))
    problem = trial_problem(how, "cross", dtype)
    try:
        outputs = [ask(each, problem).output for each in (how, fewer)]
    except CandidateError:
        return how
    return fewer if np.array_equal(outputs[0], outputs[1]) else how


def switch_of_keys(convention: InterpretedCalls, ask: Ask, dtype: str) -> str:
    """Return the switch of the constructor without which keys of their own are not read.

    `cross_attn=False` may leave a second input unread. "" where there is none, or none is needed.
    """
    kind = convention.subject
    named = call_parameters.of_callable(kind) if isinstance(kind, type) else ()
    how, search = convention.how, Search(ask, dtype)
    off = [p.name for p in named if p.default is False]
    if not off or search.tried_with(how, "cross").exact:
        return ""
    for name in off:
        convention.cross_switch = name
        if search.tried_with(how, "cross").exact:
            return name
    return ""


def left_out_in_self(convention: InterpretedCalls, case: Case) -> frozenset[str]:
    """Return the keys and values that calls of self-attention are made without, as their users do.

    Those that change nothing beside rounding: a layer may have a mask that it reads then alone. And
    those without which the answer is computed otherwise from the same weights: where both answers
    are not the same attention, one is wrong. A causal rule for such calls alone is none of that.
    """
    defaults = {p.name: p.default for p in call_parameters.of_callable(convention.entry())}
    inputs = convention.how.roles.inputs
    names = frozenset(name for name, _ in inputs[1:] if defaults.get(name, "") is None)
    if not names or "self" not in convention.offer["inputs"]:
        return frozenset()
    problem = make_problem(case.replace(inputs="self", keys=case.queries))
    held = convention.left_out
    try:
        whole = convention(problem).output
        convention.left_out = names
        alone = convention(problem).output
        alike = equal_up_to_rounding(whole, alone)
        # Further weights, which no other call reads, may be a bias of positions for such calls.
        if not alike and (convention.how.unread or not _attends(convention, problem, alone)):
            names = frozenset()
    except CandidateError:
        return frozenset()
    finally:
        convention.left_out = held
    if names and not alike:
        said = " and ".join(f"`{name}`" for name in sorted(names))
        convention.remarks = (*convention.remarks, OTHERWISE.format(said))
    return names


def _attends(convention: Convention, problem: Problem, output: Array) -> bool:
    """Return whether an output depends on the weights of q, k and v, and is no causal attention."""
    if output.shape != problem.output_shape:
        return False
    if is_rounding(output, attention_in_float64(problem, causal=True)):
        return False
    weights = {name: getattr(problem, name) for name in ("w_q", "w_k", "w_v")}
    changed = (problem.replace(**{n: 2 * w}) for n, w in weights.items() if w is not None)
    return all(not equal_up_to_rounding(output, convention(each).output) for each in changed)


def single_sample(case: Case, offer: Offer) -> Case:
    """Return the case of one sample without its axis; at L = S axes may be taken for each other."""
    single = case.replace(layout="unbatched", batch=1)
    if "cross" in offer["inputs"]:
        single = single.replace(inputs="cross", keys=case.queries + 2)
    return single


def takes_single(convention: Convention, case: Case) -> bool:
    """Return whether one sample without its axis gets the answer of a batch of it.

    Code that was written for three axes may take two for others, and give back their shape.
    """
    batch = make_problem(case.replace(layout="batch_first"))
    try:
        expected, actual = (convention(each).output for each in (batch, batch.replace(case=case)))
    except CandidateError:
        return True  # the trial keeps what it raised
    if equal_up_to_rounding(expected, actual):
        return True
    reason = "3-D inputs get another answer than the same sample in a batch"
    convention.reasons["layout", "unbatched"] = reason
    return False
