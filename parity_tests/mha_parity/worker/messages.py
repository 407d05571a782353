"""Messages between the run and a candidate's process."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from mha_parity.core.arrays import Array
from mha_parity.core.candidate import Answer
from mha_parity.core.case import SIZES, Case
from mha_parity.core.check_result import Severity
from mha_parity.core.features import AXES, Offer
from mha_parity.core.own_weights import OwnWeights
from mha_parity.core.parameters import Parameter, Role, Status
from mha_parity.core.problem import Problem
from mha_parity.core.safetensors import FormatError
from mha_parity.core.target_facts import TargetFacts
from mha_parity.targets.calls.mask_format import Axes, MaskFormat, MaskSearchResult
from mha_parity.targets.calls.mask_plan import MaskPlan
from mha_parity.worker.encoding import Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The first message to the worker. ``probe`` is False after a probe ended the process.

    ``plan`` is what an earlier process found of the target's masks, and ``settled`` of the rest of
    the call, whose arrays are ``library``'s; ``offer`` is what it found to be offered, with the
    ``reasons`` why other features are not. ``left_out`` are the checks of which a further call
    ended an earlier process.
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
    state_dict: str | None = None
    num_heads: int | None = None
    plan: MaskPlan | None = None
    settled: tuple[tuple[str, str], ...] = ()
    library: str | None = None
    offer: Offer | None = None
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


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
    facts: TargetFacts
    masks: MaskPlan | None
    settled: tuple[tuple[str, str], ...] = ()
    library: str | None = None

    def __post_init__(self) -> None:
        """Refuse what no target offers: a run would fail by it, far from here."""
        own = self.facts.own_weights
        features = [self.offer] if own is None else [self.offer, _each_alone(own.features)]
        known = all(
            axis in AXES and values and {*values} <= {*AXES[axis]}
            for mapping in features
            for axis, values in mapping.items()
        )
        if not known or {*AXES} != {*self.offer}:
            raise FormatError("offers features that there are none of")
        arrays = {each.name for each in fields(Problem)} - {"case", "given_scale", "single_call"}
        if own is not None and not ({*own.arrays} <= arrays and {*own.sizes} <= {*SIZES.values()}):
            raise FormatError("has weights of no problem")


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe:
    """From now on the worker is to describe its calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """The call that comes next, as Python; or the calls that a finding of a check compares."""

    text: str
    check: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Calling:
    """A call of the target begins: the time-out counts from here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Further:
    """A further call of the case begins, for a check; ``given`` are the shapes that it gets.

    Empty where the call is still prepared.
    """

    check: str
    given: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The error that came instead of the answer to one problem."""

    severity: Severity
    sentence: str
    detail: str


def _each_alone(features: Mapping[str, str]) -> Offer:
    return {axis: (value,) for axis, value in features.items()}


# Whatever the annotations of the messages and of their fields name.
NAMES: Mapping[str, Any] = {
    each.__name__: each
    for each in (
        Case, MaskFormat, MaskPlan, MaskSearchResult, OwnWeights, Parameter, Role, Severity, Status,
        TargetFacts,
    )
} | {"Array": Array, "Axes": Axes, "Offer": Offer}  # fmt: skip
PROTOCOL = Protocol(
    (Setup, Describe, Loaded, Refused, Ready, Described, Calling, Further, Failed, Answer, Problem),
    NAMES,
)
