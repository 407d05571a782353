"""The candidate's own process: ``python -m mha_parity.worker REQUESTS ANSWERS``.

Imports NumPy and what the target needs, nothing of the oracle. Standard output and error belong to
the candidate; problems and answers go over two pipes of their own.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mha_parity.worker.framing import messages, send
from mha_parity.worker.output_capture import START, mark

if TYPE_CHECKING:
    from mha_parity.checks.call_effects import MonitoredCandidate
    from mha_parity.core.candidate import Answer
    from mha_parity.core.features import Offer
    from mha_parity.core.own_weights import OwnWeights
    from mha_parity.core.parameters import Parameter
    from mha_parity.core.problem import Problem
    from mha_parity.targets.masks.plan import MaskPlan

HUGE_MAPPINGS = ("torch", "jax", "tensorflow")  # these map far more than they touch
ROOM = 16 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The first message to the worker. ``probe`` is False after a probe ended the process.

    ``plan`` is what an earlier process found of the target's masks.
    """

    target: str
    convention: str | None
    device: str
    path: str | None
    forbid: tuple[str, ...]
    memory: int
    search: tuple[str, ...]
    probe: bool
    masks: tuple[tuple[str, str], ...] = ()
    without: tuple[str, ...] = ()
    plan: MaskPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The target was imported; small calls to it come next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """There is no such target, or it is called in no known way."""

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The target is bound and waits for problems."""

    name: str
    convention: str
    offer: Offer
    reasons: dict[tuple[str, str], str]
    parameters: tuple[Parameter, ...]
    masks: MaskPlan | None
    answer_dtypes: dict[str, str]
    own_weights: OwnWeights | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calling:
    """A call of the target begins: the time-out counts from here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The error that came instead of the answer to one problem."""

    severity: str
    sentence: str
    detail: str


def serve(requests: int, answers: int) -> None:
    """Bind the target and answer problems until the pipe is closed."""
    incoming = messages(requests)
    setup: Setup = next(incoming)
    sys.path[:] = setup.search
    from mha_parity.core.candidate import TargetError
    from mha_parity.targets import load
    from mha_parity.targets.command import Command
    from mha_parity.targets.conventions import calls

    calls.on_call = SignOfLife(answers)
    try:
        subject = load.load(setup.target)
        send(answers, (None, Loaded()))
        candidate = _bound(subject, setup)
    except TargetError as error:
        send(answers, (None, Refused(sentence=str(error))))
        return
    except Exception as error:  # noqa: BLE001  (a mistake of the harness is no finding)
        from mha_parity.targets.attribution import harness_error

        send(answers, (None, Refused(sentence=f"{setup.target} {harness_error(error)}")))
        return
    bound = candidate.bound
    ready = Ready(
        name=setup.target,
        convention=bound.convention,
        offer=bound.offer,
        reasons=bound.reasons,
        parameters=bound.parameters,
        masks=bound.masks,
        answer_dtypes=bound.answer_dtypes,
        own_weights=candidate.own_weights,
    )
    if not isinstance(subject, Command):  # its memory is watched from outside
        _limit(setup.memory)
    printed = os.dup(1)  # the candidate may close or redirect its own
    os.write(printed, mark(START))
    send(answers, (None, ready))
    for number, problem in incoming:
        answer = _answer(candidate, problem)
        os.write(printed, mark(number))
        send(answers, (number, answer))


class SignOfLife:
    """Say that a call begins, where the last time is more than ``EVERY`` seconds ago.

    A case is several calls, and binding is many: each may take what the time-out allows for one.
    """

    EVERY = 0.25

    def __init__(self, answers: int) -> None:
        """Write to the pipe of the answers."""
        self._answers = answers
        self._last = time.monotonic()

    def __call__(self) -> None:
        """Send the message if it is time."""
        now = time.monotonic()
        if now - self._last > self.EVERY:
            self._last = now
            send(self._answers, (None, Calling()))


def _bound(subject: Any, setup: Setup) -> MonitoredCandidate:
    from mha_parity.checks.call_effects import MonitoredCandidate
    from mha_parity.targets.bind import bind

    bound = bind(
        subject, setup.convention, device=setup.device, path=setup.path, probe=setup.probe,
        masks=setup.masks, without=setup.without,
    )  # fmt: skip
    bound.masks = bound.masks if setup.probe else setup.plan
    return MonitoredCandidate(bound, forbid=setup.forbid)


def _answer(candidate: MonitoredCandidate, problem: Problem) -> Answer | Failed:
    from mha_parity.core.candidate import CandidateError

    try:
        return candidate(problem)
    except CandidateError as error:
        return Failed(severity=error.severity, sentence=str(error), detail=error.detail)


def _limit(memory: int) -> None:
    """Let the process map so much memory beyond what it has now."""
    import resource

    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123  (pathlib would be imported for it)
            mapped = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return  # no such file outside Linux; the run watches from outside there too
    room = ROOM if any(name in sys.modules for name in HUGE_MAPPINGS) else 0
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = mapped + memory + room
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def end_with_parent() -> None:
    """Leave when the run does: its end of our standard input is closed then."""
    lifeline = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)

    def wait() -> None:
        while os.read(lifeline, 1):
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """Run as a process."""
    faulthandler.enable()
    end_with_parent()
    serve(int(sys.argv[1]), int(sys.argv[2]))


if __name__ == "__main__":
    # Under the module's own name: its messages are then of the types that the run knows.
    importlib.import_module("mha_parity.worker.server").main()
