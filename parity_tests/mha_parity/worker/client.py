"""A candidate in a process of its own, started once, reused, and replaced when it is lost.

This protects the run and its verdict from crashes, hangs, exits and memory without end. It is no
sandbox: a target is code that one chose to execute.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from mha_parity.candidate import NOT_ASKED, NOT_AWAITED, Answer, CandidateError
from mha_parity.patience import Patience
from mha_parity.process import Lost, Process
from mha_parity.targets import TargetError
from mha_parity.worker import Failed, Loaded, Ready, Refused, Setup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self

    from mha_parity.features import Offer
    from mha_parity.hearing import Said
    from mha_parity.problem import Problem

GIB = 2**30
START = 120.0  # seconds for a target's imports: frameworks take many on a cold disk
FLOOD = 2**20  # bytes that may be printed over one case
WINDOW = 64  # problems on their way at a time
# A candidate that crashes on every case would cost its start-up each time. (Hangs: see Patience.)
CRASHES_IN_A_ROW = 5
CRASHES = 100
CRASHES_AFTER_ALL = 30  # while a failure is shrunk


def isolated(
    target: str,
    convention: str | None = None,
    *,
    timeout: float = 10.0,
    memory: int = 4 * GIB,
    forbid: Iterable[str] = (),
    device: str = "cpu",
    path: str | None = None,
) -> Isolated:
    """Start ``target`` in a process of its own and return at once; it loads meanwhile.

    ``timeout`` is in seconds a case, ``memory`` in bytes beyond what the loaded target has. What is
    wrong with the target is raised by ``ready()``, or by the first use of ``offer``.
    """
    setup = Setup(
        target=target, convention=convention, device=device, path=path, forbid=tuple(forbid),
        memory=memory, search=tuple(sys.path), probe=True,
    )  # fmt: skip
    return Isolated(setup, timeout)


class Isolated:
    """A ``Candidate`` whose calls happen elsewhere. Close it, or use it in a ``with``."""

    def __init__(self, setup: Setup, timeout: float) -> None:
        self._setup = setup
        self._patience = Patience(timeout)
        self._numbers = itertools.count()
        self._waiting: deque[tuple[int, Problem]] = deque()
        self._results: dict[int, Answer | CandidateError] = {}
        self._known: Ready | None = None
        self._losses = 0
        self._crashes = self._crashes_in_a_row = 0
        self._crashes_at_most, self._in_a_row_at_most = CRASHES, CRASHES_IN_A_ROW
        self._since = self._born = time.monotonic()
        self._process = self._started()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._process.end()

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
        """What the candidate offers."""
        return self.ready().offer

    @property
    def reasons(self) -> dict[tuple[str, str], str]:
        """Why a feature that was tried is not offered."""
        return self.ready().reasons

    def ready(self) -> Ready:
        """Wait until the target is bound.

        Raises
        ------
        TargetError
            It cannot be loaded, is called in no known way, or ended the process on being imported.

        """
        while self._known is None:
            try:
                self._handshake()
            except Lost as lost:
                if not self._setup.probe or not self._process.loaded:
                    self.close()
                    raise TargetError(_died(self._setup.target, lost)) from None
                self._restart()
        return self._known

    def __call__(self, problem: Problem) -> Answer:
        """Return the candidate's answer to one problem; raise what came instead."""
        result = next(self.many((problem,)))
        if isinstance(result, CandidateError):
            raise result
        return result

    def many(self, problems: Iterable[Problem]) -> Iterator[Answer | CandidateError]:
        """Send problems off at once and yield the answers, or what came instead, in their order.

        The candidate works while the caller does; up to ``WINDOW`` problems are on their way.
        """
        self.ready()
        source = iter(problems)
        sent = deque(map(self._send, itertools.islice(source, WINDOW)))
        return self._collected(sent, source)

    @property
    def answered(self) -> bool:
        """Whether the target ever came back from a call."""
        return self._patience.answered

    def revive(self, *, brief: bool = True) -> None:
        """Ask again, though the process was lost too often: a failure is to be shrunk.

        ``brief``: wait for no answer longer than the target's own times say.
        """
        if self._gone():
            self._restart()
        self._patience.renew(brief=brief)
        self._losses = self._crashes = self._crashes_in_a_row = 0
        self._crashes_at_most = self._in_a_row_at_most = CRASHES_AFTER_ALL

    def _collected(
        self, sent: deque[int], source: Iterator[Problem]
    ) -> Iterator[Answer | CandidateError]:
        while sent:
            number = sent.popleft()
            result = self._result(number)
            sent.extend(map(self._send, itertools.islice(source, 1)))
            yield result

    def _started(self) -> Process:
        process = Process()
        process.send(self._setup)
        self._since = self._born = time.monotonic()
        return process

    def _restart(self) -> None:
        """Replace the process; after a first loss nothing is probed any more."""
        self._process.end()
        convention = self._known.convention if self._known else self._setup.convention
        self._setup = Setup(
            target=self._setup.target, convention=convention, device=self._setup.device,
            path=self._setup.path, forbid=self._setup.forbid, memory=self._setup.memory,
            search=self._setup.search, probe=False,
        )  # fmt: skip
        self._process = self._started()
        for item in self._waiting:
            self._process.send(item)

    def _handshake(self) -> None:
        """Take what the worker says before the first problem; raise ``Lost`` if it is gone."""
        limit = self._patience.timeout if self._process.loaded else START
        for _, message, _ in self._process.wait(self._since, limit):
            self._hear(message)

    def _hear(self, message: Any) -> None:
        now, before = time.monotonic(), self._since
        self._since = now
        if isinstance(message, Refused):
            self.close()
            raise TargetError(message.sentence)
        if isinstance(message, Loaded):
            self._process.loaded = True
        if isinstance(message, Ready):
            self._process.is_ready()
            self._patience.started(now - self._born)
            if self._setup.probe:  # that it came back from calls says how long calls take
                self._patience.heard(now - before)
            self._known = self._known or message

    def _send(self, problem: Problem) -> int:
        number = next(self._numbers)
        if not self._waiting:
            self._since = time.monotonic()
        if self._gone():
            self._results[number] = self._not_asked()
            return number
        self._waiting.append((number, problem))
        self._process.send((number, problem))
        return number

    def _result(self, number: int) -> Answer | CandidateError:
        """Wait for one result; a lost process costs the case that it was working on."""
        while number not in self._results:
            try:
                self._listen()
            except Lost as lost:
                self._mourn(lost)
        return self._results.pop(number)

    def _listen(self) -> None:
        limit = self._patience.limit if self._process.ready else START
        if self._process.unsent:
            self._since = time.monotonic()
        for number, message, seconds in self._process.wait(self._since, limit, self._setup.memory):
            if number is None:
                self._hear(message)
                continue
            self._since = time.monotonic()
            self._waiting.popleft()
            self._results[number] = _told(message, self._process.output.of(number))
            self._patience.heard(seconds)
            self._crashes_in_a_row = 0

    def _mourn(self, lost: Lost) -> None:
        """Blame the case that was being worked on, and go on with a new process."""
        number, problem = self._waiting.popleft()
        self._results[number] = error = self._blamed(lost)
        # Of a case without an answer nobody reads what comes to the same problem put otherwise.
        while self._waiting and self._waiting[0][1].case is problem.case:
            self._results[self._waiting.popleft()[0]] = error
        self._losses += 1
        if lost.severity == "crash":
            self._crashes += 1
            self._crashes_in_a_row += 1
        else:
            self._patience.lost()
        if not self._gone():
            self._restart()
            return
        self._process.end()
        while self._waiting:
            self._results[self._waiting.popleft()[0]] = self._not_asked()

    def _blamed(self, lost: Lost) -> CandidateError:
        """Return what is said of the case: it fails, unless it had less than its timeout."""
        printed = _joined("", lost.output)
        patience = self._patience
        waited = patience.limit if lost.severity == "timeout" else 0.0
        brief = self._process.ready and patience.limit < patience.timeout
        if lost.severity != "timeout" or not brief:
            return CandidateError(lost.severity, str(lost), printed, waited)
        sentence = (
            f"{NOT_AWAITED}: it {lost}, as long as its slowest answer and a new process took; "
            f"another case had {patience.timeout:g} seconds"
        )
        return CandidateError("inconclusive", sentence, printed, waited)

    def _gone(self) -> bool:
        crashes = self._crashes >= self._crashes_at_most
        return crashes or self._crashes_in_a_row >= self._in_a_row_at_most or self._patience.over

    def _not_asked(self) -> CandidateError:
        how = "times" if self.answered else "times, and it never answered"
        sentence = f"{NOT_ASKED}: the target's process was lost {self._losses} {how}"
        return CandidateError("inconclusive", sentence)


def _told(message: Answer | Failed, said: Said) -> Answer | CandidateError:
    """Return what the worker sent, with what the candidate printed where that matters."""
    if isinstance(message, Failed):
        return CandidateError(
            message.severity, message.sentence, _joined(message.detail, said.last)
        )
    if said.size < FLOOD:
        return message
    note = (
        f"no flood of output: {said.size / 2**20:.1f} MiB were printed over the case, but should "
        f"be less than {FLOOD / 2**20:.0f}; print less."
    )
    return dataclasses.replace(message, notes=(*message.notes, _joined(note, said.last)))


def _joined(detail: str, output: str) -> str:
    printed = f"It printed last:\n{output}" if output else ""
    return "\n".join(part.rstrip() for part in (detail, printed) if part)


def _died(target: str, lost: Lost) -> str:
    last = lost.output.splitlines()[-1:] if lost.output else []
    said = f", after printing {last[0]!r}" if last else ""
    return f"got the target {target!r}, but importing it {lost}{said}; it should import quietly."
