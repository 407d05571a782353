"""What holds for all tests of how a target is loaded, recognised and called."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _few_further_calls(few_further_calls: None) -> None:
    """Make few of the calls that tests/checks holds."""
