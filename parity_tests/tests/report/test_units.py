"""Quantities are written short, and none is written as zero that is not."""

from __future__ import annotations

import pytest

from mha_parity.report import units

WRITTEN = {
    0.0: "0.00",
    0.00314: "0.003",
    0.0052: "0.01",
    0.414: "0.41",
    9.996: "10.0",
    314.2: "314",
}


@pytest.mark.parametrize(("value", "text"), WRITTEN.items(), ids=str)
def test_numbers_keep_a_digit_that_is_not_zero(value: float, text: str) -> None:
    """Two digits behind the point, less for large numbers, one significant digit for tiny ones."""
    assert text == units.two_decimals(value)
