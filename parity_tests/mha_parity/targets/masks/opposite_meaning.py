"""By which option a mask means the opposite, and what its present meaning rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_parity.core.parameters import Role
from mha_parity.targets.calls.mask_format import VALUES
from mha_parity.targets.masks.demanded_meaning import by_documentation, by_name, requirement
from mha_parity.targets.masks.mask_search import EXACT

if TYPE_CHECKING:
    from mha_parity.targets.calls.mask_format import MaskSearchResult
    from mha_parity.targets.convention_base.convention import Convention


def opposite_option(convention: Convention, found: MaskSearchResult) -> str:
    """Return by which option a mask means the opposite of what its name promises, or trials say."""
    parameter = found.parameter
    if parameter.name in convention.mask_meanings or parameter.role is Role.CAUSAL:
        return ""
    promised, source = by_name(convention, parameter.name).hides, "name"
    if documented := by_documentation(convention, parameter.name):
        promised, source = documented.hides, "documentation"
    hides = found.taken[0].hides if promised is None else promised
    other = "keeps" if hides else "hides"
    shown = promised is not None or any(each.fit for each in found.taken)
    if not shown and requirement(convention, parameter).otherwise is not None:
        promised, source = hides, "documentation"
    if promised is None:
        said = f"; {_shown(found)} --masks {parameter.name}={other} demands the opposite"
        return said if found.taken[0].kind in VALUES else ""
    return f"; judged so by its {source}, unless --masks {parameter.name}={other}"


def _shown(found: MaskSearchResult) -> str:
    """Return how far trials showed what a mask means.

    Weights of a target that is wrong without a mask, too, are a jumble.
    """
    if any(each.fit >= EXACT for each in found.taken):
        return "found by trial,"
    if any(each.fit for each in found.taken):
        return "the nearest meaning, which no trial shows exactly:"
    return "taken so, as no trial shows what it means:"
