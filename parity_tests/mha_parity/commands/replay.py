"""Replays one case on a target; with ``--pdb`` the debugger stops inside the target."""

from __future__ import annotations

import dataclasses
import pdb  # noqa: T100  (what --pdb asks for)
import shlex
from typing import TYPE_CHECKING, cast

from mha_parity.cases.clashes import can_coexist
from mha_parity.checks.compared_calls import compared_calls_reported
from mha_parity.core.case import parse
from mha_parity.core.errors import UsageError
from mha_parity.oracle.reference import reference_answer
from mha_parity.oracle.torch_answers import NotRecordedError, problem_of, using_record
from mha_parity.report import case_view
from mha_parity.run.asked_cases import settings_of
from mha_parity.run.case_detail import case_detail
from mha_parity.run.case_run import run_case
from mha_parity.run.recorded_answers import record_of
from mha_parity.run.weights_pictures import draw_picture
from mha_parity.targets.calls.target_call import target_errors

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from rich.console import Console

    from mha_parity.checks.call_effects import MonitoredCandidate
    from mha_parity.core.candidate import Answer, Candidate
    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.options import Options
    from mha_parity.core.own_weights import OwnWeights
    from mha_parity.core.problem import Problem
    from mha_parity.core.report_arrays import WeightsPicture
    from mha_parity.targets.convention_base.convention import Convention

# Debugging a layer should not stop in the call machinery around it.
SKIPPED = ("mha_parity.*", "numpy._core.*", "torch.nn.modules.module")


def in_process(options: Options) -> Options:
    """Return the options for a target in this process, where a debugger can stop in it."""
    return dataclasses.replace(options, in_process=True)


def replay(
    text: str,
    opened: AbstractContextManager[Candidate],
    target: str,
    options: Options,
    console: Console,
    *,
    pdb: bool,
    display: Callable[[WeightsPicture], None] | None = None,
) -> int:
    """Show the case that ``text`` names on a target; return 1 where it fails, else 0.

    With ``pdb`` the debugger stops at the first line of the target, which has to be ``here``.
    ``display`` shows the picture of the attention weights.

    Raises
    ------
    UsageError
        The id is no case, or the target does not offer what the case needs.

    """
    case = _parsed(text, target)
    case = case.replace(gradients="yes") if options.grad else case
    with using_record(record_of(options)), opened as candidate:
        require_offered(case, candidate.offer, target)
        require_solvable(case, candidate.facts.own_weights)
        settings = settings_of(options, candidate)
        reported: list[tuple[str, str]] = []

        def tell(check: str, text: str) -> None:
            reported.append((check, text))

        if (describe := getattr(candidate, "describe_calls", None)) is not None:
            describe(tell)
        asked = DebuggedCandidate(cast("MonitoredCandidate", candidate).bound) if pdb else candidate
        with compared_calls_reported(tell):  # of a relation, whose calls are compared here
            case_result = run_case(asked, case, settings)
        picture = draw_picture(candidate, case_result, settings) if display else None
    detail = case_detail(case_result, settings, reported)
    case_view.print_case(detail, target, console)
    if display and picture:
        display(picture)
    return int(case_result.fails)


def require_offered(case: Case, offer: Offer, target: str) -> None:
    """Make sure that the target offers what the case needs.

    Raises
    ------
    UsageError
        A feature of the case is not offered.

    """
    for axis, value in case.features().items():
        if value not in offer[axis]:
            raise UsageError(
                f"the case needs {axis}={value}, but {target} offers {', '.join(offer[axis])}; "
                f"replay a case drawn for this target."
            )


def require_solvable(case: Case, own: OwnWeights | None) -> None:
    """Make sure that there is a problem of the case, and an answer to it.

    Raises
    ------
    UsageError
        Sizes and features of the case do not fit each other.

    """
    try:
        problem = problem_of(case, own)
        reference_answer(problem)
        said = "" if _fits(problem) else "its arrays have other sizes"
    except NotRecordedError:
        raise
    except Exception as error:  # noqa: BLE001  (whatever impossible sizes raise, in torch too)
        said = str(error).partition("\n")[0]
    if said or not can_coexist(case.features()):
        raise UsageError(
            f"got the case {case.id}, but no problem has its sizes and features together"
            f"{said and f' ({said})'}; copy the id of a report."
        )


def _fits(problem: Problem) -> bool:
    """Return whether the arrays have the sizes of the case and of the weights."""
    case = problem.case
    widths = [
        rows.shape[-1] == weight.shape[1]
        for rows, weight in ((problem.key, problem.w_k), (problem.value, problem.w_v))
        if weight is not None
    ]
    sizes = (len(problem.query), problem.query.shape[1], problem.key.shape[1])
    samples = case.layout != "unbatched" or case.batch == 1
    return samples and all(widths) and sizes == (case.batch, case.queries, case.keys)


def _parsed(text: str, target: str) -> Case:
    """Return the case of an id; where the target stands in its place, say the right order."""
    try:
        return parse(text)
    except UsageError as mistake:
        try:
            parse(target)
        except UsageError:
            raise mistake from None
    order = f"mha-parity replay {target} {shlex.quote(text)}"
    raise UsageError(f"got the target first, but the case comes first: {order}.")


class Debugger(pdb.Pdb):
    """The debugger, which remembers whether it was left by ``quit``."""

    left = False

    def set_quit(self) -> None:
        """Leave: what was debugged has no result."""
        self.left = True
        super().set_quit()


class DebuggedCandidate:
    """A candidate whose first call runs under the debugger."""

    def __init__(self, bound: Convention) -> None:
        """Take over what the bound target is and offers."""
        self.name, self.convention, self.offer = bound.name, bound.convention, bound.offer
        self.facts, self.masks = bound.facts, bound.masks
        self._bound = bound
        self._stopped = False

    def __call__(self, problem: Problem) -> Answer:
        """Stop at the first line of the target's own code; later calls just run."""
        with self._bound.bypass:
            return self._answer(problem)

    def _answer(self, problem: Problem) -> Answer:
        if self._stopped:
            return self._bound(problem)
        self._stopped = True
        call = self._bound.prepare(problem)
        args, kwargs = call.passed
        debugger = Debugger(skip=SKIPPED)
        with target_errors():
            result = debugger.runcall(call.function, *args, **kwargs)
        if debugger.left:
            raise KeyboardInterrupt
        return self._bound.answered(problem, call, result)
