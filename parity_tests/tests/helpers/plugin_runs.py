"""What the tests of the pytest plugin share: few cases, and what a run comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

CASES = 24
FEW = ("--mha-parity-cases", str(CASES), "--mha-parity-dtypes", "float64")
DEAD = "*MhaParityWarning: attn=causal is expected to fail, but the target offers no such*"


def outcomes(result: pytest.RunResult) -> dict[str, int]:
    """Return how many tests came to what."""
    return {name: n for name, n in result.parseoutcomes().items() if name != "warnings"}
