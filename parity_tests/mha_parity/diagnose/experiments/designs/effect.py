"""One way of being wrong: its sentence, what to do about it, and the operation to change."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Effect:
    """Sentence on what is computed in place of what should be.

    ``operation``: that of the source which is wrong. ``understood``: the text says what is
    computed, and not only that it is another.
    """

    text: str
    remedy: str = ""
    operation: str = ""
    understood: bool = True

    def within(self, where: str) -> Effect:
        """Return the same, its sentence behind what says where it shows."""
        return replace(self, text=f"{where}{self.text}")


@dataclass(frozen=True)
class FeatureEffect:
    """One feature, or kind of mask: what is wrong with it alone, None where nothing is.

    ``error`` is the largest error of the output.
    """

    name: str
    cause: Effect | None
    error: float

    @property
    def effect(self) -> str:
        """The sentence, "" where nothing is wrong."""
        return self.cause.text if self.cause else ""

    @property
    def understood(self) -> bool:
        """Whether it is known what is computed."""
        return self.cause is not None and self.cause.understood
