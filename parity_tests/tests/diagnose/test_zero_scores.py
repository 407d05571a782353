"""Scores of exactly 0 that are taken for hidden ones are measured, always or under a mask alone."""

from __future__ import annotations

import pytest

from mha_parity.core.options import Options
from mha_parity.diagnose.experiments.conditions.values import ZERO, values
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.worker.open_target import bind_in_process
from subject_checks import load_subject


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("of_future", [f"with attn=causal: {ZERO}"]),
        ("of_all", [ZERO]),
        ("OfItself", [ZERO]),
        ("by_place", []),
    ],
)
def test_zeros_that_are_hidden_are_distinguished_from_future_ones(
    name: str, said: list[str]
) -> None:
    """The mask that it takes is named, none where none is; what hides by places is right."""
    target = bind_in_process(load_subject(f"zero_scores.py:{name}"), Options(cases=18))
    found = [each.text for each in values(Caller(target, lambda: True))]
    assert said == [text for text in found if ZERO in text]
