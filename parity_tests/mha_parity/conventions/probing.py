"""Small calls that show what a candidate does beyond what its signature says.

A probe decides what is *offered*, that is, judged; it never judges. What a candidate refuses to do
is listed as not offered, with what it said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mha_parity.candidate import Answer, CandidateError
from mha_parity.making import make

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mha_parity.case import Case
    from mha_parity.conventions.base import Convention

# An answer in a wider type than asked for is no loss of accuracy, and no parity either.
WIDER = {"float32": ("float64",), "float16": ("float32", "float64")}


@dataclass(frozen=True)
class Shown:
    """What a probe showed: whether the feature is offered, and if not, why."""

    offered: bool
    reason: str = ""


def settle(convention: Convention) -> None:
    """Widen or narrow the convention's offer to what small calls prove."""
    for trial in convention.trials():
        held = convention.offer[trial.axis]
        shown = [accepts(convention, case) for case in trial.cases]
        if all(each.offered for each in shown):
            convention.offer = convention.offer | {trial.axis: (*held, trial.value)}
        else:
            reason = next(each.reason for each in shown if not each.offered)
            convention.reasons[trial.axis, trial.value] = reason
    _only_batches(convention)
    convention.offer = convention.offer | {"dtype": _dtypes(convention)}


def _only_batches(convention: Convention) -> None:
    """Take back the plain layout where only another one is accepted."""
    plain = convention.plain_case()
    held = convention.offer["layout"]
    if len(held) > 1 and held[0] == "unbatched" and not accepts(convention, plain).offered:
        convention.offer = convention.offer | {"layout": held[1:]}


def accepts(convention: Convention, case: Case) -> Shown:
    """Return whether the call goes through and gives arrays of the right shape."""
    problem = make(case)
    try:
        answer = convention(problem)
    except CandidateError as error:
        return Shown(offered=False, reason=str(error))
    if answer.output.shape != problem.output_shape:
        got = f"the output has shape {answer.output.shape}, not {problem.output_shape}"
        return Shown(offered=False, reason=got)
    if case.gradients == "yes" and not answer.gradients:
        return Shown(offered=False, reason="no gradients are returned")
    return _has_weights(case, problem.weights_shape, answer)


def _has_weights(case: Case, whole: tuple[int, int, int, int], answer: Answer) -> Shown:
    if case.weights == "none":
        return Shown(offered=True)
    n, _, *matrix = whole
    wanted = whole if case.weights == "per_head" else (n, *matrix)
    got = None if answer.weights is None else answer.weights.shape
    if got == wanted:
        return Shown(offered=True)
    seen = "no weights are returned" if got is None else f"the weights have shape {got}"
    return Shown(offered=False, reason=seen)


def unproved(convention: Convention) -> None:
    """Offer what the signature claims, in both usual dtypes: for candidates that break a probe."""
    both = tuple(d for d in ("float64", "float32") if d in convention.library.dtypes)
    convention.offer = convention.offer | {"dtype": both}


def _dtypes(convention: Convention) -> tuple[str, ...]:
    """Return the dtypes to judge in.

    float64 always, where the library has it: an answer in less is a finding. float32 unless it is
    answered in float64. The half types only where they come back as they went in.
    """
    offered = []
    plain = _plain(convention)
    for dtype, got in _answered(convention, plain):
        always = dtype == "float64" or (dtype == "float32" and got not in WIDER[dtype])
        if got == dtype or (always and dtype in convention.library.dtypes):
            offered.append(dtype)
        else:
            convention.reasons["dtype", dtype] = _why(got)
    return tuple(offered) or ("float64",)


def _plain(convention: Convention) -> Case:
    case = convention.plain_case()
    layout = convention.offer["layout"]
    if case.layout in layout:
        return case
    return case.replace(layout=layout[0], batch=1 if layout[0] == "unbatched" else 2)


def _answered(convention: Convention, case: Case) -> Iterator[tuple[str, str]]:
    """Yield each dtype and the dtype of the answer to it, or what was said instead."""
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        if dtype not in convention.library.dtypes:
            yield dtype, f"!{convention.library.name} has no such arrays"
            continue
        try:
            yield dtype, convention(make(case.replace(dtype=dtype))).output.dtype.name
        except CandidateError as error:
            yield dtype, f"!{error}"


def _why(got: str) -> str:
    return got[1:] if got.startswith("!") else f"it is answered in {got}"
