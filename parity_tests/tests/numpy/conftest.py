"""What the tests of the NumPy attention share."""

from __future__ import annotations

import pytest

from mha_numpy.engines import threads as pool


@pytest.fixture(autouse=True)
def restored_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the process's number of threads as it was."""
    monkeypatch.setattr(pool, "_chosen", pool._chosen)
