"""The candidate's own process: ``python -m mha_parity.worker.server REQUESTS ANSWERS``.

Imports NumPy and what the target needs, nothing of the oracle. Standard output and error belong to
the candidate; problems and answers go over two pipes of their own.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import CandidateError, TargetError
from mha_parity.core.check_result import Severity
from mha_parity.core.threads import in_one_thread
from mha_parity.worker.framing import blocks_per_read, send
from mha_parity.worker.messages import (
    PROTOCOL,
    Calling,
    Describe,
    Described,
    Failed,
    Further,
    Loaded,
    Ready,
    Refused,
    Setup,
)
from mha_parity.worker.output_capture import START, end_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mha_parity.checks.call_effects import MonitoredCandidate
    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem
    from mha_parity.targets.calls.target_call import Call
    from mha_parity.targets.programs.command_files import CommandOfFiles

HUGE_MAPPINGS = ("torch", "jax", "tensorflow")  # these map far more than they touch
ROOM = 16 << 30


def serve(requests: int, answers: int) -> None:
    """Bind the target and answer problems until the pipe is closed."""
    incoming = Incoming(requests)
    messages = iter(incoming)
    _, setup = next(messages)
    assert isinstance(setup, Setup)  # noqa: S101  (the run's first message)
    sys.path[:] = setup.search
    from mha_parity.targets import load
    from mha_parity.targets.calls import target_call
    from mha_parity.targets.programs.command import Command
    from mha_parity.targets.programs.command_files import CommandOfFiles

    target_call.before_call_hook = sign = CallNotice(answers)
    try:
        subject = load.load(setup.target)
        _say(answers, Loaded())
        with in_one_thread():  # as in the caller's process
            candidate = _bound(subject, setup)
    except TargetError as error:
        _say(answers, Refused(sentence=str(error)))
        return
    except Exception as error:  # noqa: BLE001  (a mistake of the harness is no finding)
        from mha_parity.targets.calls.error_origin import harness_error

        _say(answers, Refused(sentence=f"{setup.target} {harness_error(error)}"))
        return
    candidate.left_out, candidate.on_check = setup.left_out, sign.check
    bound = candidate.bound
    ready = Ready(
        name=setup.target,
        convention=bound.convention,
        offer=bound.offer,
        facts=candidate.facts,
        masks=candidate.masks,
        settled=bound.settled(),
        library=bound.library.name,
    )
    if not isinstance(subject, Command):  # its memory is watched from outside
        _limit(setup.memory)
    printed = os.dup(1)  # the candidate may close or redirect its own
    os.write(printed, end_mark(START))
    _say(answers, ready)
    with in_one_thread():
        if isinstance(subject, CommandOfFiles):
            incoming.ahead = partial(_ask_ahead, candidate, subject, sign.waits)
        _answer_all(candidate, messages, answers, printed)


def _ask_ahead(
    candidate: MonitoredCandidate,
    subject: CommandOfFiles,
    waits: Callable[[], None],
    problems: list[Problem],
) -> None:
    """Have a program that is started once a chunk answer the problems that have come."""
    requests = [candidate.bound.request(problem) for problem in problems]  # type: ignore[attr-defined]  # of ExecProtocol
    subject.ask_ahead(requests, waits)


def _answer_all(
    candidate: MonitoredCandidate,
    incoming: Iterator[tuple[int | None, Any]],
    answers: int,
    printed: int,
) -> None:
    """Answer problems, and describe calls where asked, until the pipe is closed."""
    for number, problem in incoming:
        if isinstance(problem, Describe):
            candidate.describe_calls(
                lambda check, text: _say(answers, Described(text=text, check=check))
            )
            continue
        assert number is not None  # noqa: S101  (problems are numbered)
        answer = _answer(candidate, problem)
        os.write(printed, end_mark(number))
        send(answers, PROTOCOL.encode(number, answer))


class Incoming:
    """The messages from the run; ``ahead`` is called with the problems that came together."""

    def __init__(self, requests: int) -> None:
        """Read from the pipe of the requests."""
        self._requests = requests
        self.ahead: Callable[[list[Problem]], None] = lambda _: None

    def __iter__(self) -> Iterator[tuple[int | None, Any]]:
        """Yield number and message."""
        for batch in blocks_per_read(self._requests):
            messages = [PROTOCOL.decode(block) for block in batch]
            problems = [message for number, message in messages if number is not None]
            if len(problems) > 1:
                self.ahead(problems)
            yield from messages


def _say(answers: int, message: Any) -> None:
    """Send what belongs to no problem."""
    send(answers, PROTOCOL.encode(None, message))


class CallNotice:
    """Say that a call begins, where the last time is more than ``EVERY`` seconds ago.

    A case is several calls, and binding is many: each may take what the time-out allows for one.
    For a further call of a check, also send the shapes if they changed.
    """

    EVERY = 0.25

    def __init__(self, answers: int) -> None:
        """Write to the pipe of the answers."""
        self._answers = answers
        self._last = time.monotonic()
        self._further: Further | None = None

    def __call__(self, call: Call) -> None:
        """Send the message if it is time, or if the call is another one than those before."""
        if self._further is None:
            self._send(Calling())
        else:
            self._say_further(self._further.check, shapes(call))

    def waits(self) -> None:
        """Send the message if it is time."""
        self._send(Calling())

    def check(self, name: str) -> None:
        """Say that further calls are prepared for a check; "" after the last of them."""
        self._further = None
        if name:
            self._say_further(name, "")

    def _say_further(self, check: str, given: str) -> None:
        further = Further(check=check, given=given)
        self._send(further, at_once=further != self._further)
        self._further = further

    def _send(self, message: Calling | Further, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if at_once or now - self._last > self.EVERY:
            self._last = now
            _say(self._answers, message)


def shapes(call: Call) -> str:
    """Return the shapes of query, key and value that a call is given."""
    given = {name: array.shape for name, array in call.given if name in {"query", "key", "value"}}
    return ", ".join(f"{name} {shape}" for name, shape in given.items())


def _bound(subject: Any, setup: Setup) -> MonitoredCandidate:
    from mha_parity.checks.call_effects import MonitoredCandidate
    from mha_parity.targets.bind import bind

    bound = bind(
        subject, setup.convention, device=setup.device, path=setup.path, probe=setup.probe,
        masks=setup.masks, without=setup.without,
        state_dict=setup.state_dict, num_heads=setup.num_heads, library=setup.library,
    )  # fmt: skip
    if not setup.probe:
        bound.masks = setup.plan
        bound.hides_future = setup.plan is not None and setup.plan.causal_inside
        bound.settle(setup.settled)
        if setup.offer is not None:  # further calls are made by it too
            bound.offer, bound.reasons = setup.offer, setup.reasons
    return MonitoredCandidate(bound, forbid=setup.forbid)


def _answer(candidate: MonitoredCandidate, problem: Problem) -> Answer | Failed:
    try:
        return candidate(problem)
    except CandidateError as error:
        return Failed(severity=Severity(error.severity), sentence=str(error), detail=error.detail)


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
    """Exit when the parent closes standard input."""
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
    main()
