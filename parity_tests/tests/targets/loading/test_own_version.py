"""A package that asks for its own version is loaded from its source, where it is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_parity.targets.load import load

if TYPE_CHECKING:
    from pathlib import Path

ASKS = "import importlib.metadata\n__version__ = importlib.metadata.version('{name}')\n"
DEFINES = "def attention(query, key, value):\n    return value\n"


def test_a_package_s_own_init_asks(tmp_path: Path) -> None:
    """Kills an error that says to install the package whose file is at hand."""
    package = tmp_path / "asks_for_itself"
    package.mkdir()
    (package / "__init__.py").write_text(ASKS.format(name="distribution-of-it"))
    (package / "own.py").write_text(DEFINES)
    assert "own" == load(f"{package}/own.py:attention")(None, None, "own")


def test_the_file_itself_asks(tmp_path: Path) -> None:
    """What stands behind the question is defined, and a note says that it was raised."""
    file = tmp_path / "file_that_asks.py"
    file.write_text(ASKS.format(name="file-that-asks") + DEFINES)
    assert "own" == load(f"{file}:attention")(None, None, "own")


def test_a_module_that_is_missing_is_still_said(tmp_path: Path) -> None:
    """Only the metadata of a package is done without: a library that computes is not."""
    package = tmp_path / "lacks_another"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "own.py").write_text("from no_such_library import attention\n")
    with pytest.raises(Exception, match="no_such_library"):
        load(f"{package}/own.py:attention")(None, None, None)
