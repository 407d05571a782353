"""Losses of a target's process: how many there may be, and sentences about them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from mha_parity.core.candidate import NOT_ASKED, CandidateError
from mha_parity.targets.programs.command import EXEC

if TYPE_CHECKING:
    from mha_parity.worker.messages import Further
    from mha_parity.worker.process import WorkerLost

# Each loss costs the time-out or at least a start: after three no further case is asked.
TIMEOUTS = 3
CRASHES = 100
CRASHES_IN_A_ROW = 5
CRASHES_SHRINKING = 30


@dataclasses.dataclass
class ProcessLosses:
    """How often the target's process was lost, and how often it may still be."""

    timeouts_left: int = TIMEOUTS
    crashes_left: int = CRASHES
    crashes_in_a_row: int = 0
    count: int = 0

    def add(self, severity: str) -> None:
        """Count a loss by a time-out or by a crash."""
        self.count += 1
        if severity == "timeout":
            self.timeouts_left -= 1
        else:
            self.crashes_left -= 1
            self.crashes_in_a_row += 1

    @property
    def too_many(self) -> bool:
        """Whether no further case is asked."""
        in_a_row = self.crashes_in_a_row >= CRASHES_IN_A_ROW
        return in_a_row or self.timeouts_left <= 0 or self.crashes_left <= 0

    def not_asked(self) -> CandidateError:
        """Return what is said of the cases that are not asked."""
        sentence = f"{NOT_ASKED}: the target's process was lost {self.count} times"
        return CandidateError("inconclusive", sentence)


def joined(detail: str, output: str) -> str:
    """Return a detail with what the target printed last."""
    printed = f"It printed last:\n{output}" if output else ""
    return "\n".join(part.rstrip() for part in (detail, printed) if part)


def lost_further(further: Further, lost: WorkerLost) -> str:
    """Say in which further call of a check the process was lost."""
    on = f" on {further.given}" if further.given else ""
    sentence = f"{lost} in a further call{on}, made to check {further.check}"
    after = "The case itself was answered, and no such call was made any more."
    return joined(f"{sentence}\n{after}", lost.output)


def failed_import(target: str, lost: WorkerLost) -> str:
    """Say what ended the process while the target was imported, and the remedy."""
    if target.startswith(EXEC):
        command = target.removeprefix(EXEC)
        return f"got the command {command!r}, but it {lost}; it should answer the request `offer`."
    last = lost.output.splitlines()[-1:] if lost.output else []
    said = f", after printing {last[0]!r}" if last else ""
    should = "it should import quietly"
    if lost.severity == "timeout":
        should = "move what takes long out of the module, or raise --timeout"
    return f"got the target {target!r}, but importing it {lost}{said}; {should}."
