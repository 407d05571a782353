"""Chance in the cases with one feature is no cause of the failures without it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mha_parity.cases.generate import make_problem
from mha_parity.catalogue import Attention, answer_of
from mha_parity.core.candidate import FunctionCandidate
from mha_parity.core.case import Case
from mha_parity.diagnose.call_effects import name_state
from mha_parity.diagnose.evidence import observe

if TYPE_CHECKING:
    from collections.abc import Callable

    from mha_parity.core.candidate import Answer
    from mha_parity.core.features import Offer
    from mha_parity.core.problem import Problem

PLAIN = Case(seed=1, batch=1, queries=4, keys=5, heads_count=2, head_dim=3, form="qkv",
             projection="none", inputs="cross")  # fmt: skip


class Unscaled(Attention):
    """Wrong everywhere, and by no chance."""

    def scale(self) -> float:
        """Do not scale."""
        return 1.0


def with_noise(*, always: bool) -> Callable[[Problem], Answer]:
    """Return an attention without scale that adds noise, always or with a causal mask alone."""
    rng = np.random.default_rng(4)

    def answer(problem: Problem) -> Answer:
        found = answer_of(Unscaled, problem)
        if not (always or problem.is_causal):
            return found
        return replace(found, output=found.output + rng.standard_normal(found.output.shape))

    return answer


@pytest.mark.parametrize("always", [True, False])
def test_noise_is_the_cause_where_plain_cases_have_it(always: bool, full_offer: Offer) -> None:
    """The plainest failing case may be one of the few with chance: others are asked again."""
    candidate = FunctionCandidate("planted", with_noise(always=always), full_offer)
    kinds = ("causal", "none", "bool2d", "none", "causal", "none")
    cases = [PLAIN.replace(attn=kind, seed=seed) for seed, kind in enumerate(kinds)]
    failing = [observe(candidate, make_problem(case)) for case in cases]
    found = name_state(candidate, failing, lambda: True)
    assert bool(found) is always
    assert all("two identical calls differ" in each.title for each in found)
