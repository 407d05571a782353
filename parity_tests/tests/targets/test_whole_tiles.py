"""What takes lengths alone that are multiples of a number is judged at these."""

from __future__ import annotations

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.verdict import Outcome
from mha_parity.targets.bind import bind
from subject_checks import checks_of, load_subject

judged = checks_of("whole_tiles.py", cases=40, dtypes=("float64",))


@pytest.mark.parametrize(("name", "multiple"), [("tiled", 16), ("EvenLengths", 2)])
def test_right_ones_pass_and_the_lengths_are_said(name: str, multiple: int) -> None:
    """Kills a refusal, and lengths that raise; the causal rule or the mask is tried."""
    verdict = judged(name)
    assert Outcome.PASS is verdict.outcome, verdict
    assert not [each for each in verdict.parameters if each.is_untried]
    said = f"not offered: lengths that are no multiples of {multiple} (raised "
    assert any(note.startswith(said) for note in verdict.notes)


@pytest.mark.parametrize("name", ["tiled_unscaled", "EvenLengthsOfFirstSample"])
def test_wrong_ones_fail_by_their_numbers(name: str) -> None:
    """At a later tile and with the masks of several samples."""
    verdict = judged(name, max_failures=1)
    assert Outcome.FAIL is verdict.outcome
    assert {"output"} == {each.check_result.check for each in verdict.failures}


def test_a_switch_without_effect_is_no_green() -> None:
    """The causal rule of such a kernel was not tried, which the sentence says."""
    verdict = judged("tiled_without_rule")
    assert Outcome.INCONCLUSIVE is verdict.outcome
    assert "`is_causal` has no effect" in verdict.sentence


def test_a_layer_that_is_built_already_is_refused() -> None:
    """Its own weights are asked at lengths that it raises at; its class can be judged."""
    layer = load_subject("whole_tiles.py:EvenLengths")(12, 2)
    with pytest.raises(TargetError, match=r"no multiples of 2 .*; judge its class\.$"):
        bind(layer)
