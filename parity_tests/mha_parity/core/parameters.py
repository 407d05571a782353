"""The parameters of a target's constructor and call, and whether some case passed each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


class Role(StrEnum):
    """Purpose of a parameter."""

    INPUT = "input"
    WEIGHTS = "weights"
    PROJECTION_BIAS = "projection bias"
    HEADS = "heads"
    SIZE = "size"
    MASK = "mask"
    LENGTHS = "lengths"
    SCORE_BIAS = "score bias"  # relative positions, ALiBi: added to the scores
    CAUSAL = "causal switch"
    WINDOW = "window"  # what lies outside of it is hidden
    DROPOUT = "dropout"
    SCALE = "scale"
    CACHE = "cache"
    POSITIONS = "positions"
    RETURN = "return switch"
    CONFIG = "configuration"
    KEYS = "keys of another number than the queries"  # an input of its own that raises for them
    KEYWORDS = "further keywords"  # of an open call, which may be masks
    PART = "part"  # no parameter: what returns its arguments, as ``--without`` asks
    OTHER = "other"


class Status(StrEnum):
    """Whether cases passed a value for a parameter; ``EXCLUDED`` by ``--without``."""

    TRIED = "tried"
    DEFAULT_ONLY = "left at default"
    NOT_TRIED = "not tried"
    EXCLUDED = "excluded"


NO_ANSWER = "no call was answered with"  # how the reason begins where every call raised
# Parity says nothing while one of these is untried: what it hides is half of what attention does.
ESSENTIAL = frozenset({
    Role.MASK, Role.LENGTHS, Role.SCORE_BIAS, Role.CAUSAL, Role.WINDOW, Role.KEYS, Role.KEYWORDS,
})  # fmt: skip


# Why a mask that is passed is not tried: whether it reaches every sample is not seen.
ONE_SAMPLE = "passed with one sample alone, beside the causal rule of the target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter; ``of`` is "constructor" or "call", ``default`` its repr ("" if required).

    Or a part of the target that is taken out: ``of`` is "part".

    ``meaning`` is what small calls showed of a mask ("True keeps, (N, 1, L, S)"), ``reason`` why it
    could not be tried; both are "" where nothing was asked.
    """

    name: str
    of: str
    role: Role
    required: bool = False
    default: str = ""
    status: Status = Status.NOT_TRIED
    meaning: str = ""
    reason: str = ""

    @property
    def key(self) -> str:
        """The name under which an answer says that the parameter was passed."""
        return f"{self.of}.{self.name}"

    @property
    def is_untried(self) -> bool:
        """Whether a mask, lengths, a score bias or a causal switch was left at its default.

        Or whether an input of keys raised wherever these were not as many as the queries.

        A constructor's score bias makes weights that torch's layer has no counterpart of.
        """
        tried = {Status.TRIED, Status.EXCLUDED}
        learned = self.role is Role.SCORE_BIAS and self.of == "constructor"
        return self.role in ESSENTIAL and not learned and self.status not in tried


def with_status(
    parameters: Iterable[Parameter],
    passed: Iterable[Mapping[str, bool]],
    excluded: Collection[str] = (),
) -> tuple[Parameter, ...]:
    """Return the parameters with the status that all answers together give them.

    Each mapping has the keys that one answer's calls passed: True where the value was another than
    the default. ``excluded`` are names, and pass only for parameters left untried.
    """
    best: dict[str, bool] = {}
    for each in passed:
        if not each.items() <= best.items():
            best = {**each, **best, **{key: True for key, other in each.items() if other}}
    return tuple(replace(each, status=_status(each, best, excluded)) for each in parameters)


def _status(parameter: Parameter, passed: Mapping[str, bool], excluded: Collection[str]) -> Status:
    # As many keys as queries are no trial of another number.
    other = None if parameter.role is Role.KEYS else passed.get(parameter.key)
    if other and parameter.reason != ONE_SAMPLE:
        return Status.TRIED
    if parameter.name in excluded:
        return Status.EXCLUDED
    return Status.NOT_TRIED if other is None else Status.DEFAULT_ONLY
