"""A layer's own `add_zero_attn` is torch's: a further key and value of zeros."""

from __future__ import annotations

import pytest

from mha_parity.core.verdict import Outcome
from subject_checks import checks_of

judged = checks_of("appended_zeros.py", cases=40, dtypes=("float64",))


def test_a_switch_of_zeros_is_tried() -> None:
    """Some cases turn it on, and the verdict names it untried no more."""
    verdict = judged("AppendsZeros")
    assert verdict.outcome is Outcome.PASS, verdict
    assert "not tried" not in verdict.sentence
    (row,) = (r for r in verdict.features if (r.axis, r.value) == ("zero_attn", "yes"))
    assert row.cases > 0


def test_a_mask_that_is_named_as_rows_is_tried() -> None:
    """Booleans by documentation are a mask, though `hidden` may be states, and tensors of floats.

    Kills the annotation `Tensor` as a word against it.
    """
    verdict = judged("NamedAsRows")
    assert verdict.outcome is Outcome.PASS, verdict
    assert "not tried" not in verdict.sentence


@pytest.mark.parametrize("name", ["HidesZeros", "AppendsNothing", "NamedAsRowsHidesZeros"])
def test_zeros_that_are_hidden_or_lacking_fail(name: str) -> None:
    """No case without the switch shows it."""
    verdict = judged(name)
    assert verdict.outcome is Outcome.FAIL
    assert all(each.case.zero_attn == "yes" for each in verdict.failures)
