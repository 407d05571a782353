"""A maximum that is taken over hidden keys too is measured: with which masks, and from where on."""

from __future__ import annotations

import pytest

from mha_parity.core.options import Options
from mha_parity.diagnose.experiments.conditions.values import (
    EXP_OVERFLOWS,
    HIDDEN_IN_MAXIMUM,
    values,
)
from mha_parity.diagnose.experiments.designs.calls import Caller
from mha_parity.worker.open_target import bind_in_process
from subject_checks import check_subject, load_subject

LIMITS = {
    "of_all": ("by 720 … 752 in float64, by 96 … 128 in float32", HIDDEN_IN_MAXIMUM),
    "hidden_behind_exp": ("by 704 … 720 in float64, by 80 … 96 in float32", EXP_OVERFLOWS),
    "of_all_flushed": ("by 704 … 720 in float64, by 80 … 96 in float32", HIDDEN_IN_MAXIMUM),
    "of_visible": (),
    "approximated": (),
}


@pytest.mark.parametrize("name", LIMITS)
def test_large_scores_of_hidden_keys_are_measured(name: str) -> None:
    """Wrong ones underflow or overflow at the limits of exp; a right one and a wrong exp do not."""
    target = bind_in_process(load_subject(f"hidden_maximum.py:{name}"), Options(cases=18))
    found = [each.text for each in values(Caller(target, lambda: True))]
    said = [text for text in found if "the score of a hidden key is larger" in text]
    assert bool(LIMITS[name]) == bool(said)
    for text in said:
        assert text.startswith("with attn=causal, attn=bool2d, padding=bool, where the score of a")
        assert all(part in text for part in LIMITS[name])


def test_it_is_the_first_line_of_the_diagnosis() -> None:
    """A run that fails by a relation alone has the cause, not the features of its cases."""
    verdict = check_subject("hidden_maximum.py:of_all", cases=120, diagnose=True)
    assert verdict.failures
    assert HIDDEN_IN_MAXIMUM in verdict.diagnosis[0].title
