"""What a call leaves behind shows in the dtypes of 16 bits, where few roundings are much."""

from __future__ import annotations

import pytest

from subject_checks import checks_of

judged = checks_of("half_only.py", cases=60)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_right_layer_of_16_bits_passes(dtype: str) -> None:
    """Its repeated calls differ by nothing, other layouts by a rounding of each stage at most."""
    verdict = judged("Attention", dtypes=(dtype,), cases=150)
    assert () == verdict.failures
    assert {"determinism", "statelessness", "dropout off"} <= {
        row.name for row in verdict.checks if row.cases
    }


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "check"),
    [("GrowsAfterTheFirstCall", "statelessness"), ("DropsAlways", "dropout off")],
)
def test_a_misdeed_of_16_bits_is_seen(dtype: str, name: str, check: str) -> None:
    """By 256 roundings of bfloat16, twice the largest element, all of these calls were equal."""
    verdict = judged(name, dtypes=(dtype,))
    assert check in {each.check_result.check for each in verdict.failures}
