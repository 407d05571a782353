"""Methods of a layer that take one row more, and keep those before it in the layer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import CandidateError
from mha_parity.targets.conventions.calls import method_of, owner_of, target_errors
from mha_parity.targets.conventions.own_methods import own_methods

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.targets.conventions.calls import Call

_STEP = re.compile(
    r"((forward|decode|attend|run|infer|inference|incremental|single|one|generate|next)_)?"
    r"(step|token|incremental|one)(_forward)?|decode|incremental(_forward|_step)?"
)
_OF_TRAINING = re.compile(r"lr|rate|eta|opt|grad|loss")  # of a step of gradient descent
ROW_BY_ROW = "`{}` was asked row by row: each row sees those before it."
UNTRIED = "`{}` was not tried: it is not the answer to one row more of a sequence."
OF_MORE = "`{0}` was not tried: it takes more than one row; judge `{1}.{0}` for it."


def step_methods(kind: Any) -> Iterator[str]:
    """Yield the methods of a class that are called a step by their names, and need one argument."""
    for name, required in own_methods(kind):
        if _STEP.fullmatch(name) and len(required) == 1 and not _OF_TRAINING.search(required[0]):
            yield name


def steps_of_more(kind: Any) -> Iterator[str]:
    """Yield the methods of a class that are called so and need further arguments, as a cache."""
    for name, required in own_methods(kind):
        if _STEP.fullmatch(name) and len(required) > 1 and not _OF_TRAINING.search(required[0]):
            yield name


def stepped(call: Call, name: str, *, flat: bool) -> Any:
    """Return what a method of the layer of a call returns of its one row, (N, E) where ``flat``.

    Raises
    ------
    CandidateError
        The call is of no layer with that method, or it raised.

    """
    given = [*call.args, *call.kwargs.values()]
    if not given or not hasattr(owner_of(call.function), name):
        raise CandidateError("structure", f"has no `{name}`")
    method = method_of(call.function, name)
    with target_errors():
        return method(given[0][:, 0] if flat else given[0])
