"""What takes lengths alone that are multiples of a number is judged at these."""

from __future__ import annotations

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.core.options import Options
from mha_parity.core.verdict import Outcome
from mha_parity.diagnose.identify import identify
from mha_parity.targets.bind import bind
from mha_parity.worker.open_target import bind_in_process
from subject_checks import checks_of, load_subject

judged = checks_of("whole_tiles.py", cases=40, dtypes=("float64",))


@pytest.mark.parametrize(
    ("name", "multiple"), [("tiled", 16), ("by_heads", 16), ("EvenLengths", 2)]
)
def test_right_ones_pass_and_the_lengths_are_said(name: str, multiple: int) -> None:
    """Kills a refusal, and lengths that raise; the causal rule or the mask is tried.

    One with the names and axes of torch's function is asked by small calls as well.
    """
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


def test_what_is_wrong_is_measured_at_lengths_that_are_taken() -> None:
    """Kills experiments at other lengths, which show nothing, and "right" of what is not asked."""
    (found,) = judged("by_heads_doubled", diagnose=True).diagnosis
    assert "the effective scale is 2/sqrt(D)" in found.title, found


def test_all_experiments_keep_to_the_lengths() -> None:
    """The right one has an identity: designs of other lengths are left out."""
    target = bind_in_process(load_subject("whole_tiles.py:by_heads"), Options())
    found = identify(target, "by_heads")
    assert found.as_torch
    (sizes,) = (each for each in found.measures if each.experiment == "sizes")
    assert "L 16 … " in sizes.sentence


def test_a_switch_without_effect_is_no_green() -> None:
    """The causal rule of such a kernel was not tried, which the sentence says."""
    verdict = judged("tiled_without_rule")
    assert Outcome.INCONCLUSIVE is verdict.outcome
    assert "`is_causal` has no effect" in verdict.sentence


def test_a_layer_that_is_built_already_is_refused() -> None:
    """Its own weights are asked at lengths that it raises at; its class can be judged."""
    layer = load_subject("whole_tiles.py:EvenLengths")(12, 2)
    with pytest.raises(TargetError, match=r"multiples of 2 .*; judge its class without them\.$"):
        bind(layer)
