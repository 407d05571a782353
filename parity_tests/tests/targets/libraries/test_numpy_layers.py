"""What arrays of NumPy alone bring along is no fault of an attention, nor hides one."""

from __future__ import annotations

from mha_parity.core.verdict import Outcome
from mha_parity.diagnose.experiment_diagnosis import BEYOND_HALF
from mha_parity.targets.calls.crash_report import EINSUM_LACKS
from subject_checks import checks_of

judged = checks_of("numpy_layers.py", cases=100, seed=0)


def test_sizes_at_which_einsum_does_not_take_a_dtype_are_not_asked() -> None:
    """A right function in bfloat16 is not red by what NumPy lacks; it is said, and how often."""
    verdict = judged("by_einsum")
    assert verdict.outcome is Outcome.PASS, verdict.sentence
    assert f"inconclusive: not asked: {EINSUM_LACKS}" in verdict.sentence


def test_einsum_that_raises_by_a_dtype_of_the_target_s_own_is_a_crash() -> None:
    """Kills every message of einsum taken for what NumPy lacks: float64 inputs are asked."""
    verdict = judged("halved_within", dtypes=("float64",))
    assert verdict.outcome is Outcome.FAIL
    assert "invalid data type for einsum" in verdict.failures[0].check_result.detail


def test_a_fill_that_is_infinite_in_float16_is_said_with_its_remedy() -> None:
    """The dtype alone is needed, and no size that a target without an axis of samples cannot vary.

    Kills one sample counted as a size that is needed: a case of several has no answer.
    """
    first, *_ = judged("filled_beyond_half", diagnose=True).diagnosis
    assert "wrong with float16, and right without it: NaN stands there" == first.title
    assert BEYOND_HALF == first.remedy


def test_an_array_without_elements_holds_no_weights() -> None:
    """A layer that keeps one is judged, and is right."""
    verdict = judged("KeepsScratch")
    assert verdict.outcome is Outcome.PASS, verdict.sentence


def test_weights_that_the_next_call_overwrites_are_found_in_such_a_layer() -> None:
    """Weights that are returned are an array of their own."""
    verdict = judged("ReturnsScratch", diagnose=True)
    assert verdict.outcome is Outcome.FAIL
    assert ["weights-buffer-reused"] == [each.bug for each in verdict.diagnosis]
