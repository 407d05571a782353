"""A maximum that is taken over hidden keys too is measured: with which masks, and from where on."""

from __future__ import annotations

import pytest

from mha_parity.core.options import Options
from mha_parity.diagnose.experiments.calls import Caller
from mha_parity.diagnose.experiments.values import values
from mha_parity.worker.open_target import bind_in_process
from subject_checks import check_subject, load_subject

COUNTS = {"of_all": 1, "of_visible": 0, "approximated": 0}
LIMITS = "by 720 … 752 in float64, by 96 … 128 in float32"


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_a_maximum_over_hidden_keys_is_measured(name: str, count: int) -> None:
    """The wrong one underflows at the limits of exp; a right one, and a wrong exp, say nothing."""
    target = bind_in_process(load_subject(f"hidden_maximum.py:{name}"), Options(cases=18))
    found = [each.text for each in values(Caller(target, lambda: True))]
    said = [text for text in found if "hidden keys have a part in the maximum" in text]
    assert count == len(said)
    for text in said:
        assert text.startswith("with attn=causal, attn=bool2d, padding=bool, where the score of a")
        assert LIMITS in text


def test_it_is_the_first_line_of_the_diagnosis() -> None:
    """A run that fails by a relation alone has the cause, not the features of its cases."""
    verdict = check_subject("hidden_maximum.py:of_all", cases=120, diagnose=True)
    assert verdict.failures
    assert "hidden keys have a part in the maximum" in verdict.diagnosis[0].title
