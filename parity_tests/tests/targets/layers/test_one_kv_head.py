"""Layers whose heads share one key head are judged by torch's layer with repeated weights."""

from __future__ import annotations

import pytest

from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome
from mha_parity.diagnose.identify import identify
from mha_parity.diagnose.measurements import channel_mixing
from mha_parity.run.asked_cases import cases_for
from mha_parity.targets import load
from mha_parity.targets.bind import bind
from mha_parity.worker.open_target import bind_in_process
from subject_checks import SUBJECTS, check_subject


@pytest.mark.parametrize("name", ["MultiQuery", "PackedKeys", "MultiQueryOfOwnWidth"])
def test_right_ones_pass(name: str) -> None:
    """Separate and packed: which is said, and masks reach it."""
    verdict = check_subject(f"one_kv_head.py:{name}", cases=60)
    assert Outcome.PASS == verdict.outcome, verdict
    assert not [each for each in verdict.parameters if each.is_untried]
    said = "one head of keys and values for all heads of queries"
    assert any(said in note for note in verdict.notes), verdict.notes


@pytest.mark.parametrize("name", ["MultiQueryReversed", "PackedInOtherOrder"])
def test_wrong_ones_fail(name: str) -> None:
    """The order of the heads, and of what is packed, shows."""
    assert Outcome.FAIL == check_subject(f"one_kv_head.py:{name}", cases=24, fail_fast=True).outcome


def test_what_is_wrong_is_measured_with_one_key_head() -> None:
    """The experiments ask problems that such a layer has weights for."""
    verdict = check_subject("one_kv_head.py:MultiQueryReversed", cases=24, diagnose=True)
    said = "the values of head h are mixed by the weights of head H - 1 - h"
    assert [said] == [each.title for each in verdict.diagnosis]


def test_heads_that_share_a_key_head_are_not_held_to_be_independent() -> None:
    """Of a right layer nothing departs, and no row says of heads what no layer of the kind has.

    A channel of its value head reaches one channel of each head, which no probe takes for a bug.
    """
    target = bind_in_process(load.load(f"{SUBJECTS}/one_kv_head.py:MultiQuery"), Options(cases=18))
    rows = identify(target, "MultiQuery").measures
    assert not [each for each in rows if each.as_torch is False]
    assert "heads" not in {each.experiment for each in rows}
    assert [] == list(channel_mixing(target))


def test_all_cases_have_one_key_head() -> None:
    """Two key heads have no place in the weights; one has gradients."""
    subject = load.load(f"{SUBJECTS}/one_kv_head.py:MultiQuery")
    options = Options(cases=60)
    candidate = bind_in_process(subject, options)
    counts = {
        (c.kv_heads, c.kv_heads_count) for c in cases_for(candidate, candidate.offer, options)
    }
    assert {("fewer", 1)} == counts
    assert "yes" in bind(subject).offer["gradients"]
