"""Entries of the catalogue: the facts about one bug, and the registration of wrong attentions."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from mha_parity.catalogue.plain_attention import Attention, answer_of
from mha_parity.core.candidate import FunctionCandidate
from mha_parity.core.features import AXES, make_offer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mha_parity.core.candidate import Answer
    from mha_parity.core.problem import Problem

DTYPES = ("float64", "float32")
FAMILIES: Mapping[int, str] = MappingProxyType(
    {
        1: "projection",
        2: "head split and merge",
        3: "scale",
        4: "softmax and numerics",
        5: "masks",
        6: "causal rule",
        7: "bias_kv and zero_attn",
        8: "outputs and weights",
        9: "dtype",
        10: "batching and memory",
        11: "grouped queries",
        12: "gradients",
        13: "state and honesty",
        14: "edge shapes",
    }
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Bug:
    """A wrong attention and its story.

    ``title`` is a clause that says what the candidate does; ``wrong`` and ``right`` are formulas or
    code; ``needs`` are features with which it is sure to show (axis -> one of these values);
    ``equivalent`` is the proof, where outputs cannot differ on any problem drawn here;
    ``beyond`` says why the cases drawn here cannot be counted on to show it;
    ``plain`` is false where the answer to a plain call is right (dropout, inputs torch refuses);
    ``policy`` is true where only fully masked rows differ, or those of padded queries, about which
    torch disagrees with itself.
    ``kinds`` are spellings of the bug (block sizes, fill values), the usual one first; ``make``
    replaces them where the bug needs state: it returns a fresh function of problems. ``layer``
    makes the class of a wrong layer, whose calls are to be checked for side effects, with the
    modules ``forbid`` forbidden.
    """

    id: str
    family: int
    title: str
    wrong: str
    right: str
    visible_when: str
    remedy: str
    sources: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    equivalent: str | None = None
    beyond: str | None = None
    plain: bool = True
    policy: bool = False
    dtypes: tuple[str, ...] = DTYPES
    kinds: tuple[type[Attention], ...] = ()
    make: Callable[[], Callable[[Problem], Answer]] | None = None
    layer: Callable[[], type] | None = None
    forbid: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """Say in one sentence what is computed, and what should be."""
        return f"{self.title[:1].upper()}{self.title[1:]}: {self.wrong}; right: {self.right}."

    def function(self) -> Callable[[Problem], Answer]:
        """Return the wrong attention as a function, with statelessness."""
        if self.make is not None:
            return self.make()
        return self.attend

    def attend(self, problem: Problem) -> Answer:
        """Return what this wrong attention answers (to its first call, where it has state)."""
        return answer_of(self.kinds[0], problem) if self.make is None else self.make()(problem)

    def candidate(self) -> FunctionCandidate:
        """Return the wrong attention as a candidate that offers all that a problem can ask for."""
        offered = whole_offer() | {"gradients": self.needs.get("gradients", ("no",))}
        return FunctionCandidate(self.id, self.function(), offered, extras={"bug": self.id})


def whole_offer() -> dict[str, tuple[str, ...]]:
    """Return the offer of a candidate that can do everything but gradients.

    Biases all or none, and any weights, as torch's layer: others are for layers that lack some.
    """
    whole = {axis: tuple(values) for axis, values in AXES.items()}
    torchs = {"bias": ("no", "yes"), "projection": ("packed", "separate", "none")}
    return make_offer(**whole | torchs | {"gradients": ("no",)})


CATALOGUE: dict[str, Bug] = {}


def enter(bug: Bug) -> Bug:
    """Enter ``bug`` under its id, each once."""
    if bug.id in CATALOGUE:
        raise ValueError(f"the bug `{bug.id}` is in the catalogue twice; one id names one bug.")
    CATALOGUE[bug.id] = bug
    return bug


def register_bug(
    bug_id: str,
    family: int,
    title: str,
    *,
    wrong: str,
    right: str,
    visible: str,
    remedy: str,
    sources: str = "",
    aliases: str = "",
    needs: str = "",
    equivalent: str | None = None,
    beyond: str | None = None,
    policy: bool = False,
    dtypes: tuple[str, ...] = DTYPES,
    variants: tuple[Mapping[str, object], ...] = (),
) -> Callable[[type[Attention]], type[Attention]]:
    """Enter the decorated attention; ``variants`` are other values of its class attributes.

    ``sources`` and ``aliases`` are separated by blanks; ``needs`` is written ``axis=a/b axis=c``.
    """

    def register(kind: type[Attention]) -> type[Attention]:
        others = tuple(
            type(f"{kind.__name__}{i}", (kind,), dict(v)) for i, v in enumerate(variants, 2)
        )
        bug = Bug(
            id=bug_id,
            family=family,
            title=title,
            wrong=wrong,
            right=right,
            visible_when=visible,
            remedy=remedy,
            sources=tuple(sources.split()),
            aliases=tuple(aliases.split()),
            needs=feature_values(needs),
            equivalent=equivalent,
            beyond=beyond,
            policy=policy,
            dtypes=dtypes,
            kinds=(kind, *others),
        )
        enter(bug)
        return kind

    return register


def feature_values(text: str) -> Mapping[str, tuple[str, ...]]:
    """Return ``axis=a/b axis=c`` as a mapping; every name must exist."""
    needs = {}
    for word in text.split():
        axis, _, values = word.partition("=")
        needs[axis] = tuple(values.split("/"))
        if not set(needs[axis]) <= set(AXES[axis]):
            raise ValueError(f"`{word}` is no feature; the values of {axis} are {list(AXES[axis])}")
    return MappingProxyType(needs)
