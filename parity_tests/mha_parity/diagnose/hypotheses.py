"""Find the wrong attentions that explain the answers seen: each alone, then two at a time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, takewhile
from typing import TYPE_CHECKING

from mha_parity.catalogue import catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mha_parity.catalogue import Attention, Bug
    from mha_parity.diagnose.evidence import Observation

CAUSALITY, PRECISION = 6, 9  # families of the catalogue


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """One spelling of one bug, or of two at once."""

    bugs: tuple[Bug, ...]
    kind: type[Attention]
    spelling: int = 0

    @property
    def id(self) -> str:
        """The bug's id; of two, both joined."""
        return " + ".join(bug.id for bug in self.bugs)

    @property
    def of_precision(self) -> bool:
        """Whether it is a matter of digits alone."""
        return all(bug.family == PRECISION for bug in self.bugs)

    @property
    def of_causality(self) -> bool:
        """Whether the causal rule alone is wrong."""
        return all(bug.family == CAUSALITY for bug in self.bugs)

    @property
    def constants(self) -> str:
        """The number or dtype that distinguishes this spelling: ``eps = 1e-06``."""
        shown = []
        for base in self.kind.__mro__[:1] if self.spelling else ():
            shown += [
                f"{name} = {value}"
                for name, value in vars(base).items()
                if not name.startswith("_") and not callable(value) and not isinstance(value, bool)
            ]
        return ", ".join(shown)


@dataclass(frozen=True, eq=False)
class Fit:
    """How a hypothesis stands against the observations."""

    hypothesis: Hypothesis
    explained: int  # failing cases whose answer it predicts
    failing: int
    telling: int  # cases where it predicted a departure, and was right
    refuted: int  # cases that it should have failed, and that are right
    missed: int = 0  # failing cases where it predicts a departure, but another one

    @property
    def share(self) -> float:
        """Which part of the failing cases it explains."""
        return self.explained / max(self.failing, 1)

    @property
    def holds(self) -> bool:
        """Whether it explains all that failed and nothing speaks against it."""
        return self.explained == self.failing and self.sole

    @property
    def sole(self) -> bool:
        """Whether it explains what it shows in, wherever that is; the rest has another cause."""
        return self.telling > 0 and not self.refuted and not self.missed


def single_bugs() -> list[Hypothesis]:
    """Return every spelling of every bug that outputs can show."""
    return [
        Hypothesis((bug,), kind, spelling)
        for bug in catalogue().values()
        if bug.equivalent is None
        for spelling, kind in enumerate(bug.kinds)
    ]


def fit_hypothesis(hypothesis: Hypothesis, seen: Iterable[Observation]) -> Fit:
    """Hold a hypothesis against every observation."""
    kind = hypothesis.kind
    explained = failing = telling = refuted = missed = 0
    for each in seen:
        if each.answer is None:
            continue
        matches = each.matches(kind)
        tells = each.distinguishes(kind)
        failing += each.failing
        explained += each.failing and matches
        telling += matches and tells
        breaks = each.of(kind).answer is None
        missed += each.failing and tells and not matches and not each.overflowed(kind)
        refuted += not each.failing and tells and not matches and not breaks
    return Fit(hypothesis, explained, failing, telling, refuted, missed)


def plausible_hypotheses(
    hypotheses: Iterable[Hypothesis], seen: Sequence[Observation], running: Callable[[], bool]
) -> list[Hypothesis]:
    """Return the hypotheses that explain at least one of a few failing observations.

    Those that there is no time for are left out.
    """
    failing = [each for each in seen if each.failing]
    tried = takewhile(lambda _: running(), hypotheses)
    return [h for h in tried if any(each.matches(h.kind) for each in failing)]


def bug_pairs(
    hypotheses: Sequence[Hypothesis],
    first: Observation,
    fixed: Sequence[Hypothesis],
    running: Callable[[], bool],
) -> Iterator[Hypothesis]:
    """Yield two bugs at once that explain the observation ``first``.

    Where ``fixed`` are given, one of the two is among them. Only bugs that show on ``first`` are
    tried: what does not show there cannot matter to it.
    """
    tried = takewhile(lambda _: running(), hypotheses)
    showing = [
        h for h in tried if first.of(h.kind).answer is not None and first.distinguishes(h.kind)
    ]
    couples = [(a, b) for a in fixed for b in showing if a.bugs != b.bugs]
    couples += list(combinations([h for h in showing if not h.spelling], 2)) if not fixed else []
    for a, b in couples:
        for left, right in ((a, b), (b, a)):
            if not running():
                return
            both = join_bugs(left, right)
            if both is not None and first.matches(both.kind):
                yield both
                break
            if not _same_step(a.kind, b.kind):
                break


def join_bugs(first: Hypothesis, second: Hypothesis) -> Hypothesis | None:
    """Return both bugs in one attention: a class with both as bases."""
    a, b = first.kind, second.kind
    if issubclass(a, b) or issubclass(b, a):
        return None
    kind = type(f"{a.__name__}And{b.__name__}", (a, b), {})
    return Hypothesis(first.bugs + second.bugs, kind)


def _same_step(a: type[Attention], b: type[Attention]) -> bool:
    """Return whether both replace one step: then the order of the bases matters."""
    return bool(_steps(a) & _steps(b))


def _steps(kind: type[Attention]) -> set[str]:
    return {
        name
        for base in kind.__mro__[:-2]
        for name, value in vars(base).items()
        if callable(value) and not name.startswith("__")
    }
