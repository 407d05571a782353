"""What was found of the weights that a target uses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WeightsFinding:
    """What the weights are in place of what they should be, what to do, and in which operation."""

    text: str
    remedy: str
    understood: bool = True
    operation: str = ""
