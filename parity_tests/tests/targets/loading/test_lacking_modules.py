"""A package beside the target that lacks a module is said to, and is no library to install."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from mha_parity.core.candidate import TargetError
from mha_parity.targets import load
from subject_checks import check_subject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CALLS = "from {} import turn\n\ndef attention(q, k, v):\n    return turn(q, k, v)\n"


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    """Return the folder of a package with a module `Rope`, and forget its modules behind it."""
    folder = tmp_path / "lacking_package"
    (folder / "parts").mkdir(parents=True)
    for each in (folder / "__init__.py", folder / "parts" / "__init__.py"):
        each.touch()
    (folder / "parts" / "Rope.py").write_text("def turn(q, k, v): return q\n", encoding="utf-8")
    yield folder
    for name in [each for each in sys.modules if each.startswith("lacking_package")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (
            "lacking_package.parts.RoPE",
            r"lacking_package has no parts\.RoPE, but Rope\.py",
        ),
        ("lacking_package.others.rope", r"the folder lacking_package has no others \["),
    ],
    ids=["another case", "none"],
)
def test_a_module_that_a_package_lacks_is_named(package: Path, module: str, said: str) -> None:
    """Kills advice to install a package of the user's own."""
    file = package / "attention.py"
    file.write_text(CALLS.format(module), encoding="utf-8")
    with pytest.raises(ValueError, match=said) as caught:
        check_subject(f"{file}:attention")
    assert "install" not in str(caught.value)


def test_a_file_that_the_target_imports_is_named_where_it_is_no_python(package: Path) -> None:
    """The sentence has both files, and the release of Python that reads neither."""
    (package / "newer.py").write_text("def turn[T](q: T: T): return q\n", encoding="utf-8")
    file = package / "attention.py"
    file.write_text(CALLS.format("lacking_package.newer"), encoding="utf-8")
    with pytest.raises(TargetError, match=r"imports newer\.py, which is no valid Python 3\.\d+: "):
        load.load(f"{file}:attention")
