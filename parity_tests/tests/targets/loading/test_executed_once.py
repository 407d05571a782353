"""A target's file is executed once, whatever it lacks and however it ends."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from mha_parity.targets.load import load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCE = """
with open(r"{log}", "a") as file:
    file.write("run\\n")
{imports}

def attention(q, k, v):
    return q

{end}
"""
LACKING = "import not_there_one, not_there_two\nfrom not_there_three import x"
WAYS = {
    "three missing libraries": ("", LACKING, ""),
    "leaves": ("", "", "import sys\nsys.exit('usage: train.py')"),
    "leaves, in a package": ("package", "", "import sys\nsys.exit('usage: train.py')"),
    "raises, in a package": ("package", LACKING, "raise KeyError('data')"),
}


@pytest.fixture(autouse=True)
def _clean_imports() -> Iterator[None]:
    """Take back what loading a target leaves: search path and modules."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.mark.parametrize("way", WAYS)
def test_a_file_is_executed_once(tmp_path: Path, way: str) -> None:
    """What it does besides (downloads, files that it writes) is done once, as in Python."""
    package, imports, end = WAYS[way]
    folder = tmp_path / package
    folder.mkdir(exist_ok=True)
    if package:
        (folder / "__init__.py").touch()
    log = tmp_path / "runs.log"
    path = folder / "executed_once.py"
    path.write_text(SOURCE.format(log=log, imports=imports, end=end), "utf-8")
    assert "attention" == load(f"{path}:attention").__name__
    assert "run\n" == log.read_text("utf-8")


def test_what_a_file_finds_by_itself_is_no_stand_in(tmp_path: Path) -> None:
    """A module on the path that the file makes is taken, though it was nowhere before."""
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "not_there_four.py").write_text("SCALE = 2.0\n", "utf-8")
    path = tmp_path / "finds.py"
    path.write_text(
        f"import sys\nsys.path.insert(0, r'{tmp_path / 'else'}')\n"
        "import not_there_four\nscale = not_there_four.SCALE\ndef f(q, k, v): return q\n",
        "utf-8",
    )
    assert 2.0 == load(f"{path}:f").__globals__["scale"]
