"""``mha-parity adapt``: the source of an adapter for a target, filled in as far as recognised."""

from __future__ import annotations

import inspect
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from mha_parity.cases.generate import make_problem
from mha_parity.core.candidate import CandidateError
from mha_parity.core.errors import UsageError
from mha_parity.core.head_projections import PROJECTIONS
from mha_parity.targets import backends
from mha_parity.targets.adapters import adapter_source
from mha_parity.targets.adapters.adapted import Adapted
from mha_parity.targets.adapters.closest_interpretation import reading_lines
from mha_parity.targets.backends.list_arrays import ListArrays
from mha_parity.targets.backends.own_tensors import OwnTensors
from mha_parity.targets.bind import bind
from mha_parity.targets.interpretations.try_interpretations import attention_in_float64, is_rounding
from mha_parity.targets.layers.weights import ATTRIBUTES
from mha_parity.targets.libraries.first_call_weights import HoldsParameters
from mha_parity.targets.load import load
from mha_parity.targets.trials.fitted_target import Fitted

if TYPE_CHECKING:
    from typing import Any

MADE_BY_A_CALL = "its parameters are made by a first call, and passed with each, by its library"
ONE_ARRAY = "it takes one array as query, key and value, which no call has: judge it as it stands"
ONE_KV_HEAD = (
    "its heads share one of keys and values, and a call has one for each: judge it as it stands"
)
UNFILLED = "and weights of E x E do not fill them"


def source_of_adapter(target: str) -> str:
    """Return the source of an adapter.

    Raises
    ------
    ValueError
        There is no such target.

    """
    with redirect_stdout(sys.stderr):  # what a target prints is no part of the source
        subject = load(target)
        try:
            bound = bind(subject, Fitted.name)
        except UsageError as error:
            library = backends.library_computed_with(subject)
            reading = reading_lines(error, library)
            return adapter_source.empty_adapter(target, subject, str(error), library, reading)
        reason = _not_written(bound) if isinstance(bound, Fitted) else ""
        if isinstance(bound, Fitted) and not reason:
            try:
                return _checked(target, subject, bound)
            except CandidateError as error:
                reason = str(error)
        return adapter_source.empty_adapter(target, subject, reason, bound.library.name)


def _checked(target: str, subject: Any, bound: Fitted) -> str:
    """Return the source of an adapter, which says so itself where it does not run as it is."""
    source = adapter_source.filled_adapter(target, subject, bound)
    lines = adapter_source.filled_adapter("", subject, bound).replace('Target = load("")\n', "")
    scope: dict[str, Any] = {"Target": subject}  # not executed once more
    exec(lines, scope)  # noqa: S102  (the source was written here)
    adapted = Adapted(scope["attention"], library=bound.library)
    case = bound.trial_case().replace(layout="batch_first", batch=2)
    problem = make_problem(case)
    try:
        output = adapted(problem).output
    except CandidateError as error:
        return adapter_source.filled_adapter(target, subject, bound, said=str(error))
    expected = attention_in_float64(problem, causal=bound.hides_future)
    right = output.shape == expected.shape and is_rounding(output, expected)
    if right or not bound.fit.exact:
        return source
    return adapter_source.filled_adapter(target, subject, bound, said="gives another answer")


def _not_written(bound: Fitted) -> str:
    """Return why the lines that call a recognised target are left to its author; "" if not."""
    subject = bound.subject
    by_library = isinstance(subject, type) and issubclass(subject, HoldsParameters)
    reasons = {
        MADE_BY_A_CALL: by_library,
        "it takes tensors of its own, which an adapter makes and reads": isinstance(
            bound.library, OwnTensors
        ),
        "it takes TensorFlow's tensors, which an adapter makes and reads": bound.library.name
        == "tensorflow",
        "it takes Python's lists, which an adapter makes and reads": isinstance(
            bound.library, ListArrays
        ),
        "its weights are attributes of objects, which an adapter makes": _reads_attributes(bound),
        ONE_ARRAY: bound.how.projection_of_case == "one_array",
        f"each head projects its own channels, {UNFILLED}": bound.how.projection in PROJECTIONS,
        f"its heads are as wide as the input, {UNFILLED}": bound.how.full_width,
        ONE_KV_HEAD: bound.how.one_kv_head,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _reads_attributes(bound: Fitted) -> bool:
    """Return whether a function that gets weight and bias together reads them as attributes."""
    together = any(given.container == "dict" for _, given in bound.how.roles.single_weights)
    code = getattr(inspect.unwrap(bound.subject), "__code__", None) if together else None
    return code is not None and bool(ATTRIBUTES & {*code.co_names})
