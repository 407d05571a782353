"""Attention weights that a call returns besides its output, unasked or by a switch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mha_parity.core.parameters import Role
from mha_parity.targets.conventions.base import FeatureProbe
from mha_parity.targets.parameters import role

if TYPE_CHECKING:
    import inspect
    from collections.abc import Iterable, Iterator

    from mha_parity.core.case import Case

WEIGHTS = re.compile(r"attn|attention|weight|score|prob")


def returned(case: Case) -> Iterator[FeatureProbe]:
    """Yield the trials of the weights that a function may return beside its output."""
    yield FeatureProbe("weights", "per_head", (case.replace(weights="per_head"),))
    if case.heads_count > 1:
        yield FeatureProbe("weights", "averaged", (case.replace(weights="averaged"),))


def weights_switches(named: Iterable[inspect.Parameter], case: Case) -> dict[str, bool]:
    """Return what the switches of a call get: True where a case asks for weights.

    ``need_weights``, ``return_attention``, ``output_attentions`` and the like, off by default, on,
    or None; ``average_attn_weights`` is whether they are averaged over the heads.
    """
    switches = {}
    for each in named:
        is_switch = each.default is None or isinstance(each.default, bool)
        if is_switch and role(each.name, "call") is Role.RETURN and WEIGHTS.search(each.name):
            averaging = each.name.startswith("average")
            switches[each.name] = case.weights in {"averaged", "" if averaging else "per_head"}
    return switches
