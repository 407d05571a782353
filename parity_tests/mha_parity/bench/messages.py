"""Messages between the benchmark and a contender's process; each request has one reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mha_parity.bench.contenders import Contender
from mha_parity.bench.task_arrays import JudgedPart
from mha_parity.core.candidate import Answer
from mha_parity.worker.encoding import Protocol
from mha_parity.worker.messages import NAMES
from mha_torch import Path

if TYPE_CHECKING:
    from mha_parity.core.features import Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """Load the contender's library, or bind the target ``text``."""

    contender: Contender
    text: str | None
    convention: str | None
    threads: int
    search: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenReply:
    """Loaded; ``offer`` is a target's."""

    offer: Offer | None
    libraries: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """Take the task up from its folder and answer it once, the part that is judged."""

    folder: str
    part: JudgedPart


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReply:
    """The answer's judged part, and how long the next call took."""

    answer: Answer
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRequest:
    """Make ``calls`` calls and answer with the mean seconds of one."""

    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """Answer with the bytes at the peak beyond those of the loaded library, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTimeRequest:
    """Answer with the seconds of all cores that this process has used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SgemmRequest:
    """Multiply two float32 matrices of n rows and columns; answer with the seconds it took."""

    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnableReply:
    """The reason, in words that follow the contender's name."""

    reason: str
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondsReply:
    """How long something took."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesReply:
    """How much memory, None where the system does not say."""

    count: int | None


PROTOCOL = Protocol(
    (
        OpenRequest, OpenReply, BuildRequest, BuildReply, TimeRequest, MemoryRequest,
        CpuTimeRequest, SgemmRequest, UnableReply, SecondsReply, BytesReply,
    ),
    {
        **NAMES, "Answer": Answer, "Contender": Contender, "JudgedPart": JudgedPart,
        "Library": str, "Path": Path,
    },
)  # fmt: skip
