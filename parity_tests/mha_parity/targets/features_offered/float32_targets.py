"""Leave float64 out of targets that are of float32 by themselves.

Rotations are not judged, and a table of them turns nothing in each call. Code that rotates in
float32, as most does that has complex numbers, takes half of the digits of float64 all the same.
NumPy draws float64: a layer of it that makes its weights in float32 does so on purpose.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.interpretations.try_interpretations import (
    attention_in_float64,
    small_case,
    trial_problem,
)
from mha_parity.targets.layers.layer_arrays import leaves
from mha_parity.targets.static.argument_meanings import LayerSizes
from mha_parity.targets.static.documented_layout import documented_sentences, module_sentences
from mha_parity.targets.static.without_counterpart import parts_without_counterpart
from mha_parity.targets.trials.fitted_target import Fitted
from mha_parity.targets.trials.torch_counterpart import first_part_without

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mha_parity.core.problem import Problem
    from mha_parity.targets.convention_base.convention import Convention
    from mha_parity.targets.layers.removed_parts import Bypass

# Between the errors of both dtypes, of which that of float64 is some 1e-15 and the other 1e-8.
_DIGITS = float(np.sqrt(np.finfo(np.float64).eps * np.finfo(np.float32).eps))
ROTATED = (
    "`{}` rotates in float32, and what it does with other positions than 0 is not judged; "
    "--without {} judges the rest in float64"
)
OF_WEIGHTS = "it makes its weights in float32, and answers with the digits of float32"


DOCUMENTED = "its documentation says that it computes in float32"
_IN_FLOAT32 = re.compile(
    r"\b(scores?|softmax|logits|exponentials?|statistics|comput\w+|accumulat\w+|arithmetic)\b"
    r"[^.;]{0,80}\b(in|to|is|are) (float32|fp32|single precision)\b"
    r"|\bfloat64\b[^.;]{0,60}\b(float32|fp32|single) (accuracy|precision)\b",
    re.IGNORECASE,
)
# Of half precision alone it is a floor, and says nothing of float64.
_OF_HALF = re.compile(
    r"\b(half|float16|fp16|bfloat16|bf16|16[- ]bit|low(er)? precision)\b", re.IGNORECASE
)
_OF_ALL = re.compile(r"\b(always|float64|double|whatever|regardless)\b", re.IGNORECASE)


def documents_float32(subject: Any) -> bool:
    """Return whether a documentation says that float32 is computed in, and not of half alone.

    That of its module is about other things too: there it has to say so of all dtypes.
    """
    found = filter(_IN_FLOAT32.search, documented_sentences(subject))
    of_module = filter(_IN_FLOAT32.search, module_sentences(subject))
    return any(_OF_ALL.search(each) or not _OF_HALF.search(each) for each in found) or any(
        map(_OF_ALL.search, of_module)
    )


def leave_out_float64(bound: Convention) -> None:
    """Leave float64 out of a target that has not its digits, and makes no promise of them."""
    if not isinstance(bound, Fitted) or bound.small_dtype != "float64":
        return
    said = OF_WEIGHTS if _makes_float32(bound) else ""
    said = DOCUMENTED if documents_float32(bound.subject) else said
    if not (said or bound.how.roles.rotations):
        return
    inputs = "self" if len(bound.how.roles.rows) == 1 else "cross"
    problem = trial_problem(bound.how, inputs, "float64")
    try:
        if _has_digits(bound, problem):
            return
        said = said or _of_rotation(bound, problem)
    except CandidateError:
        return
    if said:
        bound.left_out_dtypes = {**bound.left_out_dtypes, "float64": said}


def _makes_float32(bound: Fitted) -> bool:
    """Return whether a layer of NumPy makes all its weights in float32."""
    made = bound.how.construction
    if made is None or bound.library.name != "numpy" or not bound.how.slots:
        return False
    small = small_case()
    layer = bound.new(made, LayerSizes(small.embed_dim, small.heads_count))
    paths = {slot.path for slot in bound.how.slots}
    return {leaf.dtype for leaf in leaves(layer) if leaf.path in paths} == {"float32"}


def _of_rotation(bound: Fitted, problem: Problem) -> str:
    """Say which part rotates in float32, where without it all else has the digits of float64."""
    call = bound.prepare(problem)
    modules: Iterable[tuple[str, Any]] = getattr(call.function, "named_modules", tuple)()
    _, around = parts_without_counterpart(call.make, {id(each): path for path, each in modules})

    def is_right(bypass: Bypass) -> bool:
        return _has_digits(bound, problem) and bool(bypass.found) and not bypass.unlike

    part = first_part_without(bound, around, is_right)
    return ROTATED.format(part, part) if part else ""


def _has_digits(bound: Fitted, problem: Problem) -> bool:
    """Return whether an answer has the digits of float64."""
    output = bound.ask(bound.how, problem).output
    expected = attention_in_float64(problem, causal=bound.fit.causal)
    return bool(np.abs(output - expected).max() <= _DIGITS * np.abs(expected).max())
