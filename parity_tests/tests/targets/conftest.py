"""What holds for all tests of how a target is loaded, recognised and called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Return a function that writes a file of Python, and returns the target of a name in it."""

    def written(source: str, name: str = "f") -> str:
        (tmp_path / "written.py").write_text(source, encoding="utf-8")
        return f"{tmp_path / 'written.py'}:{name}"

    return written
