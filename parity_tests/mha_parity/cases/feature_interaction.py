"""An interaction of three and more properties: which features and sizes have it, and make it."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from mha_parity.cases.clashes import complete_features, fits_features
from mha_parity.core.features import PLAIN

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from mha_parity.cases.sizes import Change, Sizes
    from mha_parity.core.case import Case
    from mha_parity.core.features import Features, Offer


# Where a made case has these values, an error of an eighth shows.
TELLING: Mapping[str, tuple[str, ...]] = {
    "dtype": ("float64", "float32"), "regime": ("normal",), "masked_rows": ("none",),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """Features and a relation of sizes: ``features`` has what may stand on an axis, best first.

    ``change`` gives sizes for which ``holds`` is true of a case, if need be after some attempts.
    """

    name: str
    features: Mapping[str, tuple[str, ...]]
    holds: Callable[[Case], bool]
    change: Change = lambda sizes, _: sizes
    first: int = 0

    def shown_by(self, case: Case, offer: Offer) -> bool:
        """Return whether a case has the interaction, and nothing that may cover it."""
        if not self.holds(case):
            return False
        telling = {axis: values for axis, values in TELLING.items() if {*values} & {*offer[axis]}}
        wanted = (telling | dict(self.features)).items()
        return all(getattr(case, axis) in values for axis, values in wanted)

    def drawn(self, offer: Offer, rng: random.Random) -> Features | None:
        """Return whole features that contain it, as plain as can be; None where none are drawn."""
        fixed: Features = {}
        for axis, values in self.features.items():
            fixed[axis] = next((value for value in values if value in offer[axis]), "")
        if not all(fixed.values()):
            return None
        for axis, values in TELLING.items():
            offered = [value for value in values if value in offer[axis]]
            fixed |= {axis: rng.choice(offered)} if offered and axis not in fixed else {}
        fixed |= {"form": rng.choice(offer["form"])} if "form" not in fixed else {}
        for axis, values in offer.items():
            plain = PLAIN[axis]
            if axis not in fixed and plain in values and fits_features(fixed, axis, plain):
                fixed[axis] = plain
        return complete_features(offer, fixed, rng)


def made_equal(changed: str, kept: str) -> Change:
    """Return a change that makes one size equal to another."""
    return lambda sizes, _: {changed: sizes[kept]}


def changed_to(changed: Sizes) -> Change:
    """Return a change of some sizes, with few samples beside a large one."""
    return lambda sizes, _: {"batch": min(sizes["batch"], 2)} | changed


def has_size(name: str, suits: Callable[[int], bool]) -> Callable[[Case], bool]:
    """Return a condition on one size of a case."""
    size = attrgetter(name)
    return lambda case: suits(size(case))
