"""What is applied in place of a scale that the caller gives, at both signs and at 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_parity.catalogue import Attention, answer_of
from mha_parity.core.candidate import FunctionCandidate
from mha_parity.core.features import make_offer
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.diagnose.experiments.run_experiments import cause_findings, run_experiments
from mha_parity.diagnose.experiments.scores.given_scale import REMEDY

if TYPE_CHECKING:
    from collections.abc import Callable

OFFERED = make_offer(
    form="qkv", projection="none", inputs=("self", "cross"), scale=("default", "given"),
    dtype=("float64",), size=("small",),
)  # fmt: skip
APPLIED: dict[str, tuple[Callable[[float, int], float], str]] = {
    "right": (lambda s, _: s, ""),
    "ignored": (lambda _, d: d**-0.5, "it has no effect"),
    "reversed": (lambda s, _: -s, "its sign is reversed"),
    "magnitude": (lambda s, _: abs(s), "its sign is lost"),
    "positive": (lambda s, d: s if s > 0 else d**-0.5,
                 "where it is 0 or negative, it has no effect"),
    "truthy": (lambda s, d: s or d**-0.5, "where it is 0, it has no effect"),
    "twice": (lambda s, d: s * d**-0.5, "it is multiplied by 1/sqrt(D) too"),
    "divided": (lambda s, _: 1 / s if s else 0.0, "scores are divided by it"),
    "cube": (lambda s, _: s**3 + 2, "the output is wrong"),
}  # fmt: skip


@pytest.mark.parametrize("name", APPLIED)
def test_what_is_applied_in_place_of_a_given_scale_is_said(name: str) -> None:
    """By the same sentence whatever the scale of one case is; of the right one nothing is said."""
    applied, effect = APPLIED[name]

    class Given(Attention):
        def scale(self) -> float:
            given = self.problem.given_scale
            return super().scale() if given is None else applied(given, self.problem.head_dim)

    candidate = FunctionCandidate("given", lambda p: answer_of(Given, p), OFFERED)
    found = cause_findings(run_experiments(Caller(candidate, lambda: True)))
    texts = [f"with scale=given: {effect}"] if effect else []
    assert texts == [each.text for each in found]
    assert {REMEDY} >= {each.remedy for each in found}
