"""Attention weights that a call returns besides its output, unasked or by a switch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mha_parity.core.parameters import Role
from mha_parity.targets.calls.log_sum_exp import log_sum_exp_switches
from mha_parity.targets.convention_base.convention import FeatureProbe
from mha_parity.targets.static.call_parameters import role

if TYPE_CHECKING:
    import inspect
    from collections.abc import Iterable, Iterator, Sequence

    from mha_parity.core.case import Case

WEIGHTS = re.compile(r"(attn|attention|weight|prob|map|attention_score)s?$")


def weight_probes(case: Case) -> Iterator[FeatureProbe]:
    """Yield the trials of the weights that a function may return with its output."""
    yield FeatureProbe("weights", "per_head", (case.replace(weights="per_head"),))
    if case.heads_count > 1:
        yield FeatureProbe("weights", "averaged", (case.replace(weights="averaged"),))


def weights_switches(
    named: Iterable[inspect.Parameter], case: Case, offered: Sequence[str]
) -> dict[str, bool]:
    """Return the switches of a call that differ from their defaults: what a case asks for.

    Those of a log-sum-exp are on where its seed is odd.

    ``need_weights``, ``return_attention``, ``output_attentions`` and the like, off by default, on,
    or None; ``average_attn_weights`` is whether they are averaged over the heads. One that is on by
    default is switched off only where weights are offered: else the default is what is judged.
    """
    named = list(named)
    switches = log_sum_exp_switches(named, case.seed)
    for each in named:
        is_switch = each.default is None or isinstance(each.default, bool)
        if not is_switch or role(each.name, "call") is not Role.RETURN:
            continue
        if "only" not in each.name and WEIGHTS.search(each.name):
            averaging = each.name.startswith("average")
            wanted = case.weights in {"averaged", "" if averaging else "per_head"}
            if wanted is not bool(each.default) and (case.weights != "none" or offered):
                switches[each.name] = wanted
    return switches
