"""A candidate in a process of its own, started once, reused, and replaced when it is lost.

This protects the run and its verdict from crashes, hangs, exits and unbounded memory. It is no
sandbox: a target is code that one chose to execute.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from mha_parity.core.candidate import Answer, CandidateError, TargetError
from mha_parity.worker.losses import (
    CRASHES_SHRINKING,
    ProcessLosses,
    failed_import,
    joined,
    lost_further,
)
from mha_parity.worker.messages import (
    PROTOCOL,
    Describe,
    Described,
    Failed,
    Further,
    Loaded,
    Ready,
    Refused,
    Setup,
)
from mha_parity.worker.process import Process, ProcessOwner, WorkerLost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mha_parity.core.case import Case
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem
    from mha_parity.core.target_facts import TargetFacts
    from mha_parity.targets.calls.mask_plan import MaskPlan
    from mha_parity.worker.output_capture import CapturedOutput

GIB = 2**30
START = 120.0  # seconds for imports, or as many as a call may take: disks may be cold
MUCH_OUTPUT = 2**20  # bytes printed over one case
PRINTS_MUCH = "more than 1 MiB was printed over a case, which takes more time than its answer."
MAX_PENDING = 64  # problems on their way at a time
# Of a slow target fewer: a run that ends early waits for what is on its way.
AHEAD = 1.0  # seconds of its work


def isolated(
    target: str,
    convention: str | None = None,
    *,
    timeout: float = 10.0,
    memory: int = 4 * GIB,
    forbid: Iterable[str] = (),
    device: str = "cpu",
    path: str | None = None,
    masks: Iterable[tuple[str, str]] = (),
    without: Iterable[str] = (),
    state_dict: str | None = None,
    num_heads: int | None = None,
) -> IsolatedCandidate:
    """Start ``target`` in a process of its own and return at once; it loads meanwhile.

    ``timeout`` is in seconds a case, ``memory`` in bytes beyond what the loaded target has. What is
    wrong with the target is raised by ``ready()``, or by the first use of ``offer``.
    """
    setup = Setup(
        target=target, convention=convention, device=device, path=path, forbid=tuple(forbid),
        memory=memory, search=tuple(sys.path), probe=True, masks=tuple(masks),
        without=tuple(without), state_dict=state_dict, num_heads=num_heads,
    )  # fmt: skip
    return IsolatedCandidate(setup, timeout)


class IsolatedCandidate(ProcessOwner):
    """A ``Candidate`` whose calls happen in another process. Close it, or use it in a ``with``."""

    def __init__(self, setup: Setup, timeout: float) -> None:
        self._setup = setup
        self._timeout = timeout
        self._start_limit = max(START, timeout)
        self._numbers = itertools.count()
        self._pending: deque[tuple[int, Problem]] = deque()
        self._results: dict[int, Answer | CandidateError] = {}
        self._ready: Ready | None = None
        self._lost_trial = ""
        self._losses = ProcessLosses()
        self._further: Further | None = None  # what the process was doing last, if that is known
        self._lost_further: list[tuple[str, str]] = []  # of the case that is worked on
        self._failed: tuple[Case, CandidateError] | None = None  # the last that was sent, if lost
        self._waiting_since = time.monotonic()
        self._pace = AHEAD / 8  # seconds that an answer took lately; eight are sent at first
        self._process = self._start()
        self._tell: Callable[[str, str], None] | None = None

    @property
    def name(self) -> str:
        """The target's text."""
        return self._setup.target

    @property
    def convention(self) -> str:
        """The convention that the target is called by."""
        return self.ready().convention

    @property
    def offer(self) -> Offer:
        """Features that the candidate offers."""
        return self.ready().offer

    @property
    def facts(self) -> TargetFacts:
        """Facts known about the target besides its offer."""
        facts = self.ready().facts
        lost = self._lost_trial
        return dataclasses.replace(facts, lost_trial=lost) if lost else facts

    @property
    def masks(self) -> MaskPlan | None:
        """Masks that the parameters of the target take."""
        return self.ready().masks

    def ready(self) -> Ready:
        """Wait until the target is bound.

        Raises
        ------
        TargetError
            It cannot be loaded, is called in no known way, or ended the process on being imported.

        """
        while self._ready is None:
            self._wait_for_start()
        return self._ready

    def wait_until_loaded(self, most: float) -> None:
        """Wait until the target's libraries are loaded, or ``most`` seconds.

        Raises
        ------
        TargetError
            It cannot be loaded, or ended the process on being imported.

        """
        until = time.monotonic() + most
        while self._ready is None and not self._process.loaded:
            if not self._process.has_message(until - time.monotonic()):
                return
            self._wait_for_start()

    def _wait_for_start(self) -> None:
        """Take one message before the target is bound; a process that is lost is replaced."""
        try:
            self._receive_ready()
        except WorkerLost as lost:
            if not self._setup.probe or not self._process.loaded:
                self.close()
                raise TargetError(failed_import(self._setup.target, lost)) from None
            self._lost_trial = str(lost)
            if lost.severity == "timeout":
                self._losses.add(lost.severity)
            self._restart()

    def describe_calls(self, tell: Callable[[str, str], None]) -> None:
        """Have ``tell`` called as that of ``MonitoredCandidate``, until the process is replaced."""
        self.ready()
        self._tell = tell
        self._process.send(Describe())

    def __call__(self, problem: Problem) -> Answer:
        """Return the candidate's answer to one problem; raise what came instead."""
        result = next(self.many((problem,)))
        if isinstance(result, CandidateError):
            raise result
        return result

    def many(self, problems: Iterable[Problem]) -> Iterator[Answer | CandidateError]:
        """Send problems off at once and yield the answers, or what came instead, in their order.

        The candidate works while the caller does; up to ``MAX_PENDING`` problems are on their way,
        and no more than it answers in about a second.
        """
        self.ready()
        self._failed = None  # a case that is asked once more is tried once more
        source = iter(problems)
        sent = deque(map(self._send, itertools.islice(source, self._most_pending())))
        return self._collected(sent, source)

    def _most_pending(self) -> int:
        """Return how many problems may be on their way; two keep the process at work."""
        return min(MAX_PENDING, max(2, int(AHEAD / max(self._pace, AHEAD / MAX_PENDING))))

    def fresh(self) -> IsolatedCandidate:
        """Return the target in a further process, in which no call has been made yet."""
        return IsolatedCandidate(self._unprobed(), self._timeout)

    def _unprobed(self) -> Setup:
        """Return the setup of a process that need not find out anything by calls."""
        unprobed = dataclasses.replace(self._setup, probe=False)
        if (found := self._ready) is None:
            return unprobed
        known = {
            "convention": found.convention, "library": found.library,
            "plan": found.masks, "settled": found.settled,
            "offer": found.offer, "reasons": found.facts.reasons,
        }  # fmt: skip
        return dataclasses.replace(unprobed, **known)  # type: ignore[arg-type]  # values vary in type

    def allow_retries(self) -> None:
        """Ask again, though the process was lost too often: a failure is to be shrunk."""
        if self._losses.too_many:
            self._restart()
        self._losses = ProcessLosses(crashes_left=CRASHES_SHRINKING)

    def _collected(
        self, sent: deque[int], source: Iterator[Problem]
    ) -> Iterator[Answer | CandidateError]:
        while sent:
            number = sent.popleft()
            result = self._result(number)
            room = max(0, self._most_pending() - len(sent))
            sent.extend(map(self._send, itertools.islice(source, room)))
            yield result

    def _start(self) -> Process:
        process = Process(PROTOCOL)
        process.send(self._setup)
        self._waiting_since = time.monotonic()
        return process

    def _restart(self) -> None:
        """Replace the process; after a first loss nothing is probed any more."""
        self._process.end()
        self._further = None
        self._setup = self._unprobed()
        self._process = self._start()
        for number, problem in self._pending:
            self._process.send(problem, number)

    def _receive_ready(self) -> None:
        """Read the worker's first messages; raise ``WorkerLost`` if it has exited."""
        limit = self._timeout if self._process.loaded else self._start_limit
        for _, message in self._process.wait(self._waiting_since, limit):
            self._on_message(message)

    def _on_message(self, message: Any) -> None:
        """Note what the worker says of the target itself."""
        self._waiting_since = time.monotonic()
        if isinstance(message, Refused):
            self.close()
            raise TargetError(message.sentence)
        if isinstance(message, Loaded):
            self._process.loaded = True
        if isinstance(message, Further):
            self._further = message
        if isinstance(message, Described) and self._tell is not None:
            self._tell(message.check, message.text)
        if isinstance(message, Ready):
            self._process.mark_ready()
            self._ready = self._ready or message

    def _send(self, problem: Problem) -> int:
        number = next(self._numbers)
        if not self._pending:
            self._waiting_since = time.monotonic()
        if self._losses.too_many:
            self._results[number] = self._losses.not_asked()
            return number
        if self._failed and self._failed[0] is problem.case:
            self._results[number] = self._failed[1]
            return number
        self._failed = None
        self._pending.append((number, problem))
        self._process.send(problem, number)
        return number

    def _result(self, number: int) -> Answer | CandidateError:
        """Wait for one result; a lost process costs the case that it was working on."""
        while number not in self._results:
            try:
                self._receive_results()
            except WorkerLost as lost:
                self._on_worker_exit(lost)
        return self._results.pop(number)

    def _receive_results(self) -> None:
        limit = self._timeout if self._process.ready else self._start_limit
        if self._process.unsent:
            self._waiting_since = time.monotonic()
        came = self._process.wait(self._waiting_since, limit, self._setup.memory)
        for number, message in came:
            if number is None:
                self._on_message(message)
                continue
            if not self._pending or self._pending[0][0] != number:
                raise self._process.lost("crash", "answered what was not asked")
            came_at = time.monotonic()
            self._pace += (came_at - self._waiting_since - self._pace) / 4
            self._waiting_since = came_at
            self._pending.popleft()
            result = _with_output(message, self._process.output.take(number))
            if self._lost_further and isinstance(result, Answer):
                result = dataclasses.replace(result, lost=(*self._lost_further, *result.lost))
            self._results[number] = result
            self._further, self._lost_further = None, []
            self._losses.crashes_in_a_row = 0

    def _on_worker_exit(self, lost: WorkerLost) -> None:
        """Fail the case that was being worked on, and go on with a new process.

        Where a further call ended the process, the case is asked again, without that check.
        """
        if self._further is not None and self._further.check not in self._setup.left_out:
            self._lost_further.append((lost.severity, lost_further(self._further, lost)))
            left_out = (*self._setup.left_out, self._further.check)
            self._setup = dataclasses.replace(self._setup, left_out=left_out)
            self._restart()
            return
        self._lost_further = []
        number, problem = self._pending.popleft()
        waited = self._timeout if lost.severity == "timeout" else 0.0
        error = CandidateError(lost.severity, str(lost), joined("", lost.output), waited)
        self._results[number] = error
        # A relation compares with the answer to its case: without one it is not asked.
        while self._pending and self._pending[0][1].case is problem.case:
            self._results[self._pending.popleft()[0]] = error
        self._failed = None if self._pending else (problem.case, error)
        self._losses.add(lost.severity)
        if not self._losses.too_many:
            self._restart()
            return
        self._process.end()
        while self._pending:
            self._results[self._pending.popleft()[0]] = self._losses.not_asked()


def _with_output(message: Answer | Failed, printed: CapturedOutput) -> Answer | CandidateError:
    """Return what the worker sent, with what the candidate printed where that matters."""
    if isinstance(message, Failed):
        detail = joined(message.detail, printed.last)
        return CandidateError(message.severity.value, message.sentence, detail)
    if printed.size < MUCH_OUTPUT:
        return message
    return dataclasses.replace(message, remarks=(*message.remarks, PRINTS_MUCH))
