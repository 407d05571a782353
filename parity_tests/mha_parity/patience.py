"""How long a target's silence is waited for: once in full, then no longer than its own times say.

A target that hangs is seen to hang by the first case that gets the whole timeout. After that the
answers to other cases are worth more than the proof that a second one hangs: it is waited for as
long as the slowest answer and a new process took together, which is what it costs to go on without
it. Such a case is not judged, since the timeout was promised to it.
"""

from __future__ import annotations

IN_A_RUN = 3  # timeouts' time that may pass in vain, in all
AFTER_ALL = 2  # the same while failures are shrunk
# Of a target that never answered: a second case is asked, since the first may be what it hangs on.
NEVER = 2


class Patience:
    """What one target's times say about how long to wait for it; all in seconds."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._slowest: float | None = None
        self._start = 0.0
        self._silences = 0
        self._in_vain = 0.0
        self._brief = self._shrinks = False
        self._at_most = IN_A_RUN * timeout

    @property
    def answered(self) -> bool:
        """Whether the target ever came back from a call."""
        return self._slowest is not None

    @property
    def limit(self) -> float:
        """How long to wait for the next answer."""
        if not self._brief or self._slowest is None:
            return self.timeout
        return min(self.timeout, self._start + self._slowest)

    @property
    def over(self) -> bool:
        """Whether too much time has passed in vain for asking on."""
        never = not self.answered and self._silences >= NEVER
        return never or self._in_vain >= self._at_most

    def started(self, seconds: float) -> None:
        """Note what it took to have the target ready in a new process."""
        self._start = seconds

    def heard(self, seconds: float) -> None:
        """Note how long a call took."""
        self._slowest = max(self._slowest or 0.0, seconds)

    def lost(self) -> None:
        """Note that an answer was waited for in vain, which a new process costs on top."""
        self._silences += 1
        self._in_vain += self.limit + self._start
        self._brief = True

    def renew(self, *, brief: bool) -> None:
        """Let failures be shrunk, all of them in a time of its own.

        ``brief``: do not even wait for one case in full; else there is time for that at least.
        """
        if not self._shrinks:
            self._shrinks, self._in_vain = True, 0.0
            self._at_most = AFTER_ALL * self.timeout
        if not brief:
            self._at_most = max(self._at_most, self._in_vain + self.timeout)
        self._brief = brief
